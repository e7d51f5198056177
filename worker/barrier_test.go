package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// team is all workers of a job, joined in the order of their ids.
func team(t *testing.T, n int) (job.Job, []*worker.Member) {
	t.Helper()
	j, _ := newJob(t, n)
	ms := make([]*worker.Member, n)
	for i := range ms {
		ms[i] = join(t, j, fmt.Sprint("w-", i))
	}
	return j, ms
}

// slowTeam is a team whose first worker speaks to the server through a proxy.
func slowTeam(t *testing.T, n int, timeout time.Duration) (*fault.Proxy, []*worker.Member) {
	t.Helper()
	proxy := newProxy(t)
	j, _ := newJob(t, n)
	slow := joinIn(t, dialFor(t, timeout, proxy.Addr()), config(j, "w-0"))
	ms := []*worker.Member{slow}
	for i := 1; i < n; i++ {
		ms = append(ms, join(t, j, fmt.Sprint("w-", i)))
	}
	return proxy, ms
}

// call calls f in the background; its result can be received.
func call(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// at calls Barrier in the background.
func at(t *testing.T, m *worker.Member, b worker.Barrier) <-chan error {
	return call(func() error { return m.Barrier(t.Context(), b) })
}

// result receives what call will return; a call that hangs fails the test.
func result(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the call hangs")
		return nil
	}
}

// released fails unless all calls return nil.
func released(t *testing.T, calls ...<-chan error) {
	t.Helper()
	for i, c := range calls {
		if err := result(t, c); err != nil {
			t.Errorf("call %d: %v; want a release", i, err)
		}
	}
}

// aborted fails unless all calls return this abort.
func aborted(t *testing.T, name string, round int, missing []int, calls ...<-chan error) {
	t.Helper()
	for i, c := range calls {
		err := result(t, c)
		var a *worker.AbortedError
		if !errors.As(err, &a) {
			t.Errorf("call %d: %v; want an abort", i, err)
			continue
		}
		want := worker.AbortedError{Name: name, Round: round, Attempt: 1, Why: a.Why, Missing: missing}
		if d := cmp.Diff(want, *a); d != "" || a.Why == "" {
			t.Errorf("call %d: abort (-want +got):\n%s", i, d)
		}
	}
}

func num(n int) *int { return &n }

func roundDir(m *worker.Member, name string, round int) string {
	return znode.Attempt(m.Job.Root, m.Generation, name, round, 1)
}

// arrivals lists the ids that arrived at a round.
func arrivals(t *testing.T, s *zkconn.Session, dir string) []int {
	t.Helper()
	names, _, err := s.Children(t.Context(), znode.Arrivals(dir))
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		t.Fatal(err)
	}
	ids := []int{}
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func awaitArrivals(t *testing.T, s *zkconn.Session, dir string, n int) {
	t.Helper()
	rig.Await(t, fmt.Sprintf("%d arrivals at %s", n, dir), func() bool { return len(arrivals(t, s, dir)) == n })
}

func TestBarrierIsNeverEarly(t *testing.T) {
	t.Parallel()
	const n, rounds = 5, 4
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprint("live=", live), func(t *testing.T) {
			_, ms := team(t, n)
			var mu sync.Mutex
			began := make([]int, rounds)
			var all sync.WaitGroup
			for _, m := range ms {
				all.Go(func() {
					for round := range rounds {
						mu.Lock()
						began[round]++
						mu.Unlock()
						if err := m.Barrier(t.Context(), worker.Barrier{Name: "b", Live: live}); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if began[round] != n {
							t.Errorf("round %d was released with %d workers", round, began[round])
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
		})
	}
}

func TestTimeoutAbortsForAllAndNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 4)
	s := dial(t)
	for _, live := range []bool{false, true} {
		name := fmt.Sprint("live-", live)
		patient := worker.Barrier{Name: name, Live: live}
		first := at(t, ms[0], patient)
		awaitArrivals(t, s, roundDir(ms[0], name, 0), 1)
		hasty := patient
		hasty.Timeout = 10 * time.Millisecond
		aborted(t, name, 0, []int{1, 3}, first, at(t, ms[2], hasty))
		// Workers that come late get the same answer, each once; then all meet in the next round.
		again := worker.Barrier{Name: name, Live: live, Round: num(0)}
		aborted(t, name, 0, []int{1, 3}, at(t, ms[1], patient), at(t, ms[3], again))
		next := []<-chan error{at(t, ms[0], patient), at(t, ms[1], patient), at(t, ms[2], patient)}
		next = append(next, at(t, ms[3], worker.Barrier{Name: name, Live: live, Round: num(1)}))
		released(t, next...)
	}
}

func TestCancelledCallOnlyStopsWaiting(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	first := call(func() error { return ms[0].Barrier(ctx, worker.Barrier{Name: "b"}) })
	awaitArrivals(t, dial(t), roundDir(ms[0], "b", 0), 1)
	cancel()
	if err := result(t, first); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call: %v", err)
	}
	released(t, at(t, ms[1], worker.Barrier{Name: "b"}))
	released(t, at(t, ms[0], worker.Barrier{Name: "b", Round: num(0)}))
}

