package sim

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/dev/zkmodel"
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
	if *givenSeeds > 0 {
		m.limit = *givenSeeds
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
		if f, _ := exploreSeeds(m.t, o, n.World, 0); f != nil {
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
	onAllCores(func(i int) bool {
		if i < len(m.table) {
			f(m.table[i])
		}
		return i < len(m.table)
	})
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
		m.mu.Lock()
		e.gone = true // no transaction has it any more
		m.mu.Unlock()
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
	i := slices.IndexFunc(m.worlds, func(n Named) bool { return n.Name == e.world })
	if i < 0 {
		return false
	}
	for range 3 {
		if seed, _ := m.caught(m.worlds[i], e.guard, e.seed, 1); seed != 0 {
			return true
		}
	}
	seed, _ := m.caught(m.worlds[i], e.guard, 1, m.limit)
	if m.update && seed != 0 {
		m.set(e, e.world, seed, "")
		m.save()
	}
	return seed != 0
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

// A transaction's kind is the list of its operations, each once, with normalised paths: <p> is the name of a process,
// <seq> the number of a sequential znode, <n> another number and <id> a long id. @v marks an operation that names a
// version: a guard, because the server refuses the transaction if the version has changed. Options.Kind may give
// several kinds one name.

// guard is one guard of a kind of transactions.
type guard struct{ kind, op string }

// covers reports whether g stands for o too: for the same guard of a transaction that does more. Several changes in one
// transaction have the guards of each. A transaction that only checks stands for itself.
func (g guard) covers(o guard) bool {
	if g.op != o.op || g.kind == o.kind {
		return g == o
	}
	all := strings.Split(o.kind, ", ")
	writes := false
	for op := range strings.SplitSeq(g.kind, ", ") {
		if !slices.Contains(all, op) {
			return false
		}
		writes = writes || !strings.HasPrefix(op, "check ")
	}
	return writes
}

// guards counts the schedules in which each guard was seen. Schedules that run at the same time share it.
type guards struct {
	mu   sync.Mutex
	seen map[guard]int
}

func (g *guards) add(w *World, t *zkmodel.Txn) {
	label := labelOf(t.Ops)
	kind := w.kind(label)
	if w.options.Own != nil && !w.options.Own(kind) {
		return
	}
	for _, op := range strings.Split(w.operations(label), ", ") {
		if one := (guard{kind, op}); isGuard(op) && !w.guarded[one] {
			w.guarded[one] = true
			g.mu.Lock()
			g.seen[one]++
			g.mu.Unlock()
		}
	}
}

// list begins with the shortest kinds: they may stand for others.
func (g *guards) list() []guard {
	all := slices.Collect(maps.Keys(g.seen))
	slices.SortFunc(all, func(a, b guard) int {
		return cmp.Or(strings.Count(a.kind, ", ")-strings.Count(b.kind, ", "), a.compare(b))
	})
	return all
}

func (g guard) compare(o guard) int {
	return cmp.Or(
		strings.Compare(g.kind, o.kind),
		strings.Index(g.kind, g.op)-strings.Index(o.kind, o.op),
		strings.Compare(g.op, o.op), // Options.Kind has named it
	)
}

// isGuard reports whether a server can be told to ignore an operation's version. Of a check it is also that the znode
// exists.
func isGuard(op string) bool { return strings.HasSuffix(op, "@v") || strings.HasPrefix(op, "check ") }

// mutant makes the server ignore a guard.
type mutant struct{ guard }

// concerns reports whether a request has the mutant's guard.
func (m *mutant) concerns(w *World, label string) bool {
	concerned, known := w.concerned[label]
	if !known {
		concerned = m.covers(guard{w.kind(label), m.op})
		w.concerned[label] = concerned
	}
	return concerned
}

// refuses reports whether the mutant's guard would make the server refuse a request now. Only such a request shows what
// the guard is for.
func (m *mutant) refuses(w *World, request []byte) bool {
	_, _, ops := zkmodel.ReadRequest(request[4:])
	for _, op := range ops {
		if w.normalised(opOf(op)) == m.op && w.refuses(m.op, op.Path, op.Version) {
			return true
		}
	}
	return false
}

// refuses reports whether an operation would be refused because of its guard. Without the znode, only a check is.
func (w *World) refuses(op, path string, version int32) bool {
	_, stat, there := w.server.Get(path)
	if !there {
		return strings.HasPrefix(op, "check ")
	}
	return version != -1 && stat.Version != version
}

func (w *World) ignores(t *zkmodel.Txn, op int) bool {
	m := w.options.mutant
	if m == nil || w.preparing || !m.concerns(w, labelOf(t.Ops)) || w.normalised(opOf(t.Ops[op])) != m.op {
		return false
	}
	if w.refuses(m.op, t.Ops[op].Path, t.Ops[op].Version) {
		w.ignored++
	}
	return true
}

// labelOf is the label of a request, and of the transaction that it becomes.
func labelOf(ops []zkmodel.Op) string {
	texts := make([]string, len(ops))
	for i, op := range ops {
		texts[i] = opOf(op)
	}
	return strings.Join(texts, ", ")
}

// opOf describes an operation: # stands for the number of a new znode, and @v for a version.
func opOf(op zkmodel.Op) string {
	if op.Type == zkmodel.OpClose {
		return "end of a session"
	}
	text := op.Type.String() + " " + readable(op.Path)
	if op.Flags&zkmodel.Sequential != 0 {
		text = op.Type.String() + " " + readable(numberAtEnd.ReplaceAllString(op.Path, "")) + "#"
	}
	if op.Version != -1 && (op.Type == zkmodel.OpCheck || op.Type == zkmodel.OpSetData || op.Type == zkmodel.OpDelete) {
		text += "@v"
	}
	return text
}

// kind of the transaction whose request has this label.
func (w *World) kind(label string) string {
	if k, ok := w.options.kinds.Load(label); ok {
		return k.(string)
	}
	k := w.operations(label)
	if w.options.Kind != nil {
		k = w.options.Kind(k)
	}
	w.options.kinds.Store(label, k)
	return k
}

// operations are those of a label, normalised, each once.
func (w *World) operations(label string) string {
	var ops []string
	for _, op := range strings.Split(label, ", ") {
		if op = w.normalised(op); !slices.Contains(ops, op) {
			ops = append(ops, op)
		}
	}
	return strings.Join(ops, ", ")
}

var (
	numberAtEnd = regexp.MustCompile(`[0-9]{10}$`)
	sequence    = regexp.MustCompile(`[0-9]{10}\b|#`)
	number      = regexp.MustCompile(`\b[0-9]+\b`)
)

// normalised replaces what differs between transactions of one kind.
func (w *World) normalised(op string) string {
	if known, ok := w.options.normal.Load(op); ok {
		return known.(string)
	}
	name, path, _ := strings.Cut(op, " ")
	if w.options.Path != nil {
		path = w.options.Path(path)
	}
	path = number.ReplaceAllString(sequence.ReplaceAllString(path, "<seq>"), "<n>")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		for _, p := range w.procs {
			if rest, ok := strings.CutPrefix(part, p.name); ok && (rest == "" || strings.HasPrefix(rest, ".") ||
				strings.HasPrefix(rest, "@")) {
				parts[i] = "<p>" + rest
			}
		}
	}
	normal := name + " " + strings.Join(parts, "/")
	w.options.normal.Store(op, normal)
	return normal
}

// table is the table of guards in a file. A kind stands alone in a line. Its guards follow, each with a world that
// needs it and the seed of a schedule that shows so; or with - and the reason why no world does.
type table []*entry

type entry struct {
	guard
	world  string
	seed   uint64
	reason string
	gone   bool
}

// notYet is the reason of a guard for which no world was found, and which is not shown to be needless.
const notYet = "?"

// explained reports whether it is known why no world needs the guard.
func (e *entry) explained() bool { return e.reason != "" && e.reason != notYet }

const tableHead = `# The guards of all transactions in this package's worlds, written by: go test -run Mutants -update
# Below each kind of transaction stand its guards, and for each the world that fails when the server ignores the guard,
# and after how many schedules it does (the seed). It stands for all transactions that do more than this one. A guard
# that no world needs has - and the reason why it stays, or ? if a world is still looked for.
`

func (t table) count() string {
	all, caught, explained := 0, 0, 0
	for _, e := range t {
		switch {
		case e.gone:
			continue
		case e.world != "":
			caught++
		case e.explained():
			explained++
		}
		all++
	}
	return fmt.Sprintf("%d guards: %d that a world needs, %d that stay for another reason, %d still looked for (%s)",
		all, caught, explained, all-caught-explained, notYet)
}

// merge removes entries for which others stand. What was found for them is kept.
func (t table) merge() {
	for _, e := range t {
		for _, o := range t {
			if e == o || e.gone || o.gone || !e.covers(o.guard) {
				continue
			}
			if o.gone = true; e.world == "" && o.world != "" {
				e.world, e.seed, e.reason = o.world, o.seed, ""
			}
		}
	}
}

func (t table) write(file string) error {
	var b strings.Builder
	b.WriteString(tableHead)
	kind := ""
	for _, e := range slices.SortedFunc(slices.Values(t), func(a, b *entry) int { return a.compare(b.guard) }) {
		if e.gone {
			continue
		}
		if e.kind != kind {
			kind = e.kind
			fmt.Fprintf(&b, "\n%s\n", kind)
		}
		if e.world != "" {
			fmt.Fprintf(&b, "\t%s | %s | %d\n", e.op, e.world, e.seed)
		} else {
			fmt.Fprintf(&b, "\t%s | - | %s\n", e.op, e.reason)
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func readTable(file string) (table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var t table
	kind := ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, "\t"):
			kind = line
		default:
			e := &entry{guard: guard{kind: kind}}
			cells := strings.SplitN(line[1:], " | ", 3)
			if len(cells) != 3 {
				return nil, fmt.Errorf("%s: not a guard, a world and a seed: %q", file, line)
			}
			if e.op = cells[0]; cells[1] == "-" {
				e.reason = cells[2]
			} else if _, err := fmt.Sscan(cells[2], &e.seed); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, line, err)
			} else {
				e.world = cells[1]
			}
			t = append(t, e)
		}
	}
	return t, nil
}
