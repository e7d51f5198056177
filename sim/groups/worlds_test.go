package groups

import (
	"testing"

	"muster/sim"
)

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	return []sim.Named{
		{Name: "lead", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newLead(w) }},
		{Name: "lead-by-hand", World: leadByHand},
	}
}

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }
