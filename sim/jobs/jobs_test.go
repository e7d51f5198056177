package jobs_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/resource/job"
	"muster/sim"
)

func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

// TestMutants: every guard of a worker's transactions is needed, as the table says.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 2, LostReplies: 2, Pauses: 2}
	named := func(name string, world func(*sim.World)) sim.Named {
		options := sim.Options{Seeds: 50, End: 30 * time.Minute, Faults: faults, Own: isOwn, Path: normalise}
		return sim.Named{Name: name, Options: options, World: world}
	}
	return []sim.Named{
		named("join", joinWorld),
		named("join-hand", joinHandWorld),
		named("twins", twinsWorld),
		named("late", lateWorld),
		named("run", runWorld),
		named("roll", rollWorld),
		named("barrier-durable", barrierWorld(2, false, false, "w0")),
		named("barrier-live", barrierWorld(2, true, false, "w0")),
		named("barrier-durable-retry", barrierWorld(3, false, true)),
		named("barrier-live-retry", barrierWorld(3, true, true)),
		named("next-durable", nextWorld(false, false)),
		named("next-live", nextWorld(true, false)),
		named("next-live-retry", nextWorld(true, true)),
		named("start", startWorld),
		named("values", valuesWorld),
		named("address", addressWorld),
		named("terminate", terminateWorld),
		named("hand-durable", handWorld(false)),
		named("hand-live", handWorld(true)),
		named("ended", endedWorld),
		named("told", toldWorld),
		named("update-reset", updateWorld(job.Reset)),
		named("update-remove", updateWorld(job.Remove)),
		named("back", backWorld(false, 0)),
		named("back-both", backWorld(false, 2)),
		named("back-retry", backWorld(true, 0)),
		named("missing-durable", missingWorld(false)),
		named("missing-live", missingWorld(true)),
		named("taken-durable", takenWorld(1, false, false, false)),
		named("taken-live", takenWorld(1, false, true, false)),
		named("taken-missing", takenWorld(2, false, false, false)),
		named("taken-missing-retry", takenWorld(2, false, true, true)),
		named("taken-durable-retry", takenWorld(2, true, false, true)),
		named("taken-live-retry", takenWorld(2, true, true, true)),
		few(named("no-roll", noRollWorld)),
	}
}

// few is for a world whose schedules take long.
func few(n sim.Named) sim.Named {
	n.Options.Seeds = 20
	return n
}

// isOwn leaves out what apply writes: it checks the index of its stack, or puts a gate back.
func isOwn(kind string) bool {
	return !strings.Contains(kind, "/.muster/stack/") && !strings.HasSuffix(kind, "@v, create /jobs/.muster/run/<id>/gate")
}

// names are what differs between paths of one kind: identities, barriers, rounds and their attempts, keys.
var names = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`^(/jobs/j/|.*/by/)[^/@]+`), "$1<identity>"},
	{regexp.MustCompile(`/barrier/[^/@]+/[0-9.]+`), "/barrier/<name>/<round>"},
	{regexp.MustCompile(`/barrier/[^/@]+(@v)?$`), "/barrier/<name>$1"},
	{regexp.MustCompile(`/key\b`), "/<key>"},
}

func normalise(path string) string {
	for _, n := range names {
		path = n.pattern.ReplaceAllString(path, n.by)
	}
	return path
}

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }
