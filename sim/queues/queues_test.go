package queues_test

import (
	"testing"
	"time"

	"muster/resource/queue"
	"muster/sim"
)

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1, Outages: 1}
	o := sim.Options{Seeds: 10, Steps: 700, Faults: faults, Own: own, Kind: kind, Path: batches, End: 72 * time.Hour}
	lossy := o
	lossy.Faults.Outages = 3
	return []sim.Named{
		{Name: "work", Options: o, World: workWorld},
		{Name: "poison", Options: o, World: poisonWorld},
		{Name: "cancel", Options: o, World: cancelWorld},
		{Name: "pause", Options: o, World: pauseWorld},
		{Name: "retry-watcher", Options: o, World: retryWorld(queue.ResultsWatcher)},
		{Name: "retry-discard", Options: o, World: retryWorld(queue.ResultsDiscard)},
		{Name: "retry-keep", Options: o, World: retryWorld(queue.KeepResults + "15s")},
		{Name: "retry-end", Options: o, World: endRetryWorld},
		{Name: "full", Options: o, World: fullWorld},
		{Name: "wait", Options: o, World: waitWorld},
		{Name: "dead", Options: o, World: deadWorld},
		{Name: "loss", Options: lossy, World: lossWorld},
		{Name: "declare", Options: o, World: declareWorld},
		{Name: "unattended", Options: o, World: unattendedWorld},
		{Name: "clash", Options: o, World: clashWorld},
		{Name: "gone", Options: o, World: goneWorld},
		{Name: "anew", Options: o, World: anewWorld},
	}
}

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }
