package worker_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The classic worker controller's barrier was a counter and a znode that the last of N removed. These are the bugs of
// that design, by the numbers under which they are known.

// slowTeam is a team whose first worker speaks to the server through a proxy.
func slowTeam(t *testing.T, n int, timeout time.Duration) (*zkserver.Proxy, []*worker.Member) {
	t.Helper()
	proxy := newProxy(t)
	j, _ := newJob(t, n)
	slow, err := worker.Join(t.Context(), dialFor(t, timeout, proxy.Addr()), config(j, "w-0"))
	if err != nil {
		t.Fatal(err)
	}
	ms := []*worker.Member{slow}
	for i := 1; i < n; i++ {
		ms = append(ms, join(t, j, fmt.Sprint("w-", i)))
	}
	return proxy, ms
}

// TestB1LateWaiterIsNotLeftBehind: a worker is slow between its arrival and its wait; meanwhile the others pass.
func TestB1LateWaiterIsNotLeftBehind(t *testing.T) {
	proxy, ms := slowTeam(t, 3, time.Minute)
	b := worker.Barrier{Name: "b", Round: num(0)}
	dir := roundDir(ms[0], "b", 0)
	others := make(chan struct{})
	held := hold(proxy, znode.Counted(dir, 2), 1, others) // its watch of T
	slow := at(t, ms[0], b)
	<-held
	released(t, at(t, ms[1], b), at(t, ms[2], b))
	close(others)
	released(t, slow)
}

// TestB2FastReentry: released workers enter the next round before a slow one has heard of its release.
func TestB2FastReentry(t *testing.T) {
	proxy, ms := slowTeam(t, 3, time.Minute)
	b := worker.Barrier{Name: "b"}
	dir := roundDir(ms[0], "b", 0)
	watching := hold(proxy, znode.Counted(dir, 2), 1, nil)
	slow := at(t, ms[0], b)
	<-watching
	proxy.Hang(true)
	released(t, at(t, ms[1], b), at(t, ms[2], b))
	fast := []<-chan error{at(t, ms[1], b), at(t, ms[2], b)}
	awaitArrivals(t, dial(t), roundDir(ms[0], "b", 1), 2)
	proxy.Hang(false)
	released(t, slow)
	released(t, append(fast, at(t, ms[0], b))...)
}

// TestB3TimeoutLeavesNothingBehind: after an abort the next rounds are released by N arrivals again.
func TestB3TimeoutLeavesNothingBehind(t *testing.T) {
	_, ms := team(t, 3)
	s := dial(t)
	aborted(t, "b", 0, []int{1, 2}, at(t, ms[0], worker.Barrier{Name: "b", Timeout: time.Millisecond}))
	for round := 1; round <= 3; round++ {
		b := worker.Barrier{Name: "b", Round: &round}
		two := []<-chan error{at(t, ms[0], b), at(t, ms[1], b)}
		awaitArrivals(t, s, roundDir(ms[0], "b", round), 2)
		if _, there, err := s.Exists(t.Context(), znode.Counted(roundDir(ms[0], "b", round), 2)); err != nil || there {
			t.Errorf("round %d was released by two of three: %v, %v", round, there, err)
		}
		released(t, append(two, at(t, ms[2], b))...)
	}
}

// TestB4CrashInsideCountsOnce: a worker that crashes inside a barrier and comes back is not counted twice.
func TestB4CrashInsideCountsOnce(t *testing.T) {
	j, _ := newJob(t, 3)
	s, observer := dial(t), dial(t)
	m, err := worker.Join(t.Context(), s, config(j, "w-0"))
	if err != nil {
		t.Fatal(err)
	}
	b := worker.Barrier{Name: "b", Round: num(0)}
	dead := at(t, m, b)
	dir := roundDir(m, "b", 0)
	awaitArrivals(t, observer, dir, 1)
	s.Close()
	if err := result(t, dead); err == nil {
		t.Error("the crashed worker passed")
	}
	calls := []<-chan error{at(t, join(t, j, "w-0"), b), at(t, join(t, j, "w-1"), b)}
	awaitArrivals(t, observer, dir, 2)
	count, _, err := observer.Exists(t.Context(), znode.Count(dir))
	if err != nil || count.NumChildren != 2 {
		t.Errorf("%d are counted, %v; want 2", count.NumChildren, err)
	}
	released(t, append(calls, at(t, join(t, j, "w-2"), b))...)
}

// TestB5LastArrivalNeedsNoReleaser: the last worker dies with its arrival; the others are released.
func TestB5LastArrivalNeedsNoReleaser(t *testing.T) {
	proxy, ms := slowTeam(t, 3, time.Minute)
	b := worker.Barrier{Name: "b", Round: num(0)}
	others := []<-chan error{at(t, ms[1], b), at(t, ms[2], b)}
	awaitArrivals(t, dial(t), roundDir(ms[0], "b", 0), 2)
	fired := proxy.DropReply(func(op int32, _ []byte) bool {
		if op == zkserver.OpMulti {
			proxy.Refuse(true) // it never comes back
		}
		return op == zkserver.OpMulti
	})
	last := at(t, ms[0], b)
	<-fired
	released(t, others...)
	proxy.Refuse(false)
	released(t, last)
}

