package sim

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"muster/dev/zkmodel"
)

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
	kind := w.kind(labelOf(t))
	if w.options.Own != nil && !w.options.Own(kind) {
		return
	}
	for _, op := range strings.Split(w.operations(labelOf(t)), ", ") {
		if one := (guard{kind, op}); isGuard(op) && !w.guarded[one] {
			if w.guarded == nil {
				w.guarded = map[guard]bool{}
			}
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
	if d := strings.Compare(g.kind, o.kind); d != 0 {
		return d
	}
	if d := strings.Index(g.kind, g.op) - strings.Index(o.kind, o.op); d != 0 {
		return d
	}
	return strings.Compare(g.op, o.op) // Options.Kind has named it
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
		if w.concerned == nil {
			w.concerned = map[string]bool{}
		}
		concerned = m.covers(guard{w.kind(label), m.op})
		w.concerned[label] = concerned
	}
	return concerned
}

// refuses reports whether the mutant's guard would make the server refuse a request now. Only such a request shows what
// the guard is for.
func (m *mutant) refuses(w *World, request []byte) bool {
	r := reader{request[4:]}
	r.skip(4)
	for _, op := range operations(zkmodel.OpType(r.int32()), &r) {
		if w.normalised(op.String()) == m.op && w.refuses(m.op, op.path, op.version) {
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
	if m == nil || w.preparing || !m.concerns(w, labelOf(t)) || w.normalised(opOf(t.Ops[op])) != m.op {
		return false
	}
	if w.refuses(m.op, t.Ops[op].Path, t.Ops[op].Version) {
		w.ignored++
	}
	return true
}

// labelOf is the same for a transaction as the label of its request.
func labelOf(t *zkmodel.Txn) string {
	ops := make([]string, len(t.Ops))
	for i, op := range t.Ops {
		ops[i] = opOf(op)
	}
	return strings.Join(ops, ", ")
}

func opOf(op zkmodel.Op) string {
	if op.Type == zkmodel.OpClose {
		return "end of a session"
	}
	path, sequential := op.Path, op.Flags&zkmodel.Sequential != 0
	if sequential {
		path = numberAtEnd.ReplaceAllString(path, "")
	}
	versioned := op.Version != -1 && (op.Type == zkmodel.OpCheck || op.Type == zkmodel.OpSetData ||
		op.Type == zkmodel.OpDelete)
	return opText(op.Type, readable(path), sequential, versioned)
}

// kind of the transaction whose request has this label.
func (w *World) kind(label string) string {
	if k, ok := w.kinds[label]; ok {
		return k
	}
	k := w.operations(label)
	if w.options.Kind != nil {
		k = w.options.Kind(k)
	}
	if w.kinds == nil {
		w.kinds = map[string]string{}
	}
	w.kinds[label] = k
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
	return name + " " + strings.Join(parts, "/")
}
