package page

import (
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/report"
	"muster/view"
)

type applyView struct {
	history.Found
	Link, Took, Class, What string // Link: the URL of the CI run, if a browser may follow it
	Amiss                   bool
}

func (p *painter) history() {
	var shown []history.Found
	stacks := map[string]int{}
	for _, a := range p.board.History {
		stacks[a.Stack]++
		if p.request.Stack == "" || p.request.Stack == a.Stack {
			shown = append(shown, a)
		}
	}
	p.add(mainSlot, "history", struct {
		Stacks           []choice
		Several, Nothing bool
	}{choices(p.request.Stack, stacks, "all stacks"), len(stacks) > 1 || p.request.Stack != "", len(shown) == 0})
	for _, a := range shown {
		p.add("history-list", "apply", applyOf(a))
	}
}

func applyOf(a history.Found) applyView {
	v := applyView{Found: a, Link: webURL(a.URL)}
	v.What = strings.TrimPrefix(report.ApplyOutcome(a), string(a.State)+": ") // the state is beside it
	v.Class, v.Amiss = applyClass(a)
	if took := a.Finished.Sub(a.Started); took >= time.Second {
		v.Took = view.Short(took)
	}
	return v
}

// applyClass is the class of an apply in the style sheet. One that is amiss did not do all that it was to do.
func applyClass(a history.Found) (class string, amiss bool) {
	switch a.State {
	case history.Running:
		return "ok", true
	case history.Unfinished, history.Damaged:
		return "bad", true
	case history.Settled:
		return "done", false
	}
	for result, n := range a.Results {
		if n > 0 && result != string(apply.Applied) && result != string(apply.AlreadyDone) {
			return "warn", true
		}
	}
	return "done", false
}
