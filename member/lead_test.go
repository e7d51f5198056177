package member_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/group"
	"muster/member"
)

// term is one call of a function that leads.
type term struct {
	ctx  context.Context
	hold *member.Hold
	end  chan error // what the function returns
}

// lead leads in the background. The terms come in order; the channel of Lead's result comes with them.
func lead(ctx context.Context, m *member.Member, duty string) (terms <-chan term, result <-chan error) {
	t, r := make(chan term), make(chan error, 1)
	go func() {
		r <- m.Lead(ctx, duty, func(ctx context.Context, h *member.Hold) error {
			now := term{ctx, h, make(chan error)}
			t <- now
			return <-now.end
		})
	}()
	return t, r
}

// receive waits for the next value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	var v T
	select {
	case v = <-from:
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited for %s", what)
	}
	return v
}

// TestLeadHandsOver: a leader that is to hand over is told so, can still write, and is followed once it has returned.
// It leads again when the other one leaves.
func TestLeadHandsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Leader, "coordinator")
		d.Prefer = group.Newest
		g.Add(d)
	})
	a := f.join("a", "1.9", "coordinator")
	aTerms, _ := lead(t.Context(), a, "coordinator")
	first := receive(t, aTerms, "a to lead")
	b := f.join("b", "2.0", "coordinator")
	bTerms, _ := lead(t.Context(), b, "coordinator")
	if err := ended(t, first.ctx); !errors.Is(err, member.ErrHandOver) {
		t.Errorf("the context ended with %v", err)
	}
	if err := first.hold.Check(t.Context()); err != nil {
		t.Errorf("the duty is held until the function returns: %v", err)
	}
	first.end <- nil
	second := receive(t, bTerms, "b to lead")
	if second.hold.Epoch <= first.hold.Epoch {
		t.Errorf("epoch %d after %d", second.hold.Epoch, first.hold.Epoch)
	}
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, second.ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended with %v", err)
	}
	if third := receive(t, aTerms, "a to lead again"); third.hold.Epoch <= second.hold.Epoch {
		t.Errorf("epoch %d after %d", third.hold.Epoch, second.hold.Epoch)
	}
}

// TestLeaderThatFailsIsReplaced: with an error the other member leads. When that one gives the duty up too, somebody
// leads again after a pause.
func TestLeaderThatFailsIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	aTerms, _ := lead(t.Context(), a, "coordinator")
	bTerms, _ := lead(t.Context(), b, "coordinator")
	receive(t, aTerms, "a to lead").end <- errors.New("exit code 3")
	receive(t, bTerms, "b to lead").end <- nil
	// a may have it first again, and b has failed less often: which pause the assigner sees over first depends on the
	// load.
	select {
	case <-aTerms:
	case <-bTerms:
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody leads again")
	}
	failed := 0
	for _, failure := range f.memory().Failures["coordinator"] {
		failed += failure.Count
	}
	if failed != 1 {
		t.Errorf("the assigner remembers %d failures of two members that gave up, one of them failed", failed)
	}
}

// TestLeadEndsWithItsContext: what ended the context decides whether another member gets the duty at once.
func TestLeadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	other := errors.New("the process has something else to do")
	for _, cause := range []error{other, member.ErrLeaving} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
			ctx, cancel := context.WithCancelCause(t.Context())
			aTerms, result := lead(ctx, a, "coordinator")
			first := receive(t, aTerms, "a to lead")
			cancel(cause)
			if err := ended(t, first.ctx); !errors.Is(err, cause) {
				t.Errorf("the context ended with %v", err)
			}
			first.end <- nil
			if err := receive(t, result, "Lead"); !errors.Is(err, cause) {
				t.Errorf("Lead returned %v", err)
			}
			if held := first.hold.Context().Err() == nil; held != (errors.Is(cause, member.ErrLeaving)) {
				t.Errorf("held: %t", held)
			}
			if errors.Is(cause, member.ErrLeaving) {
				if err := a.Leave(); err != nil {
					t.Fatal(err)
				}
			}
			f.take(b, "coordinator")
		})
	}
}

// TestLeadAfterALoss: a duty whose znode somebody deleted by hand is led again.
func TestLeadAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	terms, _ := lead(t.Context(), a, "coordinator")
	first := receive(t, terms, "a to lead")
	if err := f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, first.ctx); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the context ended with %v", err)
	}
	first.end <- errors.New("stopped")
	if again := receive(t, terms, "a to lead again"); again.hold.Epoch <= first.hold.Epoch {
		t.Errorf("epoch %d after %d", again.hold.Epoch, first.hold.Epoch)
	}
}

