package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/text"
	"muster/view"
)

// Progress writes one line for each outcome of an apply. Only one goroutine at a time may use it.
type Progress struct {
	page         *page
	total, n     int // changes, and outcomes written
	addressWidth int
}

// NewProgress returns a Progress that writes the outcomes of p's changes to w.
func NewProgress(w io.Writer, p plan.Plan, o Options) *Progress {
	const widest = 40
	progress := &Progress{page: newPage(w, o)}
	for _, r := range p.Rows {
		if r.Action().Changes() {
			progress.total++
			progress.addressWidth = max(progress.addressWidth, min(text.Width(text.Escape(r.Address())), widest))
		}
	}
	return progress
}

// Line writes the line of one outcome at once. It returns the writer's error, also on every later call.
func (p *Progress) Line(o apply.Outcome) error {
	p.n++
	count := fmt.Sprintf("[%*d/%d] ", len(fmt.Sprint(p.total)), p.n, p.total)
	p.page.printf("  %s%s  ", count, o.Row.Address())
	result := 2 + len(count) + p.addressWidth + 2
	p.page.moveTo(result)
	word, st := resultWord(o)
	p.page.write(st, word)
	if detail := detail(o); detail != "" {
		p.page.moveTo(result + len("already done"))
		p.page.write(plain, "  "+detail)
	}
	p.page.newline()
	return p.page.flush()
}

// resultWord is the word for a result, and its style. Results that went wrong are in capitals.
func resultWord(o apply.Outcome) (string, style) {
	switch o.Result {
	case apply.Applied:
		return past(o.Row.Action()), green
	case apply.Refused, apply.Failed, apply.Unknown:
		return strings.ToUpper(string(o.Result)), red
	case apply.Waiting, apply.NotStarted:
		return string(o.Result), yellow
	}
	return string(o.Result), plain
}

// past is the past tense of create, replace, delete or update.
func past(a plan.Action) string { return string(a) + "d" }

// detail is the time that a change took, or why it was not made.
func detail(o apply.Outcome) string {
	switch {
	case o.Err != nil:
		return cause(o)
	case o.Result == apply.Applied:
		return took(o.Took)
	case o.Result == apply.Waiting:
		return "stale, but not seen unchanged for " + o.Row.Grace().String()
	}
	return ""
}

// cause is the error without the resource and the result, which stand in the same line.
func cause(o apply.Outcome) string {
	s := strings.TrimPrefix(o.Err.Error(), kindName(o.Row)+" "+o.Row.Path+": ")
	for _, said := range []error{plan.ErrMoved, plan.ErrUnknown, plan.ErrAlreadyDone} {
		s = strings.TrimPrefix(s, said.Error()+": ")
	}
	return s
}

// ApplyCounts is the line of the counts. Tools may read it: its words and their order do not change. Counts after the
// semicolon are left out if they are zero.
func ApplyCounts(outcomes []apply.Outcome) string {
	results := map[apply.Result]int{}
	done := map[plan.Action]int{}
	for _, o := range outcomes {
		results[o.Result]++
		if o.Result == apply.Applied {
			done[o.Row.Action()]++
		}
	}
	parts := text.Each(changing(), func(a plan.Action) string { return fmt.Sprintf("%d %s", done[a], past(a)) })
	line := fmt.Sprintf("Applied %d of %d: %s", results[apply.Applied], len(outcomes), strings.Join(parts, ", "))
	return strings.Join(text.NonEmpty(line, counted(apply.Results()[1:], results, asIs)), "; ") + "."
}

// counted counts what there is of each word: "1 created, 2 deleted". say is how a word is said.
func counted[W ~string, K ~string](words []W, counts map[K]int, say func(W) string) string {
	var parts []string
	for _, w := range words {
		if n := counts[K(w)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, say(w)))
		}
	}
	return strings.Join(parts, ", ")
}

func asIs[W ~string](word W) string { return string(word) }

func toDo(a plan.Action) string { return "to " + string(a) }

// ApplySummary writes every change that was not applied and what to do about it, what the user can do next, and the
// counts.
func ApplySummary(w io.Writer, outcomes []apply.Outcome, o Options) error {
	p := newPage(w, o)
	result, address := 0, 0
	for _, o := range outcomes {
		if o.Result != apply.Applied {
			result = max(result, len(o.Result))
			address = max(address, min(text.Width(text.Escape(o.Row.Address())), 40))
		}
	}
	for _, r := range apply.Results()[1:] {
		for _, o := range outcomes {
			if o.Result != r {
				continue
			}
			p.printf("  %-*s  %s  ", result, r, o.Row.Address())
			column := 2 + result + 2 + address + 2
			p.moveTo(column)
			p.line(plain, advice(o), column)
		}
	}
	p.next(o.Next)
	p.countsLine(ApplyCounts(outcomes))
	return p.flush()
}

// advice says what is certain about a change that was not applied, and what to do. It never says only "apply again",
// since a saved plan can be applied once.
func advice(o apply.Outcome) string {
	done := past(o.Row.Action())
	switch o.Result {
	case apply.AlreadyDone:
		return "nothing had to be " + done
	case apply.Refused:
		return "nothing was " + done + "; plan again"
	case apply.Failed:
		return "nothing was " + done + ": " + cause(o)
	case apply.Unknown:
		return "it may have been " + done + "; the next plan tells"
	case apply.Waiting:
		return "plan and apply again without --no-wait, which waits for it"
	}
	return "plan and apply again"
}

