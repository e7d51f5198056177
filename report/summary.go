package report

import (
	"fmt"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
	"muster/text"
)

// Summary is the line of all counts, in an order and with words that do not change: tools may read it.
func Summary(p plan.Plan) string {
	n := counts(p)
	return fmt.Sprintf("Plan: %d to create, %d to replace, %d to delete, %d to update; %d blocked, %d left running, %d unchanged.",
		n[plan.Create], n[plan.Replace], n[plan.Delete], n[plan.Update], n[plan.Blocked], n[plan.LeftRunning], n[plan.None])
}

func counts(p plan.Plan) map[plan.Action]int {
	n := map[plan.Action]int{}
	for _, r := range p.Rows {
		n[r.Action()]++
	}
	return n
}

// summary writes the counts, the names below them, and what else a reader should know.
func (p *page) summary(pl plan.Plan, o Options) {
	n := counts(pl)
	quiet := true
	width := 0
	for _, a := range plan.Actions()[:6] {
		if n[a] > 0 {
			quiet = false
			width = max(width, len(a))
		}
	}
	if quiet {
		p.wrap(plain, noChanges(pl), 0)
		p.newline()
	}
	p.countsLine(Summary(pl))
	for _, r := range pl.Rows {
		if attention(r) {
			p.printf("  %-*s  %s", width, r.Action(), r.Address())
			p.newline()
		}
	}
	for _, note := range notes(pl, o) {
		p.wrap(plain, note, 2)
		p.newline()
	}
}

// noChanges is the sentence for a plan in which nothing is to be done or looked at.
func noChanges(p plan.Plan) string {
	byStatus := map[resource.Status]int{}
	var order []resource.Status // the liveliest first
	n := 0
	for _, r := range p.Rows {
		if r.Action() != plan.None {
			continue
		}
		if kind := r.Kind(); !slices.Contains(order, r.Old.Status()) {
			order = append(slices.DeleteFunc(order, func(s resource.Status) bool { return slices.Contains(kind.Statuses, s) }),
				backward(kind.Statuses)...)
		}
		byStatus[r.Old.Status()]++
		n++
	}
	var parts []string
	for _, s := range order {
		if byStatus[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", byStatus[s], s))
		}
	}
	switch n {
	case 0:
		return nothing(p)
	case 1:
		return "No changes. 1 job matches its declaration (" + parts[0] + ")."
	}
	return fmt.Sprintf("No changes. %d jobs match their declarations (%s).", n, strings.Join(parts, ", "))
}

// backward is all from the last to the first.
func backward[T any](all []T) []T {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// nothing is the sentence for a plan without a job, which is no proof that there is none.
func nothing(p plan.Plan) string {
	switch {
	case p.Partial:
		return "No changes. --only or --skip left out every job of stack " + p.Stack + "."
	case len(p.Roots) == 0:
		return "No changes. No job is declared, and no root was searched: add roots = [...] to the muster block."
	}
	return "No changes. No job is declared, and none of stack " + p.Stack + " was found below " + strings.Join(p.Roots, ", ") +
		". Other roots are searched if the muster block names them: roots = [...]"
}

// notes are what the rows shown do not tell.
func notes(p plan.Plan, o Options) []string {
	var degraded, unreadable []string
	unmanaged := 0
	for _, r := range p.Rows {
		switch {
		case r.Action() == plan.None && r.Old.Class() == resource.Degraded:
			degraded = append(degraded, r.Address())
		case r.Action() == plan.Unmanaged && r.Old.Class() == resource.Unreadable:
			unreadable = append(unreadable, r.Address())
			unmanaged++
		case r.Action() == plan.Unmanaged:
			unmanaged++
		}
	}
	var notes []string
	if len(degraded) > 0 {
		which := text.Plural(len(degraded), "unchanged job is", "unchanged jobs are")
		notes = append(notes, which+" degraded: "+names(degraded))
	}
	if unmanaged > 0 && !o.All {
		which := text.Plural(unmanaged, "znode is", "znodes are")
		notes = append(notes, which+" unmanaged: not this stack's, never changed (--all lists them)")
	}
	if len(unreadable) > 0 {
		which := text.Count(len(unreadable), "unmanaged znode") + " could not be read: " + names(unreadable)
		notes = append(notes, which+"; muster explain lists what is there")
	}
	return notes
}
