package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ended waits for the end of a membership or a hold, and returns why.
func ended(t testing.TB, ctx context.Context) error {
	t.Helper()
	rig.Receive(t, ctx.Done(), "the end")
	return context.Cause(ctx)
}

// TestSmallestSeatLeads: a lone leader goes to the first member. When that leaves, the next one takes over, with a
// larger epoch.
func TestSmallestSeatLeads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b, c := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator"), f.join("c", "1.0", "coordinator")
	first := f.take(a, "coordinator")
	if err := first.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.look(); got.Status() != group.Running || got.Live != 3 || group.Held(got) != 1 {
		t.Errorf("the group is %s: %+v", got.Status(), got)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, first.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("the hold ended with %v", err)
	}
	second := f.take(b, "coordinator")
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	if third := f.take(c, "coordinator"); third.Epoch <= second.Epoch {
		t.Errorf("epoch %d after %d", third.Epoch, second.Epoch)
	}
}

// TestHolderOfANewerVersionTakesOver: a duty that prefers the newest version is handed over, and the old holder keeps
// it until it has released it.
func TestHolderOfANewerVersionTakesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Leader, "coordinator")
		d.Prefer = group.Newest
		g.Add(d)
	})
	old := f.take(f.join("a", "1.9", "coordinator"), "coordinator")
	b := f.join("b", "2.0", "coordinator")
	select {
	case <-old.HandOver():
	case <-time.After(2 * time.Minute):
		t.Fatal("the duty was not handed over")
	}
	taken := make(chan *member.Hold, 1)
	go func() {
		h, _ := b.Take(t.Context(), "coordinator")
		taken <- h
	}()
	if err := old.Check(t.Context()); err != nil {
		t.Errorf("the old holder holds it until it releases it: %v", err)
	}
	if err := old.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := <-taken; h == nil || h.Epoch <= old.Epoch {
		t.Errorf("the new holder has %+v", h)
	}
	if err := old.Check(t.Context()); err == nil {
		t.Error("the old holder still holds it")
	}
}

// TestResignedDutyGoesToAnother: who resigns does not get the duty again while somebody else can do it.
func TestResignedDutyGoesToAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	if err := h.Resign(t.Context(), true, "exit code 3"); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, h.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("the hold ended with %v", err)
	}
	if next := f.take(b, "coordinator"); next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, h.Epoch)
	}
}

// TestLoneMemberGetsItsDutyBackAfterAPause: nobody else can do it.
func TestLoneMemberGetsItsDutyBackAfterAPause(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	resigned := time.Now()
	if err := h.Resign(t.Context(), true, "exit code 3"); err != nil {
		t.Fatal(err)
	}
	f.take(a, "coordinator")
	if pause := time.Since(resigned); pause < 900*time.Millisecond { // by ZooKeeper's clock, in ms
		t.Errorf("it was given back after %s", pause)
	}
}

// TestHeldDeletedByHandIsLost: the hold ends, and the duty is taken again.
func TestHeldDeletedByHandIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	held := f.group.Root + "/.muster/run/" + a.Generation + "/duty/coordinator/held"
	if err := f.s.Delete(t.Context(), held, -1); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, h.Context()); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the hold ended with %v", err)
	}
	if again := f.take(a, "coordinator"); again.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, h.Epoch)
	}
}

// TestSeatDeletedByHandEndsTheMembership: another member may have its duties by then.
func TestSeatDeletedByHandEndsTheMembership(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	f.take(a, "coordinator")
	if err := f.s.Delete(t.Context(), f.group.Root+"/.muster/run/"+a.Generation+"/seat/s-0000000000", -1); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, a.Context()); !errors.Is(err, member.ErrRemoved) {
		t.Errorf("the membership ended with %v", err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	f.take(b, "coordinator")
}

// TestDutyThatMayNotBeTaken: a member that ZooKeeper refuses a duty tells the assigner, and keeps its other ones.
func TestDutyThatMayNotBeTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "closed", "open")
	f.join("first", "1.0") // makes the folders
	acl := zkconn.World(zkconn.PermRead)
	if _, err := f.s.Create(t.Context(), f.run("duty/closed"), nil, zkconn.Persistent, acl); err != nil {
		t.Fatal(err)
	}
	a := f.join("a", "1.0", "closed", "open")
	taken := make(chan error, 1)
	go func() {
		_, err := a.Take(t.Context(), "closed")
		taken <- err
	}()
	h := f.take(a, "open")
	f.until("the assigner to know why", func() bool {
		for _, failure := range f.memory().Failures["closed"] {
			if failure.Count > 1 && strings.Contains(failure.Because, "duty/closed") {
				return true
			}
		}
		return false
	})
	if a.Context().Err() != nil || h.Context().Err() != nil {
		t.Errorf("the membership ended with %v", context.Cause(a.Context()))
	}
	if err := f.s.Delete(t.Context(), f.run("duty/closed"), -1); err != nil {
		t.Fatal(err)
	}
	if err := rig.Receive(t, taken, "the duty to be taken"); err != nil {
		t.Error(err)
	}
}

