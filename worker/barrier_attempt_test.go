package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// hasty is b with a timeout that is over at once.
func hasty(b worker.Barrier) worker.Barrier {
	b.Timeout = time.Millisecond
	return b
}

// abortedAt fails unless all calls return the abort of this attempt, after which there is another.
func abortedAt(t *testing.T, attempt int, missing []int, calls ...<-chan error) {
	t.Helper()
	for i, c := range calls {
		err := result(t, c)
		var a *worker.AbortedError
		if !errors.As(err, &a) {
			t.Fatalf("call %d: %v; want an abort", i, err)
		}
		if a.Attempt != attempt || !a.Retry || cmp.Diff(missing, a.Missing) != "" {
			t.Errorf("call %d: %+v; want attempt %d, missing %v", i, a, attempt, missing)
		}
		if !strings.Contains(err.Error(), "the next call is another attempt") {
			t.Errorf("call %d does not say what to do: %v", i, err)
		}
	}
}

func attemptDir(m *worker.Member, name string, round, attempt int) string {
	return znode.Attempt(m.Job.Root, m.Generation, name, round, attempt)
}

// kept lists the folders of a barrier.
func kept(t *testing.T, s *zkconn.Session, m *worker.Member, name string) []string {
	t.Helper()
	names, _, err := s.Children(t.Context(), znode.BarrierFloor(m.Job.Root, m.Generation, name))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestAbortEndsOnlyTheAttempt: everybody who waited is told; then all N meet in the next attempt, and nobody counts for
// it who arrived at the one before.
func TestAbortEndsOnlyTheAttempt(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 3)
	s := dial(t)
	for _, live := range []bool{false, true} {
		b := worker.Barrier{Name: fmt.Sprint("live-", live), Live: live, Retry: true}
		first := at(t, ms[0], b)
		awaitArrivals(t, s, attemptDir(ms[0], b.Name, 0, 1), 1)
		abortedAt(t, 1, []int{2}, at(t, ms[1], hasty(b)), first)
		abortedAt(t, 2, []int{0, 1}, at(t, ms[2], hasty(b)))
		third := attemptDir(ms[0], b.Name, 0, 3)
		two := []<-chan error{at(t, ms[2], b), at(t, ms[1], b)}
		awaitArrivals(t, s, third, 2)
		if _, there, err := s.Exists(t.Context(), znode.Counted(third, 2)); err != nil || there {
			t.Errorf("released without a worker that arrived only at the first attempt: %v, %v", there, err)
		}
		for attempt := 1; attempt <= 2; attempt++ {
			if got := arrivals(t, s, attemptDir(ms[0], b.Name, 0, attempt)); len(got) > 0 {
				t.Errorf("attempt %d still holds the arrivals %v", attempt, got)
			}
		}
		explicit := b
		explicit.Round = num(0)
		released(t, append(two, at(t, ms[0], b))...)
		released(t, at(t, ms[1], explicit)) // after a crash: this round was released
		released(t, at(t, ms[0], b), at(t, ms[1], b), at(t, ms[2], b))
		if got := arrivals(t, s, attemptDir(ms[0], b.Name, 1, 1)); len(got) != 3 {
			t.Errorf("the round after it was not round 1, where %v arrived", got)
		}
	}
}

// TestCallKeepsItsAttempt over the loss of its session: it is told of the abort of its own attempt, though others are
// at the next one already.
func TestCallKeepsItsAttempt(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	s := dial(t)
	m, err := worker.Join(t.Context(), s, config(j, "w-0"))
	if err != nil {
		t.Fatal(err)
	}
	other := join(t, j, "w-1")
	b := worker.Barrier{Name: "b", Round: num(0), Retry: true}
	mine := b
	mine.Attempt = new(int)
	lost := at(t, m, mine)
	awaitArrivals(t, dial(t), attemptDir(m, "b", 0, 1), 1)
	s.Close()
	if err := result(t, lost); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Errorf("the call in the lost session: %v", err)
	}
	// The abort's missing are those of a moment: the other one never was there.
	c := worker.Barrier{Name: "b", Round: num(0), Retry: true, Timeout: time.Millisecond}
	late, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	abortedAt(t, 1, []int{1}, at(t, late, c))
	next := at(t, other, b)
	awaitArrivals(t, dial(t), attemptDir(m, "b", 0, 2), 1)
	abortedAt(t, 1, []int{1}, at(t, late, mine))
	released(t, at(t, late, b), next)
}

