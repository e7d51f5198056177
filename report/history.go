package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/text"
)

// Apply is an apply in the history of a stack.
type Apply struct {
	Stack string `json:"stack"`
	history.Found
}

// ApplyOutcome says what became of an apply: "1 created, 2 deleted; 1 refused", "unfinished: 3 to create".
func ApplyOutcome(a Apply) string {
	switch a.State {
	case history.Damaged:
		return "damaged: " + a.Problem
	case history.Running, history.Unfinished:
		return string(a.State) + ": " + plannedText(a.Planned)
	}
	var done, rest []string
	for _, act := range changing() {
		if n := a.Done[string(act)]; n > 0 {
			done = append(done, fmt.Sprintf("%d %s", n, past(act)))
		}
	}
	for _, r := range apply.Results()[1:] {
		if n := a.Results[string(r)]; n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", n, r))
		}
	}
	if len(done) == 0 {
		done = []string{"nothing changed"}
	}
	return strings.Join(nonEmpty(strings.Join(done, ", "), strings.Join(rest, ", ")), "; ")
}

// changing lists the actions that change something, in the order of all counts.
func changing() []plan.Action {
	return []plan.Action{plan.Create, plan.Replace, plan.Delete, plan.Update}
}

func plannedText(planned map[string]int) string {
	var parts []string
	for _, act := range changing() {
		if n := planned[string(act)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, act))
		}
	}
	if len(parts) == 0 {
		return "nothing is known of its plan"
	}
	return strings.Join(parts, ", ")
}

// LastApply says who applied, when, and what became of it: "by ann, 12m ago: 1 created (https://ci.example/runs/7)".
func LastApply(a Apply, now time.Time) string {
	line := ApplyOutcome(a)
	if a.State != history.Damaged {
		line = fmt.Sprintf("by %s, %s: %s", a.Actor, ago(now, a.Started), line)
	}
	if a.URL != "" {
		line += " (" + a.URL + ")"
	}
	return line
}

// LastApplies writes one line for each stack: its last apply. Lines are not broken: tools read them, and addresses are
// clicked on.
func LastApplies(w io.Writer, applies []Apply, o Options) error {
	p := newPage(w, o)
	if len(applies) > 0 {
		p.newline()
	}
	for _, a := range applies {
		p.printf("last apply of stack %s: ", a.Stack)
		p.write(applyStyle(a), LastApply(a, o.Now))
		p.newline()
	}
	return p.flush()
}

func applyStyle(a Apply) style {
	switch {
	case a.State == history.Unfinished, a.State == history.Damaged:
		return yellow
	case a.Results[string(apply.Failed)] > 0, a.Results[string(apply.Unknown)] > 0:
		return red
	}
	return plain
}

// History writes applies, the newest first: when, of which stack, by whom, and what became of it; below that what was
// replaced and deleted, and the run of the pipeline. Long names of stacks and actors are cut: JSON has all of them.
func History(w io.Writer, applies []Apply, o Options) error {
	const when = len("2006-01-02 15:04Z")
	p := newPage(w, o)
	stack, actor := namesWidth(applies, p.width-when-len("  ")*3)
	line := func(st style, at, of, by, what string) {
		p.write(plain, at)
		p.moveTo(when + 2)
		p.write(plain, text.Cut(text.Escape(of), stack))
		p.moveTo(when + 2 + stack + 2)
		p.write(plain, text.Cut(text.Escape(by), actor))
		p.moveTo(when + 2 + stack + 2 + actor + 2)
		p.wrap(st, what, p.col)
		p.newline()
	}
	line(plain, "when", "stack", "by", "what")
	for _, a := range applies {
		at := "-"
		if !a.Started.IsZero() {
			at = a.Started.UTC().Format("2006-01-02 15:04Z")
		}
		who := a.Actor
		if who == "" {
			who = "-"
		}
		line(applyStyle(a), at, a.Stack, who, ApplyOutcome(a))
		for _, s := range applyDetails(a) {
			p.moveTo(when + 2)
			p.wrap(plain, s, when+4)
			p.newline()
		}
	}
	return p.flush()
}

// namesWidth shares this many columns out to the stack, the actor, and what became of an apply.
func namesWidth(applies []Apply, columns int) (stack, actor int) {
	const what, least = 28, 12 // what became of an apply: some counts; the least of a name
	stack, actor = len("stack"), len("by")
	for _, a := range applies {
		stack = max(stack, text.Width(text.Escape(a.Stack)))
		actor = max(actor, text.Width(text.Escape(a.Actor)))
	}
	room := max(columns-what, 2*least)
	stack = min(stack, max(room/2, room-actor))
	return stack, min(actor, room-stack)
}

// applyDetails are the lines below an apply.
func applyDetails(a Apply) []string {
	var lines []string
	add := func(word, planned string, names []string) {
		if len(names) == 0 {
			return
		}
		if a.State == history.Running || a.State == history.Unfinished {
			word = planned
		}
		lines = append(lines, word+" "+strings.Join(names, " "))
	}
	add("deleted", "to delete", a.Deleted)
	add("replaced", "to replace", a.Replaced)
	if a.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", a.More))
	}
	if a.Commit != "" {
		lines = append(lines, "commit "+a.Commit)
	}
	return append(lines, nonEmpty(a.URL)...)
}

// HistoryJSON writes applies as one JSON document.
func HistoryJSON(w io.Writer, applies []Apply) error {
	return writeDocument(w, struct {
		FormatVersion string  `json:"format_version"`
		Applies       []Apply `json:"applies"`
	}{FormatVersion, append([]Apply{}, applies...)})
}
