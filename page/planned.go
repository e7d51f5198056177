package page

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/text"
	"muster/view"
	"muster/zkstate/zkconn"
)

// Configuration is a configuration that was read.
type Configuration struct {
	Want    plan.Want // if there is a Problem: what was read before
	Roots   []string  // in which something is declared, as in Want
	Problem string    // why the files cannot be read now; empty: they were
	Command string    // shows the plan
}

// How often the files of the configuration are looked at, and how often a plan is made at most: it has a tenth of the
// time of a processor.
const (
	configurationEvery = 2 * time.Second
	planEvery          = time.Second
)

// Planned is what a plan of the configuration would do with what was read. It is not changed once it is made.
type Planned struct {
	Configuration
	rows    map[string]plan.Row // by path: what apply would change, or what keeps it from that
	same    map[string]bool     // paths of what is as it is declared
	missing []plan.Row          // by path
}

// keepPlan makes a plan whenever the configuration or what was read has changed, until ctx ends. It reads nothing of
// ZooKeeper.
func (k *keeper) keepPlan(ctx context.Context) {
	var now *Configuration
	var planned <-chan struct{} // closed when the state is another one than that of the last plan
	for ctx.Err() == nil {
		next := k.cfg.Configuration()
		if next != nil {
			now = next
			if len(k.cfg.Also) > 0 && len(now.Roots) > 0 {
				k.also.put(now.Roots)
			}
		}
		l, _, linkChanged := k.link.now()
		var changed <-chan struct{}
		if l != nil && now != nil {
			var state plan.State
			var read bool
			if state, read, changed = l.state.now(); read && (next != nil || changed != planned) {
				start := time.Now()
				k.planned.put(newPlanned(*now, state))
				planned = changed
				zkconn.Pause(ctx, max(planEvery, 10*time.Since(start)))
			}
		}
		timer := time.NewTimer(configurationEvery)
		select {
		case <-linkChanged:
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func newPlanned(c Configuration, state plan.State) *Planned {
	p := &Planned{Configuration: c, rows: map[string]plan.Row{}, same: map[string]bool{}}
	for _, r := range plan.Diff(c.Want, state).Rows {
		switch r.Action() {
		case plan.Unmanaged:
		case plan.None:
			p.same[r.Path] = true
		case plan.Create:
			p.missing = append(p.missing, r)
		default:
			p.rows[r.Path] = r
		}
	}
	slices.SortFunc(p.missing, func(a, b plan.Row) int { return cmp.Compare(a.Path, b.Path) })
	return p
}

// Words of the plan, besides its actions.
const (
	inSync    = "in sync"
	isMissing = string(resource.StatusMissing)
)

// word is what the plan does with what is at a path, for a column; a dash: nothing is declared there.
func (p *Planned) word(at string) string {
	if p == nil {
		return ""
	}
	r, differs := p.rows[at]
	switch {
	case differs && changesFields(r):
		return text.Count(len(r.Changes()), "change")
	case differs:
		return string(r.Action())
	case p.same[at]:
		return inSync
	}
	return "–"
}

func changesFields(r plan.Row) bool { return r.Action() == plan.Update && len(r.Changes()) > 0 }

// counted is the word with which the section about the configuration counts e; empty: it is not declared.
func (p *Planned) counted(e entry) string {
	r, differs := p.rows[e.path()]
	switch {
	case e.found == nil:
		return isMissing
	case differs && changesFields(r):
		return "to change"
	case differs && r.Action().Changes():
		return "to " + string(r.Action())
	case differs:
		return string(r.Action())
	case p.same[e.path()]:
		return inSync
	}
	return ""
}

// isShown reports whether what is at a path would be on the board if it was there.
func (b *Board) isShown(at string) bool {
	root := path.Dir(at)
	return slices.Contains(b.Roots, root) && !slices.Contains(b.Unlisted, root)
}

// missing are the rows of what is declared and not there.
func (b *Board) missing() (all []plan.Row) {
	if b.Planned == nil {
		return nil
	}
	for _, r := range b.Planned.missing {
		if _, there := b.resource(r.Path); !there && b.isShown(r.Path) {
			all = append(all, r)
		}
	}
	return all
}

// entry is one line of the overview: what is there, or what is declared and missing.
type entry struct {
	row
	stack string
	found *view.Resource       // nil: it is missing
	known resource.Declaration // nil: neither declared nor recorded
}

func (b *Board) entries() []entry {
	all := make([]entry, 0, len(b.Resources))
	for i := range b.Resources {
		j := &b.Resources[i]
		e := entry{row: rowOf(j), found: j}
		e.Plan = b.Planned.word(j.Path)
		if rec := j.Observed.Record; rec != nil {
			e.stack, e.known = rec.Stack, rec.Declaration
		}
		all = append(all, e)
	}
	missing := b.missing()
	for _, r := range missing {
		e := entry{row: rowAt(r.Path), stack: b.Planned.Want.Stack, known: r.New}
		e.Kind, e.Status, e.live, e.Plan = r.Kind().Name, resource.StatusMissing, -1, isMissing
		all = append(all, e)
	}
	if len(missing) > 0 {
		slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.path(), b.path()) })
	}
	return all
}

// planView is the section about the configuration.
type planView struct {
	Stack, Problem word
	Says           string
	Step           *step // nil: there is nothing to do
}

// plan says what keeps the configuration from being read, and how much differs from it.
func (p *painter) plan(all []entry) {
	planned := p.board.Planned
	if planned == nil {
		return
	}
	count := map[string]int{}
	for _, e := range all {
		count[planned.counted(e)]++
	}
	var parts []string
	for _, word := range []string{
		isMissing, "to change", "to update", "to replace", "to delete", string(plan.Blocked), string(plan.LeftRunning),
		inSync,
	} {
		if n := count[word]; n > 0 {
			parts = append(parts, text.Thousands(n)+" "+word)
		}
	}
	v := planView{Stack: word(planned.Want.Stack), Problem: word(planned.Problem), Says: "nothing is declared"}
	if len(parts) > 0 {
		v.Says = strings.Join(parts, ", ")
	}
	if len(all) > count[inSync]+count[""] {
		v.Step = &step{Command: word(planned.Command), After: " shows what apply would do"}
	}
	p.add(mainSlot, "plan", v)
}

// planOf shows on the page of a resource what a plan does with it, unless that is nothing.
func (p *painter) planOf(at string) {
	if p.board.Planned == nil {
		return
	}
	if r, ok := p.board.Planned.rows[at]; ok {
		next := step{Command: word(p.board.Planned.Command)}
		if proceed := r.Proceed(); proceed != "" {
			next = splitStep(proceed)
		}
		v := struct {
			plan.Row
			Word    string
			Changes []resource.Change
			Next    step
		}{r, p.board.Planned.word(at), r.Changes(), next}
		p.add(mainSlot, "planned", v)
	}
}

// planOrder orders the words of the column: what differs comes first.
func planOrder(word string) int { return slices.Index([]string{inSync, "–"}, word) }
