package sim

import (
	"flag"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	update     = flag.Bool("update", false, "complete the tables of guards")
	guardsLike = flag.String("sim.guard", "", "only guards whose operation or kind matches this expression")
	worldsLike = flag.String("sim.world", "", "look for mutants only in worlds whose name matches this expression")
)

// Named is a world with its options.
type Named struct {
	Name    string
	Options Options
	World   func(*World)
}

// Test explores the worlds, each in a test of its own.
func Test(t *testing.T, worlds ...Named) {
	for _, n := range worlds {
		t.Run(n.Name, func(t *testing.T) { Run(t, n.options(), n.World) })
	}
}

func (n Named) options() Options {
	o := n.Options
	o.Name = n.Name
	return o
}

// mutantLimit is about how many schedules, of all worlds together, look for a mutant.
const mutantLimit = 3000

// Mutants holds a table against the worlds: all guards of the transactions that they make, and for each guard a world
// that fails when the server ignores it. A guard of a transaction stands for the same guard of all transactions that do
// more than this one. A guard without a world needs a reason in the table. The test fails if a guard is missing in the
// table, if a world no longer fails, and if there is no reason. The reason ? means that a world is still looked for;
// the test logs how many there are. It only logs a missing guard that hardly any schedule shows: then a rare order of
// events is new, and not a guard.
//
// With -update it adds guards that are missing, and looks for worlds for those that have neither a world nor a reason,
// or ?, or whose world no longer fails, and notes the seeds that fail now. It writes the table after each. -sim.guard
// and -sim.world say where to look: then also for guards that have a reason.
func Mutants(t *testing.T, file string, worlds ...Named) {
	t.Helper()
	table, err := readTable(file)
	if err != nil && !(os.IsNotExist(err) && *update) {
		t.Fatal(err)
	}
	m := &mutants{t: t, errorf: t.Errorf, file: file, table: table, update: *update, limit: mutantLimit}
	if *given.seeds > 0 {
		m.limit = *given.seeds
	}
	if m.guards, err = regexp.Compile(*guardsLike); err != nil {
		t.Fatal(err)
	}
	only, err := regexp.Compile(*worldsLike)
	if err != nil {
		t.Fatal(err)
	}
	m.worlds = slices.DeleteFunc(slices.Clone(worlds), func(n Named) bool { return !only.MatchString(n.Name) })
	m.some = *guardsLike != "" || *worldsLike != ""
	m.collect()
	m.each(m.run)
	t.Log(m.table.count())
}

// mutants is one run of Mutants.
type mutants struct {
	t      *testing.T
	errorf func(format string, args ...any)
	file   string
	worlds []Named
	where  map[guard][]Named // the worlds that have seen a guard
	guards *regexp.Regexp
	some   bool // only some guards or worlds
	update bool // look for worlds
	limit  int  // schedules for each guard

	mu    sync.Mutex
	table table
}

// newFrom is the number of a world's schedules that make a missing guard a new one.
const newFrom = 3

// collect runs all worlds without mutants, to see their guards: many schedules to write the table, few to compare it.
func (m *mutants) collect() {
	m.where = map[guard][]Named{}
	if m.update {
		m.table.merge()
	}
	for _, n := range m.worlds {
		o := n.options().complete(m.t)
		if o.Seeds = max(o.Seeds/4, 20); m.update && !m.some {
			o.Seeds = max(200, 3*n.Options.Seeds)
		}
		o.seen = &guards{seen: map[guard]int{}}
		if f, _ := explore(m.t, o, n.World, *given.seed, o.Seeds, 0); f != nil {
			m.errorf("%s fails without a mutant: seed %d: %v\n%s", n.Name, f.seed, f.err, numbered(f.trace))
			continue
		}
		for _, g := range o.seen.list() {
			m.saw(g, n, o.seen.seen[g])
		}
	}
	if m.update {
		m.table.merge()
	}
	m.save()
}

// saw notes that a world has a guard, in some of its schedules.
func (m *mutants) saw(g guard, n Named, schedules int) {
	known := false
	for _, e := range m.table {
		if !e.gone && e.covers(g) {
			known = true
			if where := m.where[e.guard]; len(where) == 0 || where[len(where)-1].Name != n.Name {
				m.where[e.guard] = append(where, n)
			}
		}
	}
	const missing = "%s: a guard is missing, run this test with -update: %s\n\tin %s (%d schedules of world %s)"
	switch {
	case known:
	case m.update:
		m.table = append(m.table, &entry{guard: g})
		m.where[g] = []Named{n}
	case schedules >= newFrom:
		m.errorf(missing, m.file, g.op, g.kind, schedules, n.Name)
	default:
		m.t.Logf(missing, m.file, g.op, g.kind, schedules, n.Name)
	}
}

