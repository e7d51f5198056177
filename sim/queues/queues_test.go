package queues_test

import (
	"testing"

	"muster/sim"
)

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1, Outages: 1}
	return []sim.Named{
		{Name: "work", Options: sim.Options{Seeds: 20, Steps: 700, Faults: faults, Own: own}, World: workWorld},
	}
}

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }
