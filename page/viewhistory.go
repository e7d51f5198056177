package page

import (
	"fmt"
	"time"

	"muster/text"
)

// applyView is one apply as templates show it.
type applyView struct {
	ID             string
	Stack, Plan    word
	By, Who        word // Who had it done; By ran it
	CI, Commit     word
	URL            string // of the CI run, if a browser may follow it
	URLText        word
	Began, Ended   time.Time
	Took           string
	Class          string
	State          word
	What           word
	Names          []namesView
	More           int
	StackHref      string
	Running, Amiss bool
}

// namesView is names of resources of which the apply did something.
type namesView struct {
	What  string
	Names []linkView
}

type linkView struct {
	Href string
	Text word
}

func (v applyView) fragmentID() string { return v.ID }

// history shows who applied what and when.
func (p *painter) history() {
	var shown []Apply
	stacks := map[string]int{}
	for _, a := range p.board.History {
		stacks[a.Stack]++
		if p.request.Stack == "" || p.request.Stack == a.Stack {
			shown = append(shown, a)
		}
	}
	p.add(mainSlot, "history", struct {
		Stacks  []choice
		Several bool
		Nothing bool
		Shown   string
	}{
		choices(p.request.Stack, stacks, "all stacks"), len(stacks) > 1 || p.request.Stack != "", len(shown) == 0,
		text.Count(len(shown), "apply"),
	})
	for _, a := range shown {
		p.add("history-list", "apply", applyOf(a))
	}
}

func applyOf(a Apply) applyView {
	v := applyView{
		ID: hashID("a", a.Stack, a.Plan, a.Began.String()), Stack: word(a.Stack), Plan: word(a.Plan), By: word(a.By),
		Who: word(a.Actor), Commit: word(a.Commit), URL: webURL(a.URL), URLText: word(a.URL), Began: a.Began,
		Ended: a.Ended, StackHref: Request{View: Overview, Stack: a.Stack}.URL(), State: "finished", Class: "done",
	}
	if !a.Ended.IsZero() {
		v.Took = roughly(max(0, a.Ended.Sub(a.Began)))
	} else {
		v.State, v.Class, v.Amiss = "unfinished", "bad", true
	}
	if a.Failed > 0 {
		v.Class, v.Amiss = "warn", true
	}
	v.What = word(fmt.Sprintf("%d created, %d replaced, %d deleted, %d updated; %d failed",
		a.Created, a.Replaced, a.Deleted, a.Updated, a.Failed))
	if len(a.Names) > 0 {
		v.Names = append(v.Names, namesOf("replaced or deleted", a.Names))
	}
	return v
}

func namesOf(what string, paths []string) namesView {
	v := namesView{What: what}
	for _, path := range paths {
		v.Names = append(v.Names, linkView{resourceURL(path), word(path)})
	}
	return v
}
