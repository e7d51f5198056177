package reconcile

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"muster/plan"
	"muster/text"
	"muster/zkstate/znode"
)

// Word is a kind of change that a reconciler may make if it is allowed.
type Word string

// The words of --allow.
const (
	Create  Word = "create"
	Update  Word = "update"
	Repair  Word = "repair"
	Replace Word = "replace"
	Restart Word = "restart" // it throws away the ids of processes that may come back
	Delete  Word = "delete"
)

// Words lists all of them.
func Words() []Word { return []Word{Create, Update, Repair, Replace, Restart, Delete} }

// DefaultAllow are those that take nothing away.
func DefaultAllow() []Word { return []Word{Create, Update, Repair} }

// wordOf is the word that a change needs; empty: no reconciler makes it. It cannot tell a missing job that removes
// itself from one that has finished. The other changes undo what a person did, or what another stack does.
func wordOf(r plan.Row) Word {
	switch r.Reason {
	case plan.NotThere:
		if !r.New.Policy().RemovesSelf {
			return Create
		}
	case plan.MutableDiffers:
		return Update
	case plan.IsDamaged, plan.RecordEdited:
		return Repair
	case plan.ReadyDiffers, plan.CompletedDone, plan.DamagedLeftover:
		return Replace
	case plan.StaleLeftover:
		return Restart
	case plan.Undeclared:
		return Delete
	}
	return ""
}

// Rules say what a reconciler may do.
type Rules struct {
	Allow                 []Word
	MaxDelete, MaxReplace int // in a pass, and in an hour
	RestartAfter          time.Duration
}

// contestedAfter is how many changes of one resource within znode.ChangeWindow are too many: somebody undoes them.
const contestedAfter = 3

// memory is what a reconciler has seen in this session and in passes before. Another one begins anew.
type memory struct {
	idle  map[string]idle // by path, of those whose members may come back
	tries map[string]try  // by path, of those that have failed
}

type idle struct {
	generation string
	since      time.Time
}

type try struct {
	failed int
	next   time.Time
}

func newMemory() *memory { return &memory{map[string]idle{}, map[string]try{}} }

// note notes which rows of a plan have nobody live, since when.
func (m *memory) note(p plan.Plan, now time.Time) {
	before := m.idle
	m.idle = map[string]idle{}
	for _, r := range p.Rows {
		if !r.Stale() || r.Old.Live > 0 {
			continue
		}
		one := idle{since: now}
		if r.Old.Record != nil {
			one.generation = r.Old.Record.Generation
		}
		if b, ok := before[r.Path]; ok && b.generation == one.generation {
			one = b
		}
		m.idle[r.Path] = one
	}
	changes := map[string]bool{}
	for _, r := range p.Changes() {
		changes[r.Path] = true
	}
	maps.DeleteFunc(m.tries, func(at string, _ try) bool { return !changes[at] })
}

// ended notes what became of a change.
func (m *memory) ended(at string, failed bool, now time.Time) {
	if !failed {
		delete(m.tries, at)
		return
	}
	t := m.tries[at]
	t.failed++
	t.next = now.Add(min(time.Second<<min(t.failed-1, 20), maxRetry))
	m.tries[at] = t
}

const maxRetry = 10 * time.Minute

// Waiting is a change that a reconciler does not make.
type Waiting struct {
	Row  plan.Row
	Held bool   // by a person, or since it is contested
	Why  string // a sentence
	Next string // a command that makes it, or ends the wait; empty: there is none
}

// choice is what a pass does with a plan.
type choice struct {
	do      []plan.Row
	waiting []Waiting
	again   time.Time    // when to choose again, though nothing has changed; zero: not
	shut    map[Word]int // guards that close now, and how many changes they have counted
}

// Judge says what policies deny of a plan: all of it and why, or some rows and why, by their paths. A nil one denies
// nothing.
type Judge func(plan.Plan) (all string, rows map[string]string)

// judgeEvery is when policies are asked again though nothing has changed: what they deny may depend on the time.
const judgeEvery = time.Minute

// denied is why some of the rows that could be changed are not, by their paths. Of a plan that is denied only repairs
// are made. Without what is denied the rest is another plan, so the policies are asked about that again.
func (judge Judge) denied(p plan.Plan, rows []plan.Row) map[string]string {
	if judge == nil || len(rows) == 0 {
		return nil
	}
	const most = 10 // rounds
	denied := map[string]string{}
	left, all := rows, ""
	for round, more := 0, true; more; round++ {
		var byRow map[string]string
		all, byRow = judge(withOnly(p, left))
		maps.Copy(denied, byRow)
		n := len(left)
		left = slices.DeleteFunc(slices.Clone(left), func(r plan.Row) bool { return denied[r.Path] != "" })
		more = len(left) < n && len(left) > 0
		if more && round == most {
			all, more = "the policies deny one row after the other", false
		}
	}
	for _, r := range rows {
		if all != "" && wordOf(r) != Repair && denied[r.Path] == "" {
			denied[r.Path] = all
		}
	}
	return denied
}

// withOnly is a plan of which these rows are changed. What else would be changed stays as it is recorded.
func withOnly(p plan.Plan, rows []plan.Row) plan.Plan {
	changed := map[string]bool{}
	for _, r := range rows {
		changed[r.Path] = true
	}
	all := p.Rows
	p.Rows = nil
	for _, r := range all {
		if r.Action().Changes() && !changed[r.Path] {
			if r.Old == nil || r.Old.Record == nil {
				continue
			}
			r.New, r.Reason = r.Old.Record.Declaration, plan.Equal
		}
		p.Rows = append(p.Rows, r)
	}
	return p
}

