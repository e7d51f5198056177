package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
	"muster/plan"
	"muster/resource"
)

// memoryStore commits with commit, and keeps the entry of one apply.
type memoryStore struct {
	Store
	commit   commitFunc
	beginErr error
	lose     context.CancelCauseFunc // of the lock
	begun    history.Entry
	ended    *history.Entry
	settled  int
}

func (s *memoryStore) Lock(ctx context.Context, _ string, _ time.Duration, _ func(string)) (
	held context.Context, release func() error, err error,
) {
	held, s.lose = context.WithCancelCause(ctx)
	return held, func() error { return nil }, nil
}

func (s *memoryStore) CreateEnsembleID(context.Context) (string, error)             { return "e", nil }
func (s *memoryStore) ListRoots(context.Context, []string) error                    { return nil }
func (s *memoryStore) Collect(context.Context, []string, ...string) (int, error)    { return 0, nil }
func (s *memoryStore) PruneApplied(context.Context, time.Duration, time.Time) error { return nil }
func (s *memoryStore) Settle(context.Context, []string) error {
	s.settled++
	return nil
}

func (s *memoryStore) CommitAll(ctx context.Context, rows []plan.Row) (errs []error) {
	for _, r := range rows {
		errs = append(errs, s.commit(ctx, r))
	}
	return errs
}

func (s *memoryStore) BeginEntry(_ context.Context, e *history.Entry) (string, error) {
	if s.beginErr != nil {
		return "", s.beginErr
	}
	e.By = "ann@here"
	s.begun = *e
	return "/h", nil
}

func (s *memoryStore) EndEntry(ctx context.Context, path string, e history.Entry) error {
	if ctx.Err() != nil || path != "/h" {
		return errors.New("not written")
	}
	s.ended = &e
	return nil
}

// replace replaces a stale job whose grace is over.
func replace(name string) plan.Row {
	r := leftover(name, 1, 0)
	r.New, r.Reason = create(name).New, plan.StaleLeftover
	return r
}

// TestEntryOfAnApply: it says first what is planned, and at the end what became of it.
func TestEntryOfAnApply(t *testing.T) {
	p := plan.Plan{ID: "p1", Rows: []plan.Row{
		create("a"), replace("b"), replace("c"), leftover("d", 0, 0), leftover("e", 0, 0), leftover("f", 0, 0),
	}}
	s := &memoryStore{commit: func(_ context.Context, r plan.Row) error {
		return map[string]error{"/r/c": plan.ErrMoved, "/r/e": plan.ErrUnknown, "/r/f": errors.New("denied")}[r.Path]
	}}
	if _, err := Run(t.Context(), s, p, Options{}); err != nil {
		t.Fatal(err)
	}
	begun := history.Entry{
		By: "ann@here", Plan: "p1", Planned: map[string]int{"create": 1, "replace": 2, "delete": 3},
		Changes: changes("delete /r/d", "delete /r/e", "delete /r/f", "replace /r/b", "replace /r/c", "create /r/a"),
	}
	for i := range begun.Changes[3:5] {
		begun.Changes[3+i].Fields = plan.Row.Sets(p.Rows[1], "")
	}
	begun.Changes[5].Fields = []resource.Change{{Name: "workers", New: new("1")}}
	if d := cmp.Diff(begun, s.begun); d != "" {
		t.Errorf("at first (-want +got):\n%s", d)
	}
	begun.Done = map[string]int{"create": 1, "replace": 1, "delete": 1}
	begun.Results = map[string]int{"applied": 3, "refused": 1, "unknown": 1, "failed": 1}
	begun.Changes = slices.Concat(begun.Changes[:2], begun.Changes[3:4], begun.Changes[5:])
	if d := cmp.Diff(&begun, s.ended); d != "" {
		t.Errorf("at the end (-want +got):\n%s", d)
	}
}

// TestEntryIsNoCondition: an apply goes on without a history, and one that changes nothing writes none.
func TestEntryIsNoCondition(t *testing.T) {
	applied := func(context.Context, plan.Row) error { return nil }
	s := &memoryStore{commit: applied, beginErr: errors.New("denied")}
	var told error
	outcomes, err := Run(t.Context(), s, plan.Plan{Rows: []plan.Row{create("a")}}, Options{
		Unrecorded: func(err error) { told = err },
	})
	done := len(outcomes) == 1 && outcomes[0].Result == Applied
	if err != nil || !done || !errors.Is(told, s.beginErr) || s.ended != nil {
		t.Errorf("%v, %v; told %v; ended %v", outcomes, err, told, s.ended)
	}
	s = &memoryStore{commit: applied}
	if _, err := Run(t.Context(), s, plan.Plan{}, Options{}); err != nil || s.begun.By != "" {
		t.Errorf("an apply of nothing: %v, %+v", err, s.begun)
	}
	_, err = Run(t.Context(), s, plan.Plan{Partial: true}, Options{})
	if err != nil || s.settled != 1 {
		t.Errorf("an apply of nothing, and one of nothing of a part: %v, settled %d times", err, s.settled)
	}
}

// changes are those of an entry: "delete /r/a".
func changes(all ...string) (cs []history.Change) {
	for _, one := range all {
		action, path, _ := strings.Cut(one, " ")
		cs = append(cs, history.Change{Action: action, Path: path})
	}
	return cs
}

// TestEntryAfterTheLockIsLost: the session may still be there, and then the entry says what was done.
func TestEntryAfterTheLockIsLost(t *testing.T) {
	s := &memoryStore{}
	s.commit = func(context.Context, plan.Row) error {
		s.lose(errRemoved)
		return nil
	}
	_, err := Run(t.Context(), s, plan.Plan{Rows: []plan.Row{create("a"), leftover("b", 0, 0)}}, Options{})
	if !errors.Is(err, ErrLockLost) || s.ended == nil {
		t.Fatalf("error %v, ended %+v", err, s.ended)
	}
	if d := cmp.Diff(map[string]int{"applied": 1, "not started": 1}, s.ended.Results); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
}
