package groups

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/sim"
)

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	all := []sim.Named{
		{Name: "lead", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newLead(w) }},
		{Name: "lead-by-hand", World: leadByHand},
		{Name: "seats", Options: sim.Options{Faults: faults}, World: seats},
		{Name: "anew", Options: sim.Options{Faults: faults}, World: anew},
		{Name: "state", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newSaving(w, 200<<10+1) }},
		{Name: "state-by-hand", World: stateByHand},
		{Name: "operation", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newOperating(w) }},
		{Name: "operation-by-hand", World: operationByHand},
		{Name: "cron", Options: sim.Options{Faults: faults}, World: cronAgain},
		{Name: "cron-once", Options: sim.Options{Faults: faults}, World: cronOnce},
		{Name: "wrong-clock", Options: sim.Options{Faults: faults}, World: wrongClock},
		{Name: "cron-by-hand", World: cronByHand},
		{Name: "declared", Options: sim.Options{Faults: faults}, World: declared},
		{Name: "asked", Options: sim.Options{Faults: faults}, World: asked},
	}
	for i := range all {
		o := &all[i].Options
		o.Seeds, o.End, o.Path, o.Kind = 30, 30*time.Minute, general, kind
	}
	return all
}

var (
	tickTime   = regexp.MustCompile(`[0-9]{8}T[0-9]{6}Z`)
	generation = regexp.MustCompile(`/run/g[12]`)
	duty       = regexp.MustCompile(`/duty/[cd]\b`)
	key        = regexp.MustCompile(`/(state|op)/[a-z]+`)
)

// general replaces the times of ticks and some names in a path.
func general(path string) string {
	path = generation.ReplaceAllString(tickTime.ReplaceAllString(path, "<time>"), "/run/<g>")
	return key.ReplaceAllString(duty.ReplaceAllString(path, "/duty/<d>"), "/$1/<name>")
}

// kind names the transactions that have operations in many combinations, as there is much or little to do.
func kind(ops string) string {
	const below = "/apps/.muster/run/<g>/"
	has := func(part string) bool { return strings.Contains(ops, part) }
	record := has("check /apps/.muster/group/shop@v")
	switch {
	case has(below + "clerk@v"):
		return "the clerk decides"
	case record && has("@v, delete "+below+"duty/"):
		return "the clerk deletes what a duty has left"
	case !has("/held@v"):
		return ops
	case has("/cursor") && has("delete "+below+"duty/<d>/held@v"):
		return "the holder of a cron decides, and gives it back"
	case has("/cursor") && record:
		return "the holder of a cron claims ticks or starts a run"
	case has("/cursor"):
		return "the holder of a cron decides"
	case has("held@v, delete " + below + "duty/<d>/state/"):
		return "the holder deletes what a key has left"
	case has("held@v, delete " + below + "duty/<d>/op/"):
		return "the holder deletes what an operation has left"
	}
	return ops
}

// TestWorlds explores schedules of each world.
func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

// TestMutants holds the table of guards against the worlds.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }
