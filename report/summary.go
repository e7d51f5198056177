package report

import (
	"fmt"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
	"muster/text"
)

// PlanCounts is the line of all counts. Tools may read it: its words and their order do not change.
func PlanCounts(p plan.Plan) string {
	n := counts(p)
	return fmt.Sprintf("Plan: %d to create, %d to replace, %d to delete, %d to update; "+
		"%d blocked, %d left running, %d unchanged.",
		n[plan.Create], n[plan.Replace], n[plan.Delete], n[plan.Update],
		n[plan.Blocked], n[plan.LeftRunning], n[plan.None])
}

// ChangeCounts counts what apply would do, by action: "3 to create, 1 to update".
func ChangeCounts(p plan.Plan) string {
	n := counts(p)
	var parts []string
	for _, a := range plan.Actions() {
		if a.Changes() && n[a] > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n[a], a))
		}
	}
	return strings.Join(parts, ", ")
}

func counts(p plan.Plan) map[plan.Action]int {
	n := map[plan.Action]int{}
	for _, r := range p.Rows {
		n[r.Action()]++
	}
	return n
}

// summary writes the items that need attention, notes, what the user can do next, and the counts.
func (p *page) summary(pl plan.Plan, items []item, o Options) {
	shown := slices.DeleteFunc(slices.Clone(items), func(it item) bool { return !attention(it.row) })
	if len(shown) == 0 {
		p.wrap(plain, noChanges(pl), 0)
		p.newline()
	}
	width := 0
	for _, it := range shown {
		width = max(width, len(it.word))
	}
	for _, it := range shown {
		p.printf("  %-*s  ", width, it.word)
		p.wrap(plain, it.summary(), 2+width+2)
		p.newline()
	}
	for _, note := range append(notes(pl, o), o.Notes...) {
		if strings.Contains(note, "muster ") { // a command, which is not wrapped
			p.steps(note, 0)
			continue
		}
		p.wrap(plain, note, 2)
		p.newline()
	}
	p.next(o.Next)
	p.countsLine(PlanCounts(pl))
}

// noChanges is the sentence for a plan in which no row needs attention. It counts the unchanged rows by status. A kind
// lists its statuses in the order in which they are tried; the counts are in the reverse order, so that running comes
// first.
func noChanges(p plan.Plan) string {
	byStatus := map[resource.Status]int{}
	var kinds []resource.Kind
	var same []plan.Row
	for _, r := range p.Rows {
		if r.Action() == plan.None {
			byStatus[r.Old.Status()]++
			kinds, same = append(kinds, r.Kind()), append(same, r)
		}
	}
	var parts []string
	for _, s := range slices.Backward(statusesOf(kinds)) {
		if byStatus[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", byStatus[s], s))
		}
	}
	switch len(same) {
	case 0:
		return noJobs(p)
	case 1:
		return "No changes. " + countRows(same) + " matches its declaration (" + parts[0] + ")."
	}
	return fmt.Sprintf("No changes. %s match their declarations (%s).", countRows(same), strings.Join(parts, ", "))
}

// noJobs is the sentence for a plan without jobs. It says where was searched, since there may be jobs elsewhere.
func noJobs(p plan.Plan) string {
	switch {
	case p.Partial:
		return "No changes. --only or --skip left out every job of stack " + p.Stack + "."
	case len(p.Roots) == 0:
		return "No changes. No job is declared, and no root was searched: add roots = [...] to the muster block."
	}
	return "No changes. No job is declared, and none of stack " + p.Stack + " was found below " +
		strings.Join(p.Roots, ", ") + ". Other roots are searched if the muster block names them: roots = [...]"
}

// notes lists what the rows that are shown do not say.
func notes(p plan.Plan, o Options) []string {
	var degraded, degradedKinds, unreadable []string
	unmanaged := 0
	for _, r := range p.Rows {
		switch {
		case r.Action() == plan.None && r.Old.IsDegraded():
			degraded = append(degraded, r.Address())
			degradedKinds = append(degradedKinds, "unchanged "+kindName(r))
		case r.Action() == plan.Unmanaged && r.Old.Class() == resource.Unreadable:
			unreadable = append(unreadable, r.Address())
			unmanaged++
		case r.Action() == plan.Unmanaged:
			unmanaged++
		}
	}
	var notes []string
	if len(degraded) > 0 {
		notes = append(notes, text.CountEach(degradedKinds)+are(len(degraded))+"degraded: "+names(degraded))
	}
	if unmanaged > 0 && !o.All {
		which := text.Plural(unmanaged, "znode is", "znodes are")
		notes = append(notes, which+" unmanaged: not this stack's, never changed (--all lists them)")
	}
	if len(unreadable) > 0 {
		which := text.Count(len(unreadable), "unmanaged znode") + " could not be read: " + names(unreadable)
		explain := "muster explain " + text.ShellWord(unreadable[0]) + " lists what is there"
		notes = append(notes, which+"; "+o.Given.Paste(explain))
	}
	return notes
}
