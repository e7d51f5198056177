package jobs_test

import (
	"testing"

	"muster/sim"
)

// worlds are all worlds of this package, by the names of their tests.
func worlds() map[string]func(*sim.World) {
	return map[string]func(*sim.World){
		"join":                  joinWorld,
		"run":                   runWorld,
		"roll":                  rollWorld,
		"barrier-durable":       barrierWorld(2, false, false, "w0"),
		"barrier-live":          barrierWorld(2, true, false, "w0"),
		"barrier-durable-retry": barrierWorld(3, false, true),
		"barrier-live-retry":    barrierWorld(3, true, true),
		"next-durable":          nextWorld(false, false),
		"next-live":             nextWorld(true, false),
		"next-live-retry":       nextWorld(true, true),
		"start":                 startWorld,
		"values":                valuesWorld,
		"address":               addressWorld,
		"terminate":             terminateWorld,
		"hand-durable":          handWorld(false),
		"hand-live":             handWorld(true),
	}
}

func faults() sim.Faults {
	return sim.Faults{Crashes: 2, Cuts: 2, Expiries: 2, LostReplies: 2, Pauses: 2}
}

func TestWorlds(t *testing.T) {
	for name, world := range worlds() {
		t.Run(name, func(t *testing.T) {
			sim.Run(t, sim.Options{Name: name, Seeds: 50, Faults: faults()}, world)
		})
	}
}
