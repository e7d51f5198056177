package member_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/resource"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ended waits until a context has ended, and returns its cause.
func ended(t testing.TB, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(2 * time.Minute):
		t.Fatal("it has not ended")
		return nil
	}
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
	if err := receive(t, taken, "the duty to be taken"); err != nil {
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
	receive(t, h.HandOver(), "the hand-over")
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
	if next := receive(t, took, "b to take it"); next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, h.Epoch)
	}
	if n := tries.Load(); n > 4 { // two, and more if the assigner writes at the same time
		t.Errorf("%d tries to take the duty", n)
	}
}
