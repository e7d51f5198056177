package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// joinBehind joins behind a proxy of its own.
func (f *fixture) joinBehind(identity string, can ...string) (*member.Member, *zkserver.Proxy) {
	f.t.Helper()
	p := newProxy(f.t)
	m, err := member.Join(f.t.Context(), rig.Dial(f.t, 4*time.Second, p.Addr()), f.config(identity, "1.0", can...))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Leave() })
	return m, p
}

// TestFrozenHolderCannotWrite: a holder that is frozen does not learn that somebody deleted held and that another
// member took the duty. Its session lives, and what it sends is refused.
func TestFrozenHolderCannotWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	assigner := f.join("assigner", "1.0")
	a, frozen := f.joinBehind("a", "coordinator")
	h := f.take(a, "coordinator")
	b := f.join("b", "1.0", "coordinator")
	frozen.Hang(true)
	written := make(chan error, 1)
	go func() { written <- h.Check(t.Context()) }()
	f.until("the write to be under way", func() bool { return frozen.Requests()[zkserver.OpMulti] >= 3 })
	if err := f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "b"})
	next := f.take(b, "coordinator")
	frozen.Hang(false)
	if err := rig.Receive(t, written, "the write of the old holder"); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the holder of epoch %d wrote after %d had taken the duty: %v", h.Epoch, next.Epoch, err)
	}
	if err := ended(t, h.Context()); !errors.Is(err, member.ErrNotHeld) {
		t.Errorf("the hold ended with %v", err)
	}
	if a.Context().Err() != nil || assigner.Context().Err() != nil {
		t.Error("a membership has ended too")
	}
}

// TestTakeWithoutAReply: the answer to a take is lost, whether or not it was committed. The member holds the duty once.
func TestTakeWithoutAReply(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"committed": (*zkserver.Proxy).DropReply, "not sent": (*zkserver.Proxy).BeforeSend,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			f.join("assigner", "1.0")
			a, p := f.joinBehind("a", "coordinator")
			held := []byte(f.run("duty/coordinator/held"))
			cut := arm(p, func(op int32, req []byte) bool { return op == zkserver.OpMulti && bytes.Contains(req, held) })
			h := f.take(a, "coordinator")
			rig.Receive(t, cut, "the fault")
			if err := h.Check(t.Context()); err != nil {
				t.Error(err)
			}
			_, stat, err := f.s.Get(t.Context(), f.run("duty/coordinator"))
			if err != nil || stat.Mzxid != h.Epoch {
				t.Errorf("epoch %d of a take at %d, %v", h.Epoch, stat.Mzxid, err)
			}
		})
	}
}

// TestGivingBackWithoutAReply: the next member gets the duty, however the answer was lost, and a resignation is told
// once.
func TestGivingBackWithoutAReply(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"committed": (*zkserver.Proxy).DropReply, "not sent": (*zkserver.Proxy).BeforeSend,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			f.join("assigner", "1.0")
			a, p := f.joinBehind("a", "coordinator")
			h := f.take(a, "coordinator")
			b := f.join("b", "1.0", "coordinator")
			inbox := []byte(f.run("resigned"))
			cut := arm(p, func(op int32, req []byte) bool { return op == zkserver.OpMulti && bytes.Contains(req, inbox) })
			if err := h.Resign(t.Context(), true, "exit code 3"); err != nil {
				t.Fatal(err)
			}
			rig.Receive(t, cut, "the fault")
			f.take(b, "coordinator")
			heard := map[string]int{"committed": 2, "not sent": 1}[name] // sent again, it may come after the decision
			for seat, failure := range f.memory().Failures["coordinator"] {
				if failure.Count < 1 || failure.Count > heard || failure.Tries != failure.Count {
					t.Errorf("%s: %+v", seat, failure)
				}
			}
		})
	}
}

// TestAssignerDiesBetweenTwoTransactions: a roster of 600 seats takes two transactions. The assigner dies after the
// first, and its successor completes what it began. The decision that lost its answer is not made twice.
func TestAssignerDiesBetweenTwoTransactions(t *testing.T) {
	t.Parallel()
	const many = 600
	for name, arm := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"after the first": (*zkserver.Proxy).BeforeSend, "after the second": (*zkserver.Proxy).DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.change(func(g *group.Group) {
				for i := range many {
					g.Add(group.NewDuty(group.Leader, fmt.Sprintf("duty-%04d", i)))
				}
			})
			assigner, p := f.joinBehind("first")
			rosters, seat := 0, []byte(f.run("seat")+"/")
			cut := arm(p, func(op int32, req []byte) bool {
				if op == zkserver.OpMulti && bytes.Count(req, seat) > many/10 { // not one that only says why
					rosters++
				}
				return rosters == 2
			})
			f.seatsByHand(many)
			rig.Receive(t, cut, "the second transaction")
			given := func() (n int) {
				for _, duties := range f.seats() {
					n += len(duties)
				}
				return n
			}
			p.Refuse(true)
			p.Cut()
			if err := ended(t, assigner.Context()); !errors.Is(err, member.ErrSessionLost) {
				t.Errorf("the assigner ended with %v", err)
			}
			if n := given(); (n == many) != (name == "after the second") || n == 0 {
				t.Errorf("%d duties were given when the assigner died", n)
			}
			f.raiseAssign(2) // the seats made by hand come before, and know the first method
			successor, err := member.JoinKnowing(t.Context(), dial(t), f.config("second", "1.0"), 2)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { successor.Leave() })
			f.until("all seats to have a duty", func() bool { return given() == many })
		})
	}
}