func TestReleasedRoundsAreCleared(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 3)
	s := dial(t)
	const rounds = 6
	for round := range rounds {
		b := worker.Barrier{Name: "b"}
		if round == 2 {
			b.Timeout = 10 * time.Millisecond
			aborted(t, "b", 2, []int{1, 2}, at(t, ms[0], b))
			aborted(t, "b", 2, []int{1, 2}, at(t, ms[1], b), at(t, ms[2], b))
			continue
		}
		released(t, at(t, ms[0], b), at(t, ms[1], b), at(t, ms[2], b))
	}
	// The last two, the one that the first worker of round 5 made, and the st of the aborted one.
	kept, _, err := s.Children(t.Context(), znode.BarrierFloor(ms[0].Job.Root, ms[0].Generation, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"2", "4", "5", "6"}, kept); d != "" {
		t.Errorf("rounds that are kept (-want +got):\n%s", d)
	}
	left, _, err := s.Children(t.Context(), roundDir(ms[0], "b", 2))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"st"}, left); d != "" {
		t.Errorf("what is kept of the aborted round (-want +got):\n%s", d)
	}
	// A worker that repeats a round after a crash gets the old answer.
	aborted(t, "b", 2, []int{1, 2}, at(t, ms[1], worker.Barrier{Name: "b", Round: num(2)}))
	for _, round := range []int{0, 1, 3, 4, 5} {
		released(t, at(t, ms[1], worker.Barrier{Name: "b", Round: num(round)}))
	}
}

// TestSkippedRoundsAreCleared: explicit rounds may have gaps.
func TestSkippedRoundsAreCleared(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	for _, round := range []int{3, 7, 20, 21} {
		b := worker.Barrier{Name: "b", Round: num(round)}
		released(t, at(t, ms[0], b), at(t, ms[1], b))
	}
	kept, _, err := dial(t).Children(t.Context(), znode.BarrierFloor(ms[0].Job.Root, ms[0].Generation, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"20", "21", "22"}, kept); d != "" {
		t.Errorf("rounds that are kept (-want +got):\n%s", d)
	}
}

func TestBarrierRefuses(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	for _, b := range []worker.Barrier{
		{}, {Name: "a/b"}, {Name: znode.StartBarrier}, {Name: "b", Round: num(-1)}, {Name: "b", Round: num(1 << 40)},
	} {
		if err := ms[0].Barrier(t.Context(), b); err == nil {
			t.Errorf("%+v was accepted", b)
		}
	}
	first := at(t, ms[0], worker.Barrier{Name: "b"})
	awaitArrivals(t, dial(t), roundDir(ms[0], "b", 0), 1)
	err := ms[1].Barrier(t.Context(), worker.Barrier{Name: "b", Live: true})
	if err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a live call of a durable round: %v", err)
	}
	released(t, at(t, ms[1], worker.Barrier{Name: "b"}), first)
}

// TestArrivalSurvivesTheProcess: a durable arrival counts though the process dies, and its next life learns the
// outcome.
func TestArrivalSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	s := dial(t)
	m := joinIn(t, s, config(j, "w-0"))
	other := join(t, j, "w-1")
	first := at(t, m, worker.Barrier{Name: "b"})
	awaitArrivals(t, dial(t), roundDir(m, "b", 0), 1)
	s.Close()
	if err := result(t, first); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Errorf("the call of who died: %v", err)
	}
	released(t, at(t, other, worker.Barrier{Name: "b"}))
	again := join(t, j, "w-0")
	released(t, at(t, again, worker.Barrier{Name: "b", Round: num(0)}))
	released(t, at(t, again, worker.Barrier{Name: "b"}), at(t, other, worker.Barrier{Name: "b"}))
	if got := arrivals(t, dial(t), roundDir(m, "b", 1)); len(got) != 2 {
		t.Errorf("the implicit round after the return was not 1, where %v arrived", got)
	}
}

