package page

import (
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/report"
	"muster/text"
	"muster/view"
)

// applyView is one apply as templates show it.
type applyView struct {
	ID, StackHref string
	Stack, Plan   word
	By, Who       word // Who asked for it; By ran it
	CI, Commit    word
	URL           string // of the CI run, if a browser may follow it
	URLText       word
	Began         time.Time
	Took          string
	Class         string
	State         word
	What          word
	Names         []namesView
	More          string
	Saved, Amiss  bool
}

// namesView is names of resources of which the apply did something.
type namesView struct {
	What  string
	Count string
	Names []word
}

// history shows who applied what and when.
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
	v := applyView{
		ID: hashID("a", a.Stack, a.Name), Stack: word(a.Stack), Plan: word(a.Plan), By: word(a.By), Who: word(a.Actor),
		CI: word(a.CI), Commit: word(a.Commit), URL: webURL(a.URL), URLText: word(a.URL), Began: a.Started,
		StackHref: Request{View: Overview, Stack: a.Stack}.URL(), State: word(a.State), Saved: a.Saved,
	}
	outcome := report.ApplyOutcome(a)
	if planned, found := strings.CutPrefix(outcome, string(a.State)+": "); found {
		outcome = planned // the state is beside it
	}
	v.What = word(outcome)
	v.Class, v.Amiss = applyClass(a)
	if took := a.Finished.Sub(a.Started); took >= time.Second {
		v.Took = view.Short(took)
	}
	v.name("deleted", "to delete", a, a.Deleted)
	v.name("replaced", "to replace", a, a.Replaced)
	if a.More > 0 {
		v.More = text.Plural(a.More, "other is", "others are") + " not named"
	}
	return v
}

// name adds the names of resources. Of an apply that did not end, nobody knows which it reached.
func (v *applyView) name(done, planned string, a history.Found, names []string) {
	if len(names) == 0 {
		return
	}
	if a.State == history.Running || a.State == history.Unfinished {
		done = planned
	}
	v.Names = append(v.Names, namesView{done, text.Count(len(names), "name"), words(names)})
}

// applyClass is the class of an apply in the style sheet. One that is amiss did not do all that it was to do.
func applyClass(a history.Found) (class string, amiss bool) {
	switch a.State {
	case history.Running:
		return "ok", true
	case history.Unfinished, history.Damaged:
		return "bad", true
	}
	for result, n := range a.Results {
		if n > 0 && result != string(apply.Applied) && result != string(apply.AlreadyDone) {
			return "warn", true
		}
	}
	return "done", false
}