// TestDeletedByHand: whatever somebody deletes, one member holds the duty again, with a larger epoch.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	for name, below := range map[string][]string{
		"the duty":            {"duty/coordinator/held", "duty/coordinator"},
		"the assigner's seat": {"seat/s-0000000000"},
		"all seats":           {"seat/s-0000000000", "seat/s-0000000001", "seat/s-0000000002"},
		"seat and the duty":   {"seat/s-0000000001", "duty/coordinator/held", "duty/coordinator"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			f.join("assigner", "1.0")
			a := f.join("a", "1.0", "coordinator")
			b := f.join("b", "1.0", "coordinator")
			h := f.take(a, "coordinator")
			var ops []zkconn.Op
			for _, path := range below {
				ops = append(ops, zkconn.DeleteOp(f.run(path), -1))
			}
			if _, err := f.s.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			if len(ops) == 1 {
				if err := h.Check(t.Context()); err != nil {
					t.Errorf("the assigner's seat is gone, and the holder lost its duty: %v", err)
				}
				return
			}
			_ = ended(t, h.Context())
			epochs := make(chan int64, 3)
			for _, m := range []*member.Member{a, b} {
				go func() {
					h, err := m.Take(t.Context(), "coordinator")
					if errors.Is(err, member.ErrRemoved) {
						m.Leave() // as a process does
						h, err = f.take2(m.Identity)
					}
					if err == nil {
						epochs <- h.Epoch
					}
				}()
			}
			if epoch := rig.Receive(t, epochs, "the next holder"); epoch <= h.Epoch {
				t.Errorf("epoch %d after %d", epoch, h.Epoch)
			}
		})
	}
}

// take2 joins again, and takes the coordinator.
func (f *fixture) take2(identity string) (*member.Hold, error) {
	s, err := zkconn.Dial(f.t.Context(), zkconn.Config{Servers: servers.Addrs(), Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(f.t.Context(), func() { s.Close() })
	m, err := member.Join(f.t.Context(), s, f.config(identity, "1.0", "coordinator"))
	if err != nil {
		return nil, err
	}
	return m.Take(f.t.Context(), "coordinator")
}

// seatsByHand makes the seats of many members that do nothing themselves, at once; one session has them all. Each can
// do the duty of its number.
func (f *fixture) seatsByHand(many int) {
	f.t.Helper()
	var ops []zkconn.Op
	acl := f.acl()
	for i := range many {
		identity := fmt.Sprintf("m-%04d", i)
		live, err := znode.Encode(znode.Present{
			Nonce: "n", Version: "1.0", Can: []string{fmt.Sprintf("duty-%04d", i)}, Ready: true,
		})
		if err != nil {
			f.t.Fatal(err)
		}
		seat, err := znode.Encode(znode.Seat{Identity: identity, Nonce: "n", Assign: 1})
		if err != nil {
			f.t.Fatal(err)
		}
		ops = append(ops,
			zkconn.CreateOp(f.group.Path()+"/"+identity, live, zkconn.Ephemeral, acl),
			zkconn.CreateOp(f.run("seat/s-"), seat, zkconn.EphemeralSequential, acl))
	}
	if _, err := dial(f.t).Multi(f.t.Context(), ops...); err != nil {
		f.t.Fatal(err)
	}
}

// TestFrozenAssignerWritesNothing: a roster is on its way to the server when its assigner loses its seat, and the next
// assigner decides otherwise. What was on its way is refused.
func TestFrozenAssignerWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, slow := f.joinBehind("a")
	b := f.join("b", "1.0", "coordinator")
	f.join("c", "1.0", "coordinator")
	f.take(b, "coordinator")
	slow.Delay(300 * time.Millisecond)
	sent := slow.Requests()[zkserver.OpMulti]
	f.ask2(znode.AskHandover, "c")
	f.until("the assigner to decide", func() bool { return slow.Requests()[zkserver.OpMulti] > sent })
	slow.Hang(true)
	if err := f.s.Delete(t.Context(), f.run("seat/s-0000000000"), -1); err != nil {
		t.Fatal(err)
	}
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
	slow.Hang(false)
	slow.Delay(0)
	if err := a.Leave(); err != nil { // the server executes what came before
		t.Fatal(err)
	}
	if err := f.s.Sync(t.Context(), f.group.Path()); err != nil {
		t.Fatal(err)
	}
	if seats := f.seats(); len(seats["b"])+len(seats["c"]) != 0 {
		t.Errorf("the duty is paused, and the seats are %q", seats)
	}
	if by := f.memory().Paused["coordinator"]; by == "" {
		t.Error("the pause was forgotten")
	}
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "coordinator"})
	f.until("the duty to be given", func() bool {
		seats := f.seats()
		return len(seats["b"])+len(seats["c"]) == 1
	})
}

// TestHandOverJustAfterTheTake: a leader is told to go before it listens, and hears of it.
func TestHandOverJustAfterTheTake(t *testing.T) {
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
	rig.Receive(t, told, "the pause")
	rig.Receive(t, h.HandOver(), "the holder to know that it has to hand over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "task"})
	if again := f.take(a, "task"); again.Epoch <= h.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, h.Epoch)
	}
}

// TestReconnectingMovesNothing: Curator's LeaderLatch made a new node at each reconnect, and two processes handed the
// lead to each other for ever (CURATOR-644, CURATOR-645, FLINK-28078).
func TestReconnectingMovesNothing(t *testing.T) {
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

// TestNothingIsTakenWithADyingSession: a process that came back found the node of its old session, believed to lead,
// and lost the node with that session (CURATOR-498, CURATOR-604).
func TestNothingIsTakenWithADyingSession(t *testing.T) {
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