// choose chooses what a pass does. kept is what people said; superseded names the apply of a person that is left as it
// is; empty: none.
func (r Rules) choose(
	p plan.Plan, kept *znode.Reconcile, m *memory, superseded string, judge Judge, now time.Time,
) choice {
	c := choice{shut: map[Word]int{}}
	var allowed []plan.Row
	byWord := map[Word][]plan.Row{}
	for _, row := range p.Changes() {
		word := wordOf(row)
		w := Waiting{Row: row, Next: "muster apply"}
		due := m.tries[row.Path].next
		if left := r.grace(row, word, m); left.After(due) {
			due = left
		}
		hold := kept.HeldAt(row.Path, now)
		switch {
		case word == "":
			w.Why = "only an apply does this: " + row.Because()
		case hold != nil:
			w.Held, w.Why = true, hold.String()
			w.Next = "muster resume --stack " + text.ShellWord(p.Stack) + " " + text.ShellWord(row.Name())
			c.wake(hold.Until)
		case superseded != "" && word != Repair:
			w.Why, w.Next = superseded, "muster resume --stack "+text.ShellWord(p.Stack)
		case !slices.Contains(r.Allow, word):
			w.Why = fmt.Sprintf("it is a %s, which --allow does not name", word)
		case row.Deletes() && !slices.Contains(r.Allow, Delete):
			w.Why = "it deletes what its members have saved, and --allow does not name " + string(Delete)
		case slices.Contains(p.Unlisted, path.Dir(row.Path)):
			w.Why, w.Next = path.Dir(row.Path)+" cannot be listed", ""
		case row.Deletes() && (len(p.Unlisted) > 0 || p.Unindexed != ""):
			w.Why, w.Next = "not all roots of the stack could be read", ""
		case now.Before(due):
			w.Why, w.Next = "it is tried again at "+due.UTC().Format(time.TimeOnly), ""
			if m.tries[row.Path].failed == 0 {
				w.Why = "its members may come back until " + due.UTC().Format(time.TimeOnly)
			}
			c.wake(due)
		default:
			allowed = append(allowed, row)
			continue
		}
		c.waiting = append(c.waiting, w)
	}
	denied := judge.denied(p, allowed)
	for _, row := range allowed {
		if why := denied[row.Path]; why != "" {
			c.waiting = append(c.waiting, Waiting{Row: row, Why: why})
			c.wake(now.Add(judgeEvery))
			continue
		}
		word := wordOf(row)
		byWord[guardOf(row, word)] = append(byWord[guardOf(row, word)], row)
	}
	for word, rows := range byWord {
		most, counted := r.guard(word, kept)
		shut, isShut := kept.Shut[string(word)]
		_, meant := kept.Meant[string(word)]
		switch {
		case most < 0 || meant:
		case isShut && shut.Is(now), len(rows)+counted > most:
			if !isShut {
				c.shut[word] = len(rows) + counted
			}
			for _, row := range rows {
				c.waiting = append(c.waiting, Waiting{
					Row: row, Next: "muster resume --stack " + text.ShellWord(p.Stack),
					Why: fmt.Sprintf("more than %d would be %sd within an hour", most, word),
				})
			}
			continue
		}
		c.do = append(c.do, rows...)
	}
	if len(c.do) < len(allowed)-len(denied) { // a guard keeps some back: what is left is another plan
		denied = judge.denied(p, c.do)
		c.do = slices.DeleteFunc(c.do, func(r plan.Row) bool {
			why := denied[r.Path]
			if why != "" {
				c.waiting = append(c.waiting, Waiting{Row: r, Why: why})
				c.wake(now.Add(judgeEvery))
			}
			return why != ""
		})
	}
	slices.SortFunc(c.do, plan.CompareRows)
	slices.SortFunc(c.waiting, func(a, b Waiting) int { return plan.CompareRows(a.Row, b.Row) })
	return c
}

func (c *choice) wake(at time.Time) {
	if !at.IsZero() && (c.again.IsZero() || at.Before(c.again)) {
		c.again = at
	}
}

// grace is when a change that throws away what members may come back to is due.
func (r Rules) grace(row plan.Row, word Word, m *memory) time.Time {
	one, isIdle := m.idle[row.Path]
	if !isIdle {
		return time.Time{}
	}
	grace := time.Duration(row.Grace())
	if word == Restart {
		grace = max(grace, r.RestartAfter)
	}
	return one.since.Add(grace)
}

// guardOf is the word whose guard counts a change; those of the others have none.
func guardOf(row plan.Row, word Word) Word {
	switch {
	case row.Deletes():
		return Delete
	case word == Restart:
		return Replace
	}
	return word
}

// guard is how many changes a guard lets through in an hour, and how many there were; -1: it has no limit.
func (r Rules) guard(word Word, kept *znode.Reconcile) (most, counted int) {
	switch word {
	case Delete:
		return r.MaxDelete, len(kept.Deleted)
	case Replace:
		return r.MaxReplace, len(kept.Replaced)
	}
	return -1, 0
}

// terminatedEnds lists the paths whose termination a person has ended by an apply: what was terminated is there again.
func terminatedEnds(p plan.Plan, kept *znode.Reconcile) (ended []string) {
	for _, r := range p.Rows {
		h, held := kept.Held[r.Path]
		if held && r.Old != nil && r.Old.Record != nil && h.EndedBy(r.Old.Record, r.Old.RecordVersion) {
			ended = append(ended, r.Path)
		}
	}
	return ended
}
