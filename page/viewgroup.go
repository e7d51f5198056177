package page

import (
	"fmt"
	"slices"
	"time"

	"muster/resource/group"
	"muster/view"
)

// group shows the duties and the members of a group.
func (p *painter) group(d *Detail) {
	g := d.Group
	if g == nil {
		return
	}
	if waits := g.Waits(); len(waits) > 0 {
		p.add(mainSlot, "waits", words(waits))
	}
	if len(g.Duties) > 0 {
		p.add(mainSlot, "duties", nil)
		for _, duty := range g.Duties {
			p.add("duties-list", "duty", dutyOf(duty))
		}
		p.crons(g)
	}
	if len(g.Members) == 0 {
		return
	}
	p.add(mainSlot, "members", word(g.Census()))
	for _, version := range g.Versions() {
		for _, m := range g.Of(version) {
			p.add("members-list", "member", memberOf(g, m))
		}
	}
}

type dutyView struct {
	ID                                        string
	Name, Type, Holder, Version, Address, Why word
	Since                                     time.Time
	Epoch                                     int64
	Vacant, Paused                            bool
	PausedBy, Pinned, HandingOver, Given      word
	Waits                                     []word
}

func (v dutyView) fragmentID() string { return v.ID }

func dutyOf(d view.Duty) dutyView {
	v := dutyView{
		ID: hashID("d", d.Name), Name: word(d.Name), Type: word(d.Type), Holder: word(d.Holder), Version: word(d.Version),
		Address: word(d.Address), Why: word(d.Why), Epoch: d.Epoch, Vacant: d.Holder == "", Paused: d.PausedBy != "",
		PausedBy: word(d.PausedBy), Pinned: word(d.Pinned),
	}
	if d.Since != nil {
		v.Since = *d.Since
	}
	if d.Holder != "" && (d.Given != d.Holder || d.Leaving == d.Holder) {
		v.HandingOver = word(d.Given)
		if d.Given == "" || d.Given == d.Holder {
			v.HandingOver = "another member"
		}
	} else if d.Given != d.Holder {
		v.Given = word(d.Given)
	}
	for _, f := range d.Failures {
		v.Waits = append(v.Waits, word(fmt.Sprintf("%s gave it up %s: %s", f.Identity, times(f.Count), f.Because)))
	}
	return v
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

type cronView struct {
	ID       string
	Name     word
	Schedule word
	Next     time.Time
	Paused   bool
	Runs     []runView
}

func (v cronView) fragmentID() string { return v.ID }

type runView struct {
	Title, State, Exit, Took, By, Because word
	Class                                 string
	Tick, Started                         time.Time
}

// maxRuns is how many of its last runs are shown of a cron.
const maxRuns = 5

func (p *painter) crons(g *view.Group) {
	first := true
	for _, d := range g.Duties {
		if d.Type != group.Cron {
			continue
		}
		if first {
			p.add(mainSlot, "crons", nil)
			first = false
		}
		v := cronView{
			ID: hashID("t", d.Name), Name: word(d.Name), Schedule: word(d.Declared.Schedule), Paused: d.PausedBy != "",
		}
		if d.NextTick != nil {
			v.Next = *d.NextTick
		}
		for _, r := range d.Runs[:min(len(d.Runs), maxRuns)] {
			v.Runs = append(v.Runs, runOf(r))
		}
		p.add("crons-list", "cron", v)
	}
}

func runOf(r view.Run) runView {
	v := runView{
		Title: word(r.Title()), State: word(r.StateText()), Exit: word(r.ExitText()), Took: word(r.Took()),
		By: word(r.By), Because: word(r.Because),
	}
	if r.Tick != nil {
		v.Tick = *r.Tick
	}
	if r.Started != nil {
		v.Started = *r.Started
	}
	switch {
	case r.Exit != nil && *r.Exit != 0 || slices.Contains([]string{"failed", "lost", "missed"}, r.State):
		v.Class = "bad"
	case r.State == "running":
		v.Class = "ok"
	}
	return v
}

type memberView struct {
	ID                         string
	Version, Identity, Address word
	Since                      time.Time
	Ready                      word
	Assigner                   bool
	Duties                     []word
}

func (v memberView) fragmentID() string { return v.ID }

func memberOf(g *view.Group, m view.Member) memberView {
	return memberView{
		ID: hashID("m", m.Identity), Version: word(m.Version), Identity: word(m.Identity), Address: word(m.Address),
		Since: m.Since, Ready: word(m.ReadyText()), Assigner: m.Identity == g.Assigner, Duties: words(m.Duties),
	}
}
