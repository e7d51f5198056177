package report

import (
	"fmt"
	"io"
	"strings"

	"muster/apply"
	"muster/plan"
	"muster/text"
)

// Progress writes one line for each change that apply has dealt with. It is for one goroutine at a time.
type Progress struct {
	page           *page
	of, n, address int
}

// NewProgress writes the lines of p's changes to w.
func NewProgress(w io.Writer, p plan.Plan, o Options) *Progress {
	const widest = 40
	progress := &Progress{page: newPage(w, o)}
	for _, r := range p.Rows {
		if r.Action().Changes() {
			progress.of++
			progress.address = max(progress.address, min(text.Width(text.Escape(r.Address())), widest))
		}
	}
	return progress
}

// Line writes what became of one change, at once. It returns the writer's error, also on every later call.
func (p *Progress) Line(o apply.Outcome) error {
	p.n++
	count := fmt.Sprintf("[%*d/%d] ", len(fmt.Sprint(p.of)), p.n, p.of)
	p.page.printf("  %s%s  ", count, o.Row.Address())
	p.page.to(2 + len(count) + p.address + 2)
	word, st := resultWord(o)
	p.page.write(st, word)
	if detail := detail(o); detail != "" {
		p.page.to(2 + len(count) + p.address + 2 + len("already done"))
		p.page.write(plain, "  "+detail)
	}
	p.page.newline()
	return p.page.flush()
}

// resultWord: what was done is said in lower case, what went wrong in capitals.
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

// past is a change as a thing done.
func past(a plan.Action) string { return string(a) + "d" } // create, replace, delete, update

// detail is the time of what was done, or the cause of what was not.
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

// cause is the error without what the line says already: the job, and the result.
func cause(o apply.Outcome) string {
	s := strings.TrimPrefix(o.Err.Error(), "job "+o.Row.Path+": ")
	for _, said := range []error{plan.ErrMoved, plan.ErrUnknown, plan.ErrAlreadyDone} {
		s = strings.TrimPrefix(s, said.Error()+": ")
	}
	return s
}

// Applied is the line of the counts, in an order and with words that do not change: tools may read it. Those behind the semicolon
// are named only if they are not zero.
func Applied(outcomes []apply.Outcome) string {
	results := map[apply.Result]int{}
	done := map[plan.Action]int{}
	for _, o := range outcomes {
		results[o.Result]++
		if o.Result == apply.Applied {
			done[o.Row.Action()]++
		}
	}
	var parts []string
	for _, a := range []plan.Action{plan.Create, plan.Replace, plan.Delete, plan.Update} {
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

// ApplySummary writes the counts and, below them, what was not applied, by name and with what to do about it.
func ApplySummary(w io.Writer, outcomes []apply.Outcome, o Options) error {
	p := newPage(w, o)
	p.countsLine(Applied(outcomes))
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
			p.to(column)
			p.wrap(plain, advice(o), column)
			p.newline()
		}
	}
	return p.flush()
}

// advice says what is certain about a change that was not applied, and what to do. A saved plan is spent once it was begun:
// "apply again" alone would be wrong of it.
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