// TestArrivalAtAnAttemptSurvivesTheProcess: the next life of a worker goes on at the attempt at which it had arrived.
func TestArrivalAtAnAttemptSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	s, observer := dial(t), dial(t)
	m, err := worker.Join(t.Context(), s, config(j, "w-0"))
	if err != nil {
		t.Fatal(err)
	}
	other := join(t, j, "w-1")
	b := worker.Barrier{Name: "b", Retry: true}
	abortedAt(t, 1, []int{1}, at(t, m, hasty(b)))
	dead := at(t, m, b)
	awaitArrivals(t, observer, attemptDir(m, "b", 0, 2), 1)
	s.Close()
	if err := result(t, dead); err == nil {
		t.Error("who died passed")
	}
	released(t, at(t, other, b))
	released(t, at(t, join(t, j, "w-0"), worker.Barrier{Name: "b", Round: num(0), Retry: true}))
}

// TestRetryIsSaidByAll: who says it meets nobody who does not.
func TestRetryIsSaidByAll(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	b := worker.Barrier{Name: "b", Retry: true}
	first := at(t, ms[0], b)
	awaitArrivals(t, dial(t), attemptDir(ms[0], "b", 0, 1), 1)
	for _, other := range []worker.Barrier{{Name: "b"}, {Name: "b", Live: true}, {Name: "b", Live: true, Retry: true}} {
		err := result(t, at(t, ms[1], other))
		if err == nil || !strings.Contains(err.Error(), "durable-retry") {
			t.Errorf("%+v: %v", other, err)
		}
	}
	released(t, at(t, ms[1], b), first)
}

// TestAbortWithoutRetryIsFinal, and says so.
func TestAbortWithoutRetryIsFinal(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	b := worker.Barrier{Name: "b", Round: num(0)}
	for range 2 {
		err := result(t, at(t, ms[0], hasty(b)))
		var a *worker.AbortedError
		if !errors.As(err, &a) || a.Retry || !strings.Contains(err.Error(), "final") {
			t.Errorf("%v", err)
		}
	}
	retry := b
	retry.Retry = true
	if err := result(t, at(t, ms[1], retry)); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("another attempt at a round without attempts: %v", err)
	}
}

// TestRoundsWithAttemptsAreCleared as other rounds are, and what was released counts as released.
func TestRoundsWithAttemptsAreCleared(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	s := dial(t)
	b := worker.Barrier{Name: "b", Retry: true}
	both := func() { released(t, at(t, ms[0], b), at(t, ms[1], b)) }
	both()
	for attempt := 1; attempt <= 2; attempt++ {
		abortedAt(t, attempt, []int{0}, at(t, ms[1], hasty(b)))
	}
	both()
	for range 3 {
		both()
	}
	if d := cmp.Diff([]string{"3", "4", "5"}, kept(t, s, ms[0], "b")); d != "" {
		t.Errorf("what is kept (-want +got):\n%s", d)
	}
	for round := range 5 {
		again := b
		again.Round = num(round)
		released(t, at(t, ms[0], again))
	}
}

// TestClearingGoesOnWhereItStopped: a process died after it had deleted the st of a round with attempts.
func TestClearingGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	s := dial(t)
	b := worker.Barrier{Name: "b", Retry: true}
	both := func() { released(t, at(t, ms[0], b), at(t, ms[1], b)) }
	abortedAt(t, 1, []int{0}, at(t, ms[1], hasty(b)))
	both()
	both()
	st := znode.RoundState(attemptDir(ms[0], "b", 0, 1))
	if _, err := s.Multi(t.Context(), zkconn.DeleteOp(st, 1)); err != nil {
		t.Fatal(err)
	}
	both()
	both()
	if d := cmp.Diff([]string{"2", "3", "4"}, kept(t, s, ms[0], "b")); d != "" {
		t.Errorf("what is kept (-want +got):\n%s", d)
	}
}

