package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/apply"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// applied is how an apply ended.
type applied struct {
	plan     plan.Plan
	outcomes []apply.Outcome
	err      error
}

// compare makes a plan as "muster plan" does.
func (s stack) compare(ctx context.Context, r *zkstate.Reader, declared []resource.Declaration) (plan.Plan, error) {
	p, err := apply.Compare(ctx, r, plan.Want{Stack: s.name, Home: home, Declared: declared}, []string{root})
	p.ID = zkstate.NewID()
	return p, err
}

// apply is "muster apply --yes". What is stale has been so for long.
func (s stack) apply(ctx context.Context, on *zkconn.Session, declared []resource.Declaration) applied {
	store, err := s.store(on)
	if err != nil {
		return applied{err: err}
	}
	p, err := s.compare(ctx, store.Reader, declared)
	if err != nil {
		return applied{err: err}
	}
	a := applied{plan: p}
	a.outcomes, a.err = apply.Run(ctx, store, p, apply.Options{
		CommitOptions: apply.CommitOptions{ObservedAt: time.Now().Add(-time.Hour)}, LockTimeout: time.Minute,
	})
	return a
}

// said is what a command said, by what it said it of.
type said map[string]string

func (t said) note(name string, err error) {
	if err != nil {
		t[name] = "error: " + err.Error()
	}
}

// commands runs every command of a stack that somebody else's znodes could mislead, and returns what they said of this
// stack's own.
func (s stack) commands(ctx context.Context, on *zkconn.Session) said {
	t := said{}
	s.reads(ctx, on, t)
	s.changes(ctx, on, t)
	return t
}

// changes runs those that change something: apply, terminate, and the end of a run.
func (s stack) changes(ctx context.Context, on *zkconn.Session, t said) {
	a := s.apply(ctx, on, s.declared)
	t.note("apply", a.err)
	for _, o := range a.outcomes {
		if s.is(o.Row.Path) {
			t["apply "+o.Row.Path] = fmt.Sprint(o.Result, o.Err)
		}
	}
	store, err := s.store(on)
	if err != nil {
		t.note("store", err)
		return
	}
	for _, name := range []string{"ready", "run", "lost", "idle", "group", "queue"} {
		err := store.Terminate(ctx, s.at(name), time.Millisecond, nil)
		t["terminate "+name] = verdict(err)
	}
	o, err := store.Look(ctx, s.at("over"))
	t.note("over", err)
	if o != nil && o.Record != nil {
		t.note("finish", store.Finish(ctx, s.at("over"), o.Record.Generation))
	}
}

// verdict is what an error of Terminate means. How far it came within a millisecond is up to luck.
func verdict(err error) string {
	for _, known := range []error{
		zkstate.ErrStillLive, zkstate.ErrNotTerminable, zkstate.ErrOtherStack, zkstate.ErrProtected, plan.ErrAlreadyDone,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// reads runs those that only read: plan, drift, status of all and of each, and what serve reads.
func (s stack) reads(ctx context.Context, on *zkconn.Session, t said) {
	r := zkstate.NewReader(on, home, kinds()...)
	p, err := s.compare(ctx, r, s.declared)
	t.note("plan", err)
	for _, row := range p.Rows {
		if s.is(row.Path) {
			changes, bad := json.Marshal(row.Changes())
			t["plan "+row.Path] = fmt.Sprint(row.Reason, row.Old.Status(), string(changes), bad, row.Because())
		}
	}
	for _, f := range p.Drift(nil).Findings {
		if s.is(f.Row.Path) {
			t["drift "+f.Row.Path] += fmt.Sprint(f.Kind)
		}
	}
	roots, _ := r.AllRoots(ctx) // those that could be read
	have, err := r.Read(ctx, append(roots, root))
	t.note("status", err)
	for at, o := range have.Found {
		s.detail(ctx, on, r, at, o, t)
	}
	_, err = r.History(ctx, s.name, 20)
	t.note("history", err)
	s.tracks(ctx, on, t)
}

// detail is "muster status" of one resource.
func (s stack) detail(
	ctx context.Context, on *zkconn.Session, r *zkstate.Reader, at string, o resource.Observed, t said,
) {
	j := view.Resource{Path: at, Observed: o}
	err := r.FillDetail(ctx, &j, time.Now())
	if err == nil && j.Group != nil {
		err = member.FillRuns(ctx, on, o.Record, j.Group.Duties, view.RunsInJSON)
	}
	if !s.is(at) {
		return // all of it is read, and what it says is its owner's
	}
	body, bad := json.Marshal(j)
	t["status "+at] = fmt.Sprint(string(body), err, bad)
	if c := o.Class(); (c == resource.Damaged || c == resource.Unreadable) && o.Record != nil {
		_, _, err := r.Parts(ctx, o.Record.Declaration.Kind(), at, &o)
		t.note("parts "+at, err)
	}
}

// tracks reads as serve does.
func (s stack) tracks(ctx context.Context, on *zkconn.Session, t said) {
	m := zkstate.NewMirror(on)
	tracker := zkstate.NewTracker(m, zkstate.TrackerConfig{Home: home, Kinds: kinds()})
	defer tracker.Close()
	state, err := tracker.Read(ctx, []string{root})
	t.note("serve", err)
	for at, o := range state.Found {
		if s.is(at) {
			t["serve "+at] = fmt.Sprint(o.Status(), o.Live, o.Counts, o.Lost, o.Problem, job.Joined(&o))
		}
	}
}