// TestB6ErrorWhileWaitingDoesNotCountAgain, and TestB7LostReplyDoesNotCountAgain: whatever happens to the connection
// around an arrival, it is one.
func TestB6ErrorWhileWaitingDoesNotCountAgain(t *testing.T) {
	oneArrival(t, (*zkserver.Proxy).AfterReply)
}

func TestB7LostReplyDoesNotCountAgain(t *testing.T) { oneArrival(t, (*zkserver.Proxy).DropReply) }

func oneArrival(t *testing.T, fault func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}) {
	proxy, ms := slowTeam(t, 3, time.Minute)
	b := worker.Barrier{Name: "b", Round: num(0)}
	dir := roundDir(ms[0], "b", 0)
	second := at(t, ms[1], b)
	awaitArrivals(t, dial(t), dir, 1)
	fired := fault(proxy, isMulti)
	first := at(t, ms[0], b)
	<-fired
	awaitArrivals(t, dial(t), dir, 2)
	count, _, err := dial(t).Exists(t.Context(), znode.Count(dir))
	if err != nil || count.NumChildren != 2 {
		t.Errorf("%d are counted, %v; want 2", count.NumChildren, err)
	}
	released(t, first, second, at(t, ms[2], b))
}

// TestB8ArrivalsDoNotContend: each of many that arrive at once needs one transaction.
func TestB8ArrivalsDoNotContend(t *testing.T) {
	const n = 33
	proxy := newProxy(t)
	j, _ := newJob(t, n)
	s := dial(t, proxy.Addr())
	b := worker.Barrier{Name: "b", Round: num(0)}
	calls := []<-chan error{at(t, join(t, j, "w-0"), b)}
	var rest []*worker.Member
	for i := 1; i < n; i++ {
		m, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w-", i)))
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, m)
	}
	awaitArrivals(t, s, roundDir(rest[0], "b", 0), 1)
	var writes atomic.Int32
	tap(proxy, func(op int32, req []byte) {
		if isMulti(op, req) && mentions(req, roundDir(rest[0], "b", 0)) {
			writes.Add(1)
		}
	})
	for _, m := range rest {
		calls = append(calls, at(t, m, b))
	}
	released(t, calls...)
	if got := writes.Load(); got != n-1 {
		t.Errorf("%d transactions for %d arrivals", got, n-1)
	}
}

// TestB9EverybodyCountsToTheSameN: it is the one in the round, whatever a worker believes.
func TestB9EverybodyCountsToTheSameN(t *testing.T) {
	_, ms := team(t, 3)
	b := worker.Barrier{Name: "b", Round: num(0)}
	first := at(t, ms[0], b)
	dir := roundDir(ms[0], "b", 0)
	awaitArrivals(t, dial(t), dir, 1)
	ms[1].Job.Workers = 2
	second := at(t, ms[1], b)
	awaitArrivals(t, dial(t), dir, 2)
	select {
	case err := <-second:
		t.Errorf("released by two of three: %v", err)
	default:
	}
	released(t, first, second, at(t, ms[2], b))
}

// TestB10OldBarrierOfTheSameNameIsNotHonoured: a new generation of a job starts with its own rounds.
func TestB10OldBarrierOfTheSameNameIsNotHonoured(t *testing.T) {
	j, store := newJob(t, 2)
	b := worker.Barrier{Name: "b", Round: num(0)}
	var sessions []*zkconn.Session
	generation := func() []*worker.Member {
		var ms []*worker.Member
		for i := range 2 {
			s := dial(t)
			m, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w-", i)))
			if err != nil {
				t.Fatal(err)
			}
			ms, sessions = append(ms, m), append(sessions, s)
		}
		return ms
	}
	old := generation()
	released(t, at(t, old[0], b), at(t, old[1], b))
	for _, s := range sessions {
		s.Close()
	}
	await(t, "nobody is live", func() bool { return look(t, store, j).Live == 0 })
	replace := plan.Row{Path: j.Path(), Old: look(t, store, j), New: j, Reason: plan.StaleLeftover}
	if err := store.Commit(t.Context(), replace); err != nil {
		t.Fatal(err)
	}
	ms := generation()
	first := at(t, ms[0], b)
	awaitArrivals(t, dial(t), roundDir(ms[0], "b", 0), 1)
	select {
	case err := <-first:
		t.Errorf("the old round was honoured: %v", err)
	default:
	}
	released(t, first, at(t, ms[1], b))
}