// TestResignAfterALoss: a leader that fails tells the assigner so, although somebody has deleted what it held by hand.
// So the duty gets a leader again.
func TestResignAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	first := f.take(a, "coordinator")
	if err := f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	if err := first.Resign(t.Context(), true, "it fails"); err != nil {
		t.Fatal(err)
	}
	if again := f.take(a, "coordinator"); again.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, first.Epoch)
	}
}

// TestResignFromAGroupThatIsGone: a leader whose group has no gate any more is no member when it tells the assigner.
func TestResignFromAGroupThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	for _, part := range []string{"gate", "duty/coordinator/held"} {
		if err := f.s.Delete(t.Context(), f.run(part), -1); err != nil {
			t.Fatal(err)
		}
	}
	<-h.Context().Done()
	if err := h.Resign(t.Context(), true, "it fails"); err != nil {
		t.Error(err)
	}
	if err := ended(t, a.Context()); !errors.Is(err, member.ErrRemoved) {
		t.Errorf("the membership ended with %v", err)
	}
}

// TestPartsDeletedByHand: whoever finds a part of the group gone is no member any more.
func TestPartsDeletedByHand(t *testing.T) {
	t.Parallel()
	for part, write := range map[string]func(f *fixture, h *member.Hold) error{
		"gate":     func(f *fixture, h *member.Hold) error { return h.Put(f.t.Context(), "k", nil) },
		"resigned": func(f *fixture, h *member.Hold) error { return h.Resign(f.t.Context(), true, "it fails") },
		"ask":      func(*fixture, *member.Hold) error { return nil }, // the assigner watches it
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			a := f.join("a", "1.0", "coordinator")
			h := f.take(a, "coordinator")
			if err := f.s.Delete(t.Context(), f.run(part), -1); err != nil {
				t.Fatal(err)
			}
			if err := write(f, h); err != nil && !errors.Is(err, member.ErrRemoved) {
				t.Error(err)
			}
			if err := ended(t, a.Context()); !errors.Is(err, member.ErrRemoved) {
				t.Errorf("the membership ended with %v", err)
			}
		})
	}
}

// TestEventsOfALeader: each thing that happens is one event, also the end of the membership.
func TestEventsOfALeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	a := f.join("a", "1.0")
	var got []string
	events, done := a.Events(t.Context()), make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			got = append(got, fmt.Sprintf("%s %s %t", e.Kind, e.Duty, e.Epoch > 0))
		}
	}()
	_ = a.Leave()
	receive(t, done, "the end of the events")
	if slices.Contains(got, "given coordinator false") {
		t.Errorf("a member that can do nothing has events %q", got)
	}

	b := f.join("b", "1.0", "coordinator", "other")
	events, got, done = b.Events(t.Context()), nil, make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			got = append(got, fmt.Sprintf("%s %s %t", e.Kind, e.Duty, e.Epoch > 0))
		}
	}()
	h := f.take(b, "coordinator")
	if err := h.Resign(t.Context(), true, "exit code 3"); err != nil {
		t.Fatal(err)
	}
	h = f.take(b, "coordinator")
	if err := f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	_ = ended(t, h.Context())
	h = f.take(b, "coordinator")
	f.change(func(g *group.Group) { g.Duties = slices.DeleteFunc(g.Duties, named("coordinator")) })
	receive(t, h.HandOver(), "a hand-over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.take(b, "other")
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	receive(t, done, "the end of the events")
	var about []string
	for _, e := range got {
		if e != "given other false" && e != "given coordinator false" && e != "assigner  false" {
			about = append(about, e)
		}
	}
	want := []string{
		"taken coordinator true", "resigned coordinator true", "taken coordinator true", "lost coordinator true",
		"taken coordinator true", "hand-over coordinator true", "released coordinator true",
		"taken other true", "released other true", "assigner-ended  false",
	}
	if !slices.Equal(about, want) {
		t.Errorf("events %q, want %q", about, want)
	}
}

// named finds a duty.
func named(name string) func(group.Duty) bool {
	return func(d group.Duty) bool { return d.Name == name }
}