// TestLiveArrivalEndsWithTheSession: nobody passes while one of them is dead.
func TestLiveArrivalEndsWithTheSession(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	s, observer := dial(t), dial(t)
	m := joinIn(t, s, config(j, "w-0"))
	ms := []*worker.Member{m, join(t, j, "w-1"), join(t, j, "w-2")}
	dir := roundDir(m, znode.StartBarrier, 0)
	start := func(m *worker.Member) <-chan error {
		return call(func() error { return m.StartBarrier(t.Context(), 0, nil) })
	}
	dead := start(m)
	awaitArrivals(t, observer, dir, 1)
	s.Close()
	if err := result(t, dead); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Errorf("the call of who died: %v", err)
	}
	second := start(ms[1])
	awaitArrivals(t, observer, dir, 1)
	third := start(ms[2])
	awaitArrivals(t, observer, dir, 2)
	if _, there, err := observer.Exists(t.Context(), znode.Counted(dir, 2)); err != nil || there {
		t.Errorf("released without a dead worker: %v, %v", there, err)
	}
	back, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	released(t, start(back), second, third)
	released(t, start(back)) // it is passed once: a worker that comes later passes at once
}

// TestLiveArrivalOfAnOlderSessionDoesNotCount: the new session replaces it.
func TestLiveArrivalOfAnOlderSessionDoesNotCount(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 2)
	old := dial(t)
	b := worker.Barrier{Name: "b", Live: true}
	first := at(t, ms[0], b)
	dir := roundDir(ms[0], "b", 0)
	rig.Await(t, "the first to have counted itself alone, and made the next round", func() bool {
		_, made, err := old.Exists(t.Context(), znode.RoundState(roundDir(ms[0], "b", 1)))
		return err == nil && made
	})
	world := zkconn.World(zkconn.PermAll)
	if _, err := old.Create(t.Context(), znode.Arrival(dir, 1), nil, zkconn.Ephemeral, world); err != nil {
		t.Fatal(err)
	}
	released(t, at(t, ms[1], b), first)
	old.Close()
	if got := arrivals(t, dial(t), dir); len(got) != 2 {
		t.Errorf("arrivals %v: that of the older session was counted", got)
	}
}

// tap calls see with every request that passes the proxy from now on.
func tap(p *fault.Proxy, see func(op int32, req []byte)) {
	p.BeforeSend(func(op int32, req []byte) bool {
		see(op, req)
		return false
	})
}

// mentions reports whether a request names a znode, or one below it.
func mentions(req []byte, path string) bool { return bytes.Contains(req, []byte(path)) }

// hold keeps the nth request that mentions the path from the server until release is closed, if it is not nil. held
// is closed when the request is there.
func hold(p *fault.Proxy, path string, nth int, release <-chan struct{}) (held <-chan struct{}) {
	ch := make(chan struct{})
	seen := 0
	tap(p, func(_ int32, req []byte) {
		if !mentions(req, path) {
			return
		}
		if seen++; seen == nth {
			close(ch)
			if release != nil {
				<-release
			}
		}
	})
	return ch
}

// TestArrivalsDoNotContend: each of many that arrive at once needs one transaction.
func TestArrivalsDoNotContend(t *testing.T) {
	t.Parallel()
	const n = 33
	proxy := newProxy(t)
	j, _ := newJob(t, n)
	s := dial(t, proxy.Addr())
	b := worker.Barrier{Name: "b", Round: num(0)}
	calls := []<-chan error{at(t, join(t, j, "w-0"), b)}
	var rest []*worker.Member
	for i := 1; i < n; i++ {
		m := joinIn(t, s, config(j, fmt.Sprint("w-", i)))
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

// TestEverybodyCountsToTheSameN: it is the one in the round, whatever a worker believes.
func TestEverybodyCountsToTheSameN(t *testing.T) {
	t.Parallel()
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
	m := joinIn(t, s, config(j, "w-0"))
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

// TestReleaseWithAnotherProcessIsNotOfThisCall: the call's attempt was aborted, and the round was released at a later
// one with another process that took the worker over. When all that is cleared the call is told that it is fenced.
func TestReleaseWithAnotherProcessIsNotOfThisCall(t *testing.T) {
	t.Parallel()
	proxy, ms := slowTeam(t, 2, time.Minute)
	b := worker.Barrier{Name: "b", Retry: true}
	mine := b
	mine.Round, mine.Attempt = num(0), new(int)
	abortedAt(t, 1, []int{1}, at(t, ms[0], hasty(mine)))
	proxy.Hang(true)
	if err := dial(t).Delete(t.Context(), znode.Live(ms[0].Job.Root, ms[0].Job.Name, "w-0"), -1); err != nil {
		t.Fatal(err)
	}
	now := join(t, ms[0].Job, "w-0")
	for range 3 {
		released(t, at(t, now, b), at(t, ms[1], b))
	}
	proxy.Hang(false)
	if err := result(t, at(t, ms[0], mine)); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("%v, want %v", err, worker.ErrFenced)
	}
}

// TestArrivalAtAnAttemptSurvivesTheProcess: the next life of a worker goes on at the attempt at which it had arrived.
func TestArrivalAtAnAttemptSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	s, observer := dial(t), dial(t)
	m := joinIn(t, s, config(j, "w-0"))
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