// TestClearingOfAnAttemptGoesOnWhereItStopped: it stopped when the last arrival, which had released it, was gone.
func TestClearingOfAnAttemptGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	proxy, ms := slowTeam(t, 2, time.Minute)
	s := dial(t)
	b := worker.Barrier{Name: "b", Retry: true}
	abortedAt(t, 1, []int{0}, at(t, ms[1], hasty(b)))
	for range 2 {
		released(t, at(t, ms[0], b), at(t, ms[1], b))
	}
	count := znode.Count(attemptDir(ms[0], "b", 0, 2))
	deleted := hold(proxy, count, 3, nil) // after the list of its children, and their delete
	first := at(t, ms[1], b)
	awaitArrivals(t, s, attemptDir(ms[0], "b", 2, 1), 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-deleted
		stop()
	}()
	if err := ms[0].Barrier(ctx, b); err != nil {
		t.Fatal(err)
	}
	released(t, first)
	released(t, at(t, ms[0], b), at(t, ms[1], b))
	if d := cmp.Diff([]string{"2", "3", "4"}, kept(t, s, ms[0], "b")); d != "" {
		t.Errorf("what is kept (-want +got):\n%s", d)
	}
}

// TestNoAttemptIsMadeBelowTheFloor: all have skipped the round.
func TestNoAttemptIsMadeBelowTheFloor(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	s := dial(t)
	b := worker.Barrier{Name: "b", Round: num(0), Retry: true}
	abortedAt(t, 1, []int{0}, at(t, ms[1], hasty(b)))
	for round := 1; round <= 3; round++ {
		next := b
		next.Round = num(round)
		released(t, at(t, ms[0], next), at(t, ms[1], next))
	}
	err := result(t, at(t, ms[0], b))
	var a *worker.AbortedError
	if !errors.As(err, &a) || a.Retry || a.Round != 0 {
		t.Errorf("a skipped round: %v", err)
	}
	if d := cmp.Diff([]string{"0", "2", "3", "4"}, kept(t, s, ms[0], "b")); d != "" {
		t.Errorf("what is kept (-want +got):\n%s", d)
	}
}

// TestStartBarrierHasAttempts: three workers that come again after each abort get through once all are there.
func TestStartBarrierHasAttempts(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 3)
	start := func(m *worker.Member, limit time.Duration) <-chan error {
		return call(func() error { return m.StartBarrier(t.Context(), limit, nil) })
	}
	for attempt := 1; attempt <= 3; attempt++ {
		abortedAt(t, attempt, []int{1, 2}, start(ms[0], time.Millisecond))
	}
	released(t, start(ms[0], 0), start(ms[1], 0), start(ms[2], 0))
	released(t, start(ms[1], 0)) // it is passed once
}

// TestReleasedRoundStaysSoWhileItIsCleared: its first attempt was aborted, and its last one is gone already.
func TestReleasedRoundStaysSoWhileItIsCleared(t *testing.T) {
	t.Parallel()
	proxy, ms := slowTeam(t, 2, time.Minute)
	b := worker.Barrier{Name: "b", Retry: true}
	abortedAt(t, 1, []int{0}, at(t, ms[1], hasty(b)))
	for range 2 {
		released(t, at(t, ms[0], b), at(t, ms[1], b))
	}
	goOn := make(chan struct{})
	held := hold(proxy, znode.Arrivals(attemptDir(ms[0], "b", 0, 1)), 1, goOn) // which is cleared after the last attempt
	first := at(t, ms[1], b)
	awaitArrivals(t, dial(t), attemptDir(ms[0], "b", 2, 1), 1)
	last := at(t, ms[0], b)
	<-held
	again := b
	again.Round = num(0)
	released(t, first, at(t, ms[1], again))
	close(goOn)
	released(t, last)
}

// TestRoundWithoutState: somebody deleted st by hand. The call waits for it, and ends when its time is up.
func TestRoundWithoutState(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	s := dial(t)
	world := zkconn.World(zkconn.PermAll)
	floor := znode.BarrierFloor(ms[0].Job.Root, ms[0].Generation, "b")
	if _, err := s.Multi(t.Context(),
		zkconn.CreateOp(floor, znode.EncodeFloor(0), zkconn.Persistent, world),
		zkconn.CreateOp(roundDir(ms[0], "b", 0), nil, zkconn.Persistent, world),
	); err != nil {
		t.Fatal(err)
	}
	err := result(t, at(t, ms[0], worker.Barrier{Name: "b", Timeout: 200 * time.Millisecond, Round: num(0)}))
	if !errors.Is(err, worker.ErrDamaged) {
		t.Errorf("%v, want %v", err, worker.ErrDamaged)
	}
}
