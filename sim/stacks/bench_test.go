package stacks_test

import (
	"testing"

	"muster/sim"
)

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }
