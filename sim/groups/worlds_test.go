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
		{Name: "seats", Options: sim.Options{Faults: faults}, World: seats},
		{Name: "anew", Options: sim.Options{Faults: faults}, World: anew},
		{Name: "state", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newSaving(w, 200<<10+1) }},
		{Name: "state-by-hand", World: stateByHand},
		{Name: "operation", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newOperating(w) }},
		{Name: "operation-by-hand", World: operationByHand},
		{Name: "cron", Options: sim.Options{Faults: faults}, World: cronOnce},
		{Name: "cron-by-hand", World: cronByHand},
	}
}

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }
