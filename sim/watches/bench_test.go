package watches

import (
	"testing"

	"muster/sim"
)

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, named()...) }
