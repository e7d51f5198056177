package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource/group"
	"muster/zkstate/znode"
)

// Each test here is named after a bug of the old way to give a cron task to a process of the newest version, or of the
// recipes that it was made of. These have their tests elsewhere:
//
//	versions of unequal length cannot be ordered   roster.TestVersionsOfUnequalLengthAreOrdered
//	five numbers, so five leaders at most          roster.TestManyDutiesHaveManyHolders
//	leads, then runs: nothing claims the tick      faults.TestGroupSoak, TestLostRun
//	leads, then writes: nothing fences             TestFrozenHolderCannotWrite
//	two leaders while a connection is suspended    faults.TestCutOffLeaderEndsBeforeTheNextBegins
//	a process is not a member again after a loss   faults.TestCutOffLeaderEndsBeforeTheNextBegins
//	a node of which nobody knows after a lost reply  TestTakeWithoutAReply, TestGivingBackWithoutAReply
//	objects are read from znodes                   TestInboxesOfThousands, and the fuzz tests of znode

// TestV1NewestVersionLeadsWithoutDetours: the old members took the lead one after another, each to find that it was not
// the newest.
func TestV1NewestVersionLeadsWithoutDetours(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Leader, "task")
		d.Prefer = group.Newest
		g.Add(d)
	})
	f.join("assigner", "1.0")
	newest := f.join("newest", "2.0", "task")
	h := f.take(newest, "task")
	takers := map[string]*member.Member{}
	for i := range 6 {
		id := fmt.Sprintf("old-%d", i)
		takers[id] = f.join(id, fmt.Sprintf("1.%d", i), "task")
	}
	next := f.join("next", "1.9", "task") // the last in the queue
	takers["next"] = next
	taken := make(chan string, len(takers))
	for id, m := range takers {
		go func() {
			if _, err := m.Take(t.Context(), "task"); err == nil {
				taken <- id
			}
		}()
	}
	if err := newest.Leave(); err != nil {
		t.Fatal(err)
	}
	if who := receive(t, taken, "the next holder"); who != "next" {
		t.Errorf("%s took it, which is not the newest", who)
	}
	_, stat, err := f.s.Get(t.Context(), f.run("duty/task"))
	if err != nil || stat.Version != 2 {
		t.Errorf("%v: the duty was taken %d times, after epoch %d", err, stat.Version, h.Epoch)
	}
}

// TestV2HandOverJustAfterTheTake: a leader that was told to go before it listened led for ever.
func TestV2HandOverJustAfterTheTake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	f.join("assigner", "1.0")
	a, proxy := f.joinBehind("a", "task")
	held := f.run("duty/task/held")
	told := make(chan struct{})
	tell := sync.OnceFunc(func() {
		f.ask(znode.Ask{Do: znode.AskPause, Duty: "task"})
		close(told)
	})
	proxy.BeforeSend(func(op int32, req []byte) bool { // never happens: it only looks
		if op != zkserver.OpExists || !bytes.Contains(req, []byte(held)) {
			return false
		}
		if _, taken, err := f.s.Exists(t.Context(), held); err == nil && taken { // the holder begins to watch
			tell()
		}
		return false
	})
	h := f.take(a, "task")
	receive(t, told, "the pause")
	receive(t, h.HandOver(), "the holder to know that it has to hand over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "task"})
	if again := f.take(a, "task"); again.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, h.Epoch)
	}
}

// TestV3HandOverDuringTheTake: what the assigner has taken back meanwhile is not taken.
func TestV3HandOverDuringTheTake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	f.join("assigner", "1.0")
	a, proxy := f.joinBehind("a", "task")
	held := []byte(f.run("duty/task/held"))
	moved := make(chan struct{})
	move := sync.OnceFunc(func() {
		f.ask(znode.Ask{Do: znode.AskPause, Duty: "task"})
		close(moved)
	})
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == zkserver.OpMulti && bytes.Contains(req, held) {
			move()
		}
		return false
	})
	taken := make(chan *member.Hold, 1)
	go func() {
		h, _ := a.Take(t.Context(), "task")
		taken <- h
	}()
	receive(t, moved, "the pause")
	if _, there, err := f.s.Exists(t.Context(), f.run("duty/task/held")); err != nil || there {
		t.Errorf("the duty is held although it is paused: %v", err)
	}
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "task"})
	if h := receive(t, taken, "the take"); h == nil || h.Check(t.Context()) != nil {
		t.Error("the duty was not taken after the pause")
	}
}

// TestV4ReconnectingMovesNothing: LeaderLatch made a new node at each reconnect, and two processes handed the lead to
// each other for ever (CURATOR-644, CURATOR-645, FLINK-28078).
func TestV4ReconnectingMovesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	a, aProxy := f.joinBehind("a", "task")
	b, bProxy := f.joinBehind("b", "task")
	h := f.take(a, "task")
	for range 20 {
		aProxy.Cut()
		bProxy.Cut()
		if err := h.Check(t.Context()); err != nil && !errors.Is(err, member.ErrUnknown) {
			t.Fatalf("after a reconnect: %v", err)
		}
	}
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
	_, stat, err := f.s.Get(t.Context(), f.run("duty/task"))
	if err != nil || stat.Version != 1 || len(f.children("seat")) != 2 {
		t.Errorf("%v: the duty was taken %d times, and the seats are %q", err, stat.Version, f.children("seat"))
	}
	if b.Context().Err() != nil {
		t.Error("the other member was lost")
	}
}

// TestV5NothingIsTakenWithADyingSession: a process that came back found the node of its old session, believed to lead,
// and lost the node with that session (CURATOR-498, CURATOR-604).
func TestV5NothingIsTakenWithADyingSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	f.join("assigner", "1.0")
	old, proxy := f.joinBehind("a", "task")
	h := f.take(old, "task")
	proxy.Hang(true) // the process has died; its session has not
	s := dial(t)
	again, err := member.Join(t.Context(), s, f.config("a", "1.0", "task"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Leave() })
	next := f.take(again, "task")
	proxy.Hang(false)
	_ = ended(t, old.Context())
	for _, path := range []string{f.group.Path() + "/a", f.run("duty/task/held")} {
		if _, stat, err := f.s.Get(t.Context(), path); err != nil || stat.EphemeralOwner != s.ID() {
			t.Errorf("%s belongs to session %x, %v", path, stat.EphemeralOwner, err)
		}
	}
	if err := next.Check(t.Context()); err != nil || next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d: %v", next.Epoch, h.Epoch, err)
	}
}

// TestV6CancelledCandidateHoldsNobodyUp: a candidate that gave up left its node in the queue, and everybody waited for
// it (kazoo 116, 482, 732).
func TestV6CancelledCandidateHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "task")
	a, b := f.join("a", "1.0", "task"), f.join("b", "1.0", "task")
	h := f.take(a, "task")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() {
			_, err := b.Take(ctx, "task")
			waiting <- err
		}()
		cancel()
		if err := receive(t, waiting, "the candidate that gave up"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if names := f.children("duty/task"); !slices.Equal(names, []string{"held"}) {
		t.Errorf("the duty has %q", names)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if next := f.take(b, "task"); next.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, h.Epoch)
	}
}