// save writes the table as far as it is known.
func (m *mutants) save() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.update {
		if err := m.table.write(m.file); err != nil {
			m.errorf("%v", err)
		}
	}
}

// each runs f for every guard of the table, on all cores.
func (m *mutants) each(f func(e *entry)) {
	var next atomic.Int64
	var shards sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		shards.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(m.table) {
					return
				}
				f(m.table[i])
			}
		})
	}
	shards.Wait()
}

func (m *mutants) run(e *entry) {
	switch {
	case e.gone:
		return
	case !m.guards.MatchString(e.op) && !m.guards.MatchString(e.kind), e.explained() && !m.some:
		return
	case e.reason == notYet && !m.update:
		return
	case e.world != "" && !slices.ContainsFunc(m.worlds, func(n Named) bool { return n.Name == e.world }) && m.some:
		return
	case e.world != "" && m.again(e):
		return
	case m.update && !m.some && len(m.where[e.guard]) == 0:
		m.remove(e)
		m.save()
	case m.update:
		m.search(e)
		m.save()
	case e.world != "":
		m.errorf("%s: world %s no longer fails without a guard: %s\n\tof %s\n\tfind another with -update",
			m.file, e.world, e.op, e.kind)
	case e.reason == "":
		m.errorf("%s: no world fails without a guard: %s\n\tof %s\n\twrite a world, or a reason into the table",
			m.file, e.op, e.kind)
	}
}

// again looks for the failure that the table names: first with its seed, then with as many others as a search may try:
// which goroutine runs first is not in the seed.
func (m *mutants) again(e *entry) bool {
	for _, n := range m.worlds {
		if n.Name != e.world {
			continue
		}
		for range 3 {
			if seed, _ := m.caught(n, e.guard, e.seed, 1); seed != 0 {
				return true
			}
		}
		seed, _ := m.caught(n, e.guard, 1, m.limit)
		if m.update && seed != 0 {
			m.set(e, n.Name, seed, "")
			m.save()
		}
		return seed != 0
	}
	return false
}

// search looks for a world that fails without the guard, in more and more schedules of each. It gives up worlds where
// the guard refuses nothing.
func (m *mutants) search(e *entry) {
	worlds := m.where[e.guard]
	if m.some && len(worlds) == 0 {
		worlds = m.worlds
	}
	mattered, ran := 0, 0
	for from, to := 0, 20; ran < m.limit && len(worlds) > 0; from, to = to, to*4 {
		var left []Named
		for _, n := range worlds {
			seed, effects := m.caught(n, e.guard, uint64(1+from), to-from)
			if seed != 0 {
				m.set(e, n.Name, seed, "")
				return
			}
			mattered += effects
			ran += to - from
			if effects > 0 || to < 80 {
				left = append(left, n)
			}
		}
		worlds = left
	}
	m.set(e, "", 0, e.reason)
	m.t.Logf("no world fails without a guard: %s\n\tof %s\n\tin %d schedules, in %d of which it would have refused",
		e.op, e.kind, ran, mattered)
}

// remove forgets a guard that no transaction has any more.
func (m *mutants) remove(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.gone = true
}

func (m *mutants) set(e *entry, world string, seed uint64, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.world, e.seed, e.reason = world, seed, reason
}

// caught is the first of some seeds with which the world fails without the guard; 0: none. mattered is the number of
// schedules in which the guard would have refused a request.
func (m *mutants) caught(n Named, g guard, seed uint64, count int) (found uint64, mattered int) {
	o := n.options().complete(m.t)
	o.mutant = &mutant{g}
	for s := seed; s < seed+uint64(count); s++ {
		out := inBubble(m.t, o, n.World, newExplorer(o, s))
		if out.ignored > 0 {
			mattered++
		}
		switch {
		case out.err == nil:
		case out.ignored > 0:
			return s, mattered
		default:
			m.errorf("%s fails without a mutant: seed %d: %v\n%s", n.Name, s, out.err, numbered(out.trace))
			return 0, mattered
		}
	}
	return 0, mattered
}