// TestZnodesWrittenByHand: a member whose seat, live znode or held somebody wrote to is no member any more: it joins
// again.
func TestZnodesWrittenByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	for _, path := range []string{f.run("seat/s-0000000000"), f.run("duty/coordinator/held"), f.group.Path() + "/a"} {
		a := f.join("a", "1.0", "coordinator")
		h := f.take(a, "coordinator")
		if _, err := f.s.Set(t.Context(), path, []byte("garbage"), -1); err != nil {
			t.Fatal(err)
		}
		if err := ended(t, h.Context()); !errors.Is(err, member.ErrRemoved) {
			t.Errorf("%s: the hold ended with %v", path, err)
		}
		if err := ended(t, a.Context()); !errors.Is(err, member.ErrRemoved) {
			t.Errorf("%s: the membership ended with %v", path, err)
		}
		if err := a.Leave(); err != nil {
			t.Error(err)
		}
	}
}

// TestChangesOfTheGroupDoNotRepeatATake: while another member holds the duty, a try cannot succeed, and each would set
// a watch.
func TestChangesOfTheGroupDoNotRepeatATake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.join("assigner", "1.0")
	h := f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	b, proxy := f.joinBehind("b", "coordinator")
	var tries atomic.Int32
	held := []byte(f.run("duty/coordinator/held"))
	proxy.BeforeSend(func(op int32, req []byte) bool { // never happens: it only looks
		if op == zkserver.OpMulti && bytes.Contains(req, held) {
			tries.Add(1)
		}
		return false
	})
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "b"})
	rig.Receive(t, h.HandOver(), "the hand-over")
	took := make(chan *member.Hold, 1)
	go func() {
		next, err := b.Take(t.Context(), "coordinator")
		if err != nil {
			t.Error(err)
		}
		took <- next
	}()
	f.until("the first try", func() bool { return tries.Load() > 0 })
	for range 8 {
		f.change(func(g *group.Group) { g.Settle += resource.Duration(time.Millisecond) })
		f.until("b to know", func() bool { return b.Group().Settle == f.group.Settle })
	}
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := rig.Receive(t, took, "b to take it"); next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, h.Epoch)
	}
	if n := tries.Load(); n > 4 { // two, and more if the assigner writes at the same time
		t.Errorf("%d tries to take the duty", n)
	}
}

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
	first := rig.Receive(t, aTerms, "a to lead")
	b := f.join("b", "2.0", "coordinator")
	bTerms, _ := lead(t.Context(), b, "coordinator")
	if err := ended(t, first.ctx); !errors.Is(err, member.ErrHandOver) {
		t.Errorf("the context ended with %v", err)
	}
	if err := first.hold.Check(t.Context()); err != nil {
		t.Errorf("the duty is held until the function returns: %v", err)
	}
	first.end <- nil
	second := rig.Receive(t, bTerms, "b to lead")
	if second.hold.Epoch <= first.hold.Epoch {
		t.Errorf("epoch %d after %d", second.hold.Epoch, first.hold.Epoch)
	}
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, second.ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended with %v", err)
	}
	if third := rig.Receive(t, aTerms, "a to lead again"); third.hold.Epoch <= second.hold.Epoch {
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
	rig.Receive(t, aTerms, "a to lead").end <- errors.New("exit code 3")
	rig.Receive(t, bTerms, "b to lead").end <- nil
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
			first := rig.Receive(t, aTerms, "a to lead")
			cancel(cause)
			if err := ended(t, first.ctx); !errors.Is(err, cause) {
				t.Errorf("the context ended with %v", err)
			}
			first.end <- nil
			if err := rig.Receive(t, result, "Lead"); !errors.Is(err, cause) {
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
	first := rig.Receive(t, terms, "a to lead")
	if err := f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, first.ctx); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the context ended with %v", err)
	}
	first.end <- errors.New("stopped")
	if again := rig.Receive(t, terms, "a to lead again"); again.hold.Epoch <= first.hold.Epoch {
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
	rig.Receive(t, done, "the end of the events")
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
	rig.Receive(t, h.HandOver(), "a hand-over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.take(b, "other")
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	rig.Receive(t, done, "the end of the events")
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

func TestReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m, err := member.Join(t.Context(), dial(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	for range 2 {
		if err := m.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.take(m, "coordinator")
}

// TestReadyWritesNoOtherMember: a frozen member's live znode is deleted by hand, and another process has its identity.
func TestReadyWritesNoOtherMember(t *testing.T) {
	t.Parallel()
	f, p := newFixture(t, "coordinator"), newProxy(t)
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m, err := member.Join(t.Context(), dial(t, p.Addr()), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	live := znode.Live(f.group.Root, f.group.Name, "a")
	f.until("it to know its seat", func() bool { return len(f.seats()) == 1 })
	p.Hang(true)
	asked := func() int { return p.Requests()[zkserver.OpGetData] + p.Requests()[zkserver.OpSetData] }
	before, ready := asked(), make(chan error, 1)
	go func() { ready <- m.Ready(t.Context()) }()
	f.until("its request", func() bool { return asked() > before })
	if err := f.s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Create(t.Context(), live, []byte("another process"), zkconn.Ephemeral, f.acl()); err != nil {
		t.Fatal(err)
	}
	p.Hang(false)
	if err := rig.Receive(t, ready, "Ready"); err == nil {
		t.Error("it is ready")
	}
	if body, _, err := f.s.Get(t.Context(), live); err != nil || string(body) != "another process" {
		t.Errorf("the other process's znode is %q, %v", body, err)
	}
}
