package stacks_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/sim"
)

// scene is a world of this package.
type scene struct {
	declare func(w *world) // its processes
	// must happen in some schedule, or the race that the world is about was none: reasons of rows with their results,
	// exit codes, and what the world itself says.
	must   []string
	faults sim.Faults    // default: some of each
	end    time.Duration // virtual time of the fair end, if it takes longer than most
}

// enough is the number of schedules in which everything happens that must happen in some.
const enough = 200

// schedules is how many a tally has seen.
const schedules = "schedules"

// scenes lists all worlds by name.
func scenes() map[string]scene {
	all := map[string]scene{}
	for _, some := range []map[string]scene{
		jobScenes(), repairScenes(), stackScenes(), groupScenes(), queueScenes(), rootScenes(), rivalScenes(),
		historyScenes(), hostileScenes(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// TestWorlds explores all worlds.
func TestWorlds(t *testing.T) {
	all := scenes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { all[name].explore(t, name) })
	}
}

func (s scene) explore(t *testing.T, name string) {
	seen := &tally{n: map[string]int{}}
	n := s.named(name, seen)
	n.Options.Name = name
	sim.Run(t, n.Options, n.World)
	t.Logf("%v", seen.n)
	for _, what := range s.must {
		if seen.n[what] == 0 && seen.n[schedules] >= enough {
			t.Errorf("%q never happened", what)
		}
	}
}

// TestMutants: every guard of a transaction of apply is needed by some world, or the table says why it stays.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func worlds() []sim.Named {
	var all []sim.Named
	for name, s := range scenes() {
		all = append(all, s.named(name, &tally{n: map[string]int{}}))
	}
	slices.SortFunc(all, func(a, b sim.Named) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (s scene) named(name string, seen *tally) sim.Named {
	o := sim.Options{Seeds: 20, Faults: s.faults, Own: isApply, End: s.end, Path: withoutNames}
	if o.End == 0 {
		o.End = 10 * time.Minute
	}
	if o.Faults == (sim.Faults{}) {
		o.Faults = sim.Faults{Crashes: 1, Cuts: 1, LostReplies: 1, Expiries: 1, Pauses: 1}
	}
	return sim.Named{Name: name, Options: o, World: func(w *sim.World) {
		seen.add(schedules)
		s.declare(&world{World: w, checker: newChecker(w), over: make(chan struct{}), seen: seen})
	}}
}

// isApply tells the transactions of package zkstate from those of members. It leaves out shared transactions with
// changes of several kinds: the changes of each kind have their guards with others of that kind.
func isApply(kind string) bool {
	if strings.Contains(kind, " "+home+"/") && !strings.Contains(kind, " /r") {
		return true
	}
	has := func(op string) bool { return strings.Contains(kind, op) }
	const set = "set /r/.muster/KIND/NAME@v"
	created := has("check " + home + "/stack/NAME@v, create /r/NAME,")
	if created && has(set) || has("check /r/.muster/run/<id>/gate, "+set) && has("delete /r/NAME@v") {
		return false
	}
	writes := regexp.MustCompile(`(create|set|delete) /r/\.muster/KIND/NAME|create /r/NAME(,|$)|` +
		`create /r/\.muster/run/<id>/gate|^check /r/\.muster/run/<id>/gate, create /r/\.muster/run/<id>/(assigner|batch)$|` +
		`set /r/\.muster/run/<id>$`)
	return (!has("/by/") || has("delete /r/NAME@v")) && writes.MatchString(kind)
}

// withoutNames replaces the names of resources, of their kinds, of duties, and of stacks.
func withoutNames(path string) string {
	resource := regexp.MustCompile(`^/r[2-4]?(/\.muster/(job|group|queue))?/[a-z]\b`)
	path = resource.ReplaceAllStringFunc(path, func(at string) string {
		if strings.Contains(at, "/.muster/") {
			return "/r/.muster/KIND/NAME"
		}
		return "/r/NAME"
	})
	path = regexp.MustCompile(`^/r[2-4]/`).ReplaceAllString(path, "/r/")
	path = regexp.MustCompile(`/(duty|by)/[a-z]+\b`).ReplaceAllString(path, "/$1/NAME")
	return regexp.MustCompile(`^(/\.muster/(stack|lock)/)[a-z]\b`).ReplaceAllString(path, "${1}NAME")
}

// tally counts what happened in the schedules of a world.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[what]++
}
