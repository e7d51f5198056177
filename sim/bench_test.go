package sim_test

import (
	"testing"

	"muster/sim"
)

// BenchmarkSchedules runs schedules of the counter with faults on one core.
func BenchmarkSchedules(b *testing.B) {
	sim.Bench(b, worlds()[0])
}