// ApplyOutcome says what became of an apply: "1 created, 2 deleted; 1 refused", "unfinished: 3 to create".
func ApplyOutcome(a history.Found) string {
	switch a.State {
	case history.Damaged:
		return "damaged: " + a.Problem
	case history.Running, history.Unfinished:
		return string(a.State) + ": " + cmp.Or(counted(changing(), a.Planned, toDo), "nothing is known of its plan")
	case history.Settled:
		return "settled: nothing is left of " + cmp.Or(counted(changing(), a.Planned, toDo), "its plan")
	}
	done := cmp.Or(counted(changing(), a.Done, past), "nothing changed")
	return strings.Join(text.NonEmpty(done, counted(apply.Results()[1:], a.Results, asIs)), "; ")
}

// changing lists the actions that change something, in the order of all counts.
func changing() []plan.Action {
	return []plan.Action{plan.Create, plan.Replace, plan.Delete, plan.Update}
}

// LastApply says who applied, when, and what became of it: "by ann, 12m ago: 1 created (https://ci.example/runs/7)".
func LastApply(a history.Found, now time.Time) string {
	line := ApplyOutcome(a)
	if a.State != history.Damaged {
		line = fmt.Sprintf("by %s, %s: %s", a.Actor, view.Ago(now, a.Started), line)
	}
	if a.URL != "" {
		line += " (" + a.URL + ")"
	}
	return line
}

// LastApplies writes one line for each stack: its last apply. Lines are not broken: tools read them, and addresses are
// clicked on.
func LastApplies(w io.Writer, applies []history.Found, o Options) error {
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

func applyStyle(a history.Found) style {
	switch {
	case a.State == history.Unfinished, a.State == history.Damaged:
		return yellow
	case a.Results[string(apply.Failed)] > 0, a.Results[string(apply.Unknown)] > 0:
		return red
	}
	return plain
}

// History writes applies, the newest first: the number of each, when, of which stack, by whom, and what became of it;
// below that the names of what was changed, and the run of the pipeline. Long names of stacks and actors are cut: JSON
// has all of them.
func History(w io.Writer, applies []history.Found, o Options) error {
	const when = len("entry  ")
	const of = when + len("2006-01-02 15:04Z  ")
	p := newPage(w, o)
	stack, actor := namesWidth(applies, p.width-of-len("  ")*2)
	line := func(st style, number, at, stackName, by, what string) {
		p.write(plain, number)
		p.moveTo(when)
		p.write(plain, at)
		p.moveTo(of)
		p.write(plain, text.Cut(text.Escape(stackName), stack))
		p.moveTo(of + stack + 2)
		p.write(plain, text.Cut(text.Escape(by), actor))
		p.moveTo(of + stack + 2 + actor + 2)
		p.line(st, what, p.col)
	}
	line(plain, "entry", "when", "stack", "by", "what")
	for _, a := range applies {
		at := "-"
		if !a.Started.IsZero() {
			at = a.Started.UTC().Format("2006-01-02 15:04Z")
		}
		line(applyStyle(a), fmt.Sprintf("%5d", a.Number), at, a.Stack, view.OrDash(a.Actor), ApplyOutcome(a))
		for _, s := range applyDetails(a) {
			p.moveTo(of)
			p.line(plain, s, of+2)
		}
	}
	return p.flush()
}

// HistoryEntry writes all that the history has of one apply: each change, with the fields that it set.
func HistoryEntry(w io.Writer, a history.Found, o Options) error {
	p := newPage(w, o)
	p.line(bold, fmt.Sprintf("entry %d of stack %s", a.Number, a.Stack), 2)
	var began, ended, by, saved string
	if !a.Started.IsZero() {
		began = a.Started.UTC().Format(time.RFC3339)
	}
	if !a.Finished.IsZero() {
		ended = a.Finished.UTC().Format(time.RFC3339)
	}
	if by = a.Actor; a.By != a.Actor && a.By != "" {
		by += " (" + a.By + ")"
	}
	if a.Saved {
		saved = " (saved)"
	}
	p.fields(filled(field{"outcome", ApplyOutcome(a)}, field{"by", by}, field{"started", began},
		field{"finished", ended}, field{"plan", a.Plan + saved}, field{"muster", a.Version}, field{"pipeline", a.CI},
		field{"commit", a.Commit}, field{"run", a.URL}))
	p.newline()
	for _, c := range a.Changes {
		p.line(bold, fmt.Sprintf("  %s %s  %s", plan.Action(c.Action).Symbol(), c.Path, a.Did(c)), 4)
		fs := differences(c.Fields, changesDuty, differs)
		if c.Action == string(plan.Create) {
			fs = nil
			for _, f := range c.Fields {
				fs = append(fs, field{f.Name, side(f.New)})
			}
		}
		if c.MoreFields > 0 {
			fs = append(fs, field{"and more", text.Count(c.MoreFields, "field")})
		}
		p.fields(fs)
	}
	if a.More > 0 {
		p.line(plain, fmt.Sprintf("  and %d more", a.More), 4)
	}
	return p.flush()
}

// namesWidth shares this many columns out to the stack, the actor, and what became of an apply.
func namesWidth(applies []history.Found, columns int) (stack, actor int) {
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

func applyDetails(a history.Found) []string {
	var lines []string
	for _, n := range a.Named() {
		lines = append(lines, n.What+" "+strings.Join(n.Names, " "))
	}
	if a.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", a.More))
	}
	if a.Commit != "" {
		lines = append(lines, "commit "+a.Commit)
	}
	return append(lines, text.NonEmpty(a.URL)...)
}

// HistoryJSON writes applies as one JSON document.
func HistoryJSON(w io.Writer, applies []history.Found) error {
	return writeDocument(w, struct {
		FormatVersion string          `json:"format_version"`
		Applies       []history.Found `json:"applies"`
	}{FormatVersion, append([]history.Found{}, applies...)})
}
