package report

import (
	"fmt"
	"io"
	"strings"

	"muster/apply"
	"muster/plan"
	"muster/text"
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
	var parts []string
	for _, a := range changing() {
		parts = append(parts, fmt.Sprintf("%d %s", done[a], past(a)))
	}
	var rest []string
	for _, r := range apply.Results()[1:] {
		if results[r] > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", results[r], r))
		}
	}
	line := fmt.Sprintf("Applied %d of %d: %s", results[apply.Applied], len(outcomes), strings.Join(parts, ", "))
	return strings.Join(nonEmpty(line, strings.Join(rest, ", ")), "; ") + "."
}

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
			p.wrap(plain, advice(o), column)
			p.newline()
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
