package groups

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/sim"
)

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	silences := sim.Faults{Crashes: 1, Cuts: 1, Expiries: 1, LostReplies: 1, Pauses: 6}
	all := []sim.Named{
		{Name: "lead", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newLead(w) }},
		{Name: "lead-by-hand", World: leadByHand},
		{Name: "lead-silent", Options: sim.Options{Faults: silences}, World: leadSilent},
		{Name: "lead-neglected", Options: sim.Options{Faults: faults}, World: leadNeglected},
		{Name: "declared-silent", Options: sim.Options{Faults: silences}, World: declaredSilent},
		{Name: "seats", Options: sim.Options{Faults: faults}, World: seats},
		{Name: "anew", Options: sim.Options{Faults: faults}, World: anew},
		{Name: "state", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newSaving(w) }},
		{Name: "state-by-hand", World: stateByHand},
		{Name: "operation", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newOperating(w) }},
		{Name: "operation-by-hand", World: operationByHand},
		{Name: "cron", Options: sim.Options{Faults: faults}, World: cronAgain},
		{Name: "cron-once", Options: sim.Options{Faults: faults}, World: cronOnce},
		{Name: "wrong-clock", Options: sim.Options{Faults: faults}, World: wrongClock},
		{Name: "cron-by-hand", World: cronByHand},
		{Name: "lead-evicted", World: leadEvicted},
		{Name: "lead-damaged", World: leadDamaged},
		{Name: "state-evicted", World: stateEvicted},
		{Name: "operation-evicted", World: operationEvicted},
		{Name: "cron-evicted", World: cronEvicted},
		{Name: "pause", World: pausing(0)},
		{Name: "pause-ahead", World: pausing(20 * time.Second)},
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
	generation = regexp.MustCompile(`/run/g[12]`)
	duty       = regexp.MustCompile(`/duty/[cd]\b`)
	key        = regexp.MustCompile(`/(state|op)/[a-z]+`)
	recorded   = regexp.MustCompile(`(create|set|delete) [^ ]*/(cursor|tick/[0-9TZ]+|now/n-<seq>)(@v)?`)
)

// general replaces some names in a path.
func general(path string) string {
	path = duty.ReplaceAllString(generation.ReplaceAllString(path, "/run/<g>"), "/duty/<d>")
	return key.ReplaceAllString(path, "/$1/<name>")
}

// kind names what has operations in many combinations: the transactions of the assigner, which all have the same
// checks, and what the holder of a cron writes.
func kind(ops string) string {
	const below = "/apps/.muster/run/<g>/"
	holder := strings.Contains(ops, "/held@v")
	switch {
	case strings.Contains(ops, "set "+below+"assigner"), strings.Contains(ops, "delete "+below+"duty/") && !holder:
		return "the assigner writes"
	case holder:
		all := strings.Split(recorded.ReplaceAllString(ops, "record what a cron does"), ", ")
		return strings.Join(slices.Compact(all), ", ")
	}
	return ops
}

// TestWorlds explores schedules of each world.
func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

// TestMutants holds the table of guards against the worlds.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }
