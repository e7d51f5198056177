package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestRollHasEverybody by id, and waits until all have joined.
func TestRollHasEverybody(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	first := join(t, j, "w0")
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := first.Roll(hasty); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the others: %v", err)
	}
	join(t, j, "w1")
	join(t, j, "w2")
	roll, err := first.Roll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joined, err := first.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(joined, roll); d != "" {
		t.Errorf("roll (-joined +roll):\n%s", d)
	}
}

func joinTimeout(d time.Duration) func(*job.Job) {
	return func(j *job.Job) { j.Timeouts.Join = resource.Duration(d) }
}

func TestWaitAllWaitsForTheLast(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	ms := []*worker.Member{join(t, j, "w-0"), join(t, j, "w-1")}
	var waits []<-chan error
	for _, m := range ms {
		waits = append(waits, call(func() error { return m.WaitAll(t.Context()) }))
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var absent *worker.AbsentError
	if err := ms[0].WaitAll(short); !errors.As(err, &absent) {
		t.Errorf("with one missing: %v", err)
	}
	last := join(t, j, "w-2")
	released(t, append(waits, call(func() error { return last.WaitAll(t.Context()) }))...)
}

// TestWaitAllThatIsNotTold by a server that hangs, while the last worker joins at another server. It asks when the
// time is over; if nobody answers, nothing is known.
func TestWaitAllThatIsNotTold(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"answers_later": true, "never_answers": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t)
			j, _ := newJob(t, 2)
			m := joinIn(t, dialFor(t, time.Minute, proxy.Addr()), config(j, "w-0"))
			proxy.Hang(true)
			asked := hold(proxy, znode.ID(j.Root, m.Generation, 1), 1, nil)
			ctx := newDeadline()
			wait := call(func() error { return m.WaitAll(ctx) })
			<-asked
			join(t, j, "w-1")
			ctx.pass()
			if answers {
				proxy.Hang(false)
			}
			err := <-wait
			var absent *worker.AbsentError
			unknown := errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &absent)
			if answers && err != nil || !answers && !unknown {
				t.Error(err)
			}
			proxy.Hang(false)
		})
	}
}

// TestWaitAllDoesNotPoll: how many messages a waiter costs does not depend on how long it waits, nor on how many come.
func TestWaitAllDoesNotPoll(t *testing.T) {
	t.Parallel()
	const n = 12
	proxy := newProxy(t)
	j, _ := newJob(t, n)
	m := joinIn(t, dial(t, proxy.Addr()), config(j, "w-0"))
	last := znode.ID(j.Root, m.Generation, n-1)
	reads := make(chan int32, 100)
	tap(proxy, func(op int32, req []byte) {
		if op != fault.OpMulti && (mentions(req, last) || mentions(req, znode.By(j.Root, m.Generation))) {
			reads <- op
		}
	})
	wait := call(func() error { return m.WaitAll(t.Context()) })
	got := []int32{<-reads} // when this is answered it waits
	for i := 1; i < n; i++ {
		join(t, j, fmt.Sprint("w-", i))
	}
	released(t, wait)
	close(reads)
	for op := range reads {
		got = append(got, op)
	}
	// The read that sets the watch; then there is one event.
	if d := cmp.Diff([]int32{fault.OpExists}, got); d != "" {
		t.Errorf("requests of a waiter (-want +got):\n%s", d)
	}
}

func TestWaitAllSaysWhoIsAbsent(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 5, joinTimeout(50*time.Millisecond))
	m := join(t, j, "w-0")
	crash(t, j, "w-3")
	err := m.WaitAll(t.Context())
	var absent *worker.AbsentError
	if !errors.As(err, &absent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("WaitAll: %v", err)
	}
	want := worker.AbsentError{Workers: 5, Joined: 2, NotLive: []string{"w-3"}, Missing: []string{"w-1", "w-2", "w-4"}}
	if d := cmp.Diff(want, *absent); d != "" {
		t.Errorf("absent (-want +got):\n%s", d)
	}
	text := "2 of 5 workers have joined; missing: w-1, w-2, w-4; joined, but not live: w-3"
	if d := cmp.Diff(text, err.Error()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
	// With an identity that has no index nobody can tell who is missing.
	join(t, j, "another")
	if err := m.WaitAll(t.Context()); !errors.As(err, &absent) || absent.Joined != 3 || absent.Missing != nil {
		t.Errorf("WaitAll: %v", err)
	}
}

func TestWaitAllEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	s := dial(t)
	m := joinIn(t, s, config(j, "w-0"))
	ctx, cancel := context.WithCancel(t.Context())
	wait := call(func() error { return m.WaitAll(ctx) })
	cancel()
	if err := result(t, wait); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wait = call(func() error { return m.WaitAll(t.Context()) })
	s.Close()
	if err := result(t, wait); err == nil || !errors.Is(err, context.Cause(m.Context())) {
		t.Errorf("without a session: %v", err)
	}
}

func TestPeersAreFound(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	m := join(t, j, "a")
	s := dial(t)
	c := config(j, "b")
	c.Info.Port = 7001
	other := joinIn(t, s, c)
	want := []worker.Worker{
		{Identity: "a", Worker: znode.Worker{ID: 0, IP: "127.0.0.1", Port: 7000}},
		{Identity: "b", Worker: znode.Worker{ID: 1, IP: "127.0.0.1", Port: 7001}},
	}
	live, err := m.Live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, live); d != "" {
		t.Errorf("live (-want +got):\n%s", d)
	}
	s.Close()
	<-other.Context().Done()
	rig.Await(t, "b is not live", func() bool { live, err = m.Live(t.Context()); return err == nil && len(live) == 1 })
	joined, err := m.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want[0].Identity, want[1].Identity = "", ""
	if d := cmp.Diff(want, joined); d != "" {
		t.Errorf("joined (-want +got):\n%s", d)
	}
	c.Info.Port = 7002 // it comes back elsewhere
	if _, err := worker.Join(t.Context(), dial(t), c); err != nil {
		t.Fatal(err)
	}
	if w, err := m.Lookup(t.Context(), 1); err != nil || w.Address() != "127.0.0.1:7002" {
		t.Errorf("worker 1 is at %s, %v", w.Address(), err)
	}
	for _, id := range []int{-1, 2, 3} {
		if _, err := m.Lookup(t.Context(), id); !errors.Is(err, worker.ErrNoWorker) {
			t.Errorf("worker %d: %v", id, err)
		}
	}
}

// TestALateJoinIsNoPeer: nobody sees a join that came too late before it withdraws.
func TestALateJoinIsNoPeer(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	m := join(t, j, "w0")
	writeDeadJoin(t, m, "late")
	body, err := znode.EncodeWorker(znode.Worker{ID: 1, IP: "127.0.0.1", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	live, world := znode.Live(j.Root, j.Name, "late"), zkconn.World(zkconn.PermAll)
	if _, err := dial(t).Create(t.Context(), live, body, zkconn.Ephemeral, world); err != nil {
		t.Fatal(err)
	}
	ws, err := m.Live(t.Context())
	if err != nil || len(ws) != 1 || ws[0].ID != 0 {
		t.Errorf("live: %+v, %v", ws, err)
	}
}

// TestWaitingAgainAndAgain costs the session one watch, however often the waiter gives up.
func TestWaitingAgainAndAgain(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	// It has room for about 80 watches.
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Small: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := joinIn(t, s, config(j, "w0"))
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		err := m.WaitAll(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	wait := call(func() error { return m.WaitAll(t.Context()) })
	join(t, j, "w1")
	if err := result(t, wait); err != nil {
		t.Error(err)
	}
}

func TestChangesFollowsWhoIsLive(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	m := join(t, j, "w-0")
	ctx, cancel := context.WithCancel(t.Context())
	s := dial(t)
	steps := []func(){
		func() {
			if _, err := worker.Join(t.Context(), s, config(j, "w-1")); err != nil {
				t.Error(err)
			}
		},
		func() { s.Close() },
		cancel,
	}
	want := [][]int{{0}, {0, 1}, {0}}
	var got [][]int
	var last error
	for ws, err := range m.Changes(ctx) {
		if last = err; err != nil {
			break
		}
		ids := make([]int, len(ws))
		for i, w := range ws {
			ids[i] = w.ID
		}
		if len(got) > 0 && slices.Equal(ids, got[len(got)-1]) {
			continue // one change can be seen twice
		}
		got = append(got, ids)
		go steps[min(len(got), len(steps))-1]()
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("live (-want +got):\n%s", d)
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
}
