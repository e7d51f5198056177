package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ofGang makes a job a gang with so many restarts.
func ofGang(restarts int) func(*job.Job) {
	return func(j *job.Job) {
		g := job.DefaultGang()
		g.Restarts, g.Final = restarts, resource.Codes{2}
		j.Gang = &g
	}
}

// gang is a gang whose workers have joined, each in a session of its own.
type gang struct {
	t        *testing.T
	job      job.Job
	members  []*worker.Member
	sessions []*zkconn.Session
	attempts []*worker.Attempt // as each has read it last
}

func newGang(t *testing.T, n, restarts int) *gang {
	t.Helper()
	j, _ := newJob(t, n, ofGang(restarts))
	g := &gang{t: t, job: j, attempts: make([]*worker.Attempt, n)}
	for i := range n {
		g.sessions = append(g.sessions, dial(t))
		g.members = append(g.members, joinIn(t, g.sessions[i], config(j, fmt.Sprint("w-", i))))
	}
	return g
}

// each calls f for the workers with these ids, or for all, at once.
func (g *gang) each(f func(i int) error, ids ...int) {
	g.t.Helper()
	if ids == nil {
		for i := range g.members {
			ids = append(ids, i)
		}
	}
	var all sync.WaitGroup
	for _, i := range ids {
		all.Go(func() {
			if err := f(i); err != nil {
				g.t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// read is the attempt as worker i reads it now.
func (g *gang) read(i int) *worker.Attempt {
	g.t.Helper()
	a, err := g.members[i].Attempt(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	g.attempts[i] = a
	return a
}

// start starts an attempt with all.
func (g *gang) start(number int) {
	g.t.Helper()
	g.each(func(i int) error {
		if a := g.read(i); a.Begun || a.Failed() || a.Number != number {
			return fmt.Errorf("the attempt is %+v", a.GangAttempt)
		}
		return g.members[i].StartAttempt(g.t.Context(), g.attempts[i])
	})
}

// loss is what worker i is told while the command runs.
func (g *gang) loss(i int) error { return g.members[i].AwaitLoss(g.t.Context(), g.attempts[i]) }

func (g *gang) moved(i int) error {
	if err := g.loss(i); !errors.Is(err, worker.ErrMoved) {
		return fmt.Errorf("it is told %w", err)
	}
	return nil
}

func (g *gang) finish() {
	g.t.Helper()
	g.each(func(i int) error {
		if err := g.members[i].FinishAttempt(g.t.Context(), g.attempts[i]); err != nil {
			return err
		}
		return g.members[i].Complete(g.t.Context(), 0)
	})
}

// TestGangFinishes: all start, all finish, and the job is reset.
func TestGangFinishes(t *testing.T) {
	t.Parallel()
	g := newGang(t, 3, 0)
	g.start(1)
	g.finish()
}

// TestGangRestarts: one is lost, one of the others decides, and all begin again when it is back. What was published is
// gone, and the barriers begin anew.
func TestGangRestarts(t *testing.T) {
	t.Parallel()
	g := newGang(t, 3, 1)
	g.start(1)
	ctx := t.Context()
	if err := g.members[0].Publish(ctx, "key", []byte("1")); err != nil {
		t.Fatal(err)
	}
	meet := func(i int) error { return g.members[i].Barrier(ctx, worker.Barrier{Name: "b"}) }
	g.each(meet)
	g.sessions[1].Close()
	var lost *worker.LostError
	if err := g.loss(0); !errors.As(err, &lost) || !cmp.Equal(lost.IDs, []int{1}) {
		t.Fatalf("worker 0 is told %v", err)
	}
	if err := g.members[0].Decide(ctx, g.attempts[0], worker.Loss{Because: lost.Error(), Lost: lost.IDs}); err != nil {
		t.Fatal(err)
	}
	g.each(g.moved, 2)
	if err := g.members[2].Publish(ctx, "key", nil); err != nil { // its command has not heard of it yet
		t.Error(err)
	}
	if err := g.members[2].FinishAttempt(ctx, g.attempts[2]); !errors.Is(err, worker.ErrMoved) {
		t.Errorf("it finishes an attempt that is over: %v", err)
	}
	if err := g.members[2].Decide(ctx, g.attempts[2], worker.Loss{Because: "late"}); err != nil {
		t.Errorf("it decides an attempt that is over: %v", err)
	}
	g.members[1] = joinIn(t, dial(t), config(g.job, "w-1"))
	g.start(2)
	want := znode.GangAttempt{
		Number: 2, Used: 1, State: znode.GangOpen, Because: "worker 1 is gone", By: "w-0", Lost: []int{1},
	}
	if d := cmp.Diff(want, g.attempts[1].GangAttempt); d != "" {
		t.Errorf("attempt (-want +got):\n%s", d)
	}
	if missing, err := g.members[2].Unpublished(ctx, "key", nil); err != nil || len(missing) != 3 {
		t.Errorf("%v have published nothing, %v", missing, err)
	}
	if n, err := g.members[0].NextRound(ctx, "b"); err != nil || n != 0 {
		t.Errorf("the next round is %d, %v", n, err)
	}
	g.each(meet)
	g.finish()
}

// TestGangFails: at the last restart, and at an exit code that is final.
func TestGangFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restarts int
		loss     worker.Loss
		failed   bool
		used     int
	}{
		"none is left":   {0, worker.Loss{Because: "x"}, true, 0},
		"one is left":    {1, worker.Loss{Because: "x"}, false, 1},
		"final":          {1, worker.Loss{Because: "x", Exit: new(2)}, true, 0},
		"cannot run":     {1, worker.Loss{Because: "x", Exit: new(127)}, true, 0},
		"another code":   {1, worker.Loss{Because: "x", Exit: new(3)}, false, 1},
		"drained":        {1, worker.Loss{Because: "x", Drained: true}, false, 0},
		"drained, alone": {0, worker.Loss{Because: "x", Drained: true}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGang(t, 2, c.restarts)
			g.start(1)
			if err := g.members[0].Decide(t.Context(), g.attempts[0], c.loss); err != nil {
				t.Fatal(err)
			}
			g.each(g.moved)
			if a := g.read(1); a.Failed() != c.failed || a.Used != c.used || !cmp.Equal(a.Exit, c.loss.Exit) {
				t.Errorf("attempt %+v", a.GangAttempt)
			}
		})
	}
}

// TestOneOutcome: everybody decides, or finishes, at the same moment. All learn of one outcome.
func TestOneOutcome(t *testing.T) {
	t.Parallel()
	g := newGang(t, 4, 10)
	for attempt := 1; ; attempt++ {
		g.start(attempt)
		finished := make([]bool, len(g.members))
		g.each(func(i int) error {
			if i == 0 && attempt < 5 {
				return g.members[i].Decide(t.Context(), g.attempts[i], worker.Loss{Because: "now"})
			}
			err := g.members[i].FinishAttempt(t.Context(), g.attempts[i])
			if finished[i] = err == nil; errors.Is(err, worker.ErrMoved) {
				return nil
			}
			return err
		})
		all := !cmp.Equal(finished, make([]bool, len(finished)))
		if d := cmp.Diff([]bool{all, all, all, all}, finished); attempt >= 5 && d != "" {
			t.Fatalf("attempt %d: finished (-want +got):\n%s", attempt, d)
		}
		if a := g.read(0); a.Number != attempt || attempt >= 5 {
			if attempt >= 5 {
				return
			}
			continue
		}
		t.Fatalf("attempt %d: nobody has decided", attempt)
	}
}

// TestAttemptAborts when somebody is missing for as long as the gang waits. The next to come wait anew.
func TestAttemptAborts(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2, ofGang(0), func(j *job.Job) { j.Gang.Wait = resource.Duration(200 * time.Millisecond) })
	m := join(t, j, "w-0")
	a, err := m.Attempt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var aborted *worker.AbortedError
	if err := m.StartAttempt(t.Context(), a); !errors.As(err, &aborted) || !cmp.Equal(aborted.Missing, []int{1}) {
		t.Fatalf("worker 0: %v", err)
	}
	want := &worker.AbortedError{Name: znode.StartBarrier, Round: 1, Attempt: 1, Missing: []int{1}, Retry: true}
	if d := cmp.Diff(want, aborted, cmpopts.IgnoreFields(worker.AbortedError{}, "Why")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestWithdraw: who is asked to end before the attempt has begun is not counted, and after it cannot take that back.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	g := newGang(t, 2, 0)
	g.read(0)
	ended := make(chan error, 1)
	go func() { ended <- g.members[0].StartAttempt(t.Context(), g.attempts[0]) }()
	arrival := znode.Arrival(znode.StartRound(g.job.Root, g.members[0].Generation, 1), 0)
	rig.Await(t, "it has arrived", func() bool {
		_, there, err := g.sessions[1].Exists(t.Context(), arrival)
		return err == nil && there
	})
	if begun, err := g.members[0].Withdraw(t.Context(), g.attempts[0]); begun || err != nil {
		t.Fatalf("begun %v, %v", begun, err)
	}
	if _, there, err := g.sessions[1].Exists(t.Context(), arrival); there || err != nil {
		t.Errorf("its arrival is there: %v, %v", there, err)
	}
	if err := g.members[0].Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	<-ended
	g.members[0] = joinIn(t, g.sessions[0], config(g.job, "w-0"))
	g.start(1)
	if begun, err := g.members[0].Withdraw(t.Context(), g.attempts[0]); !begun || err != nil {
		t.Errorf("begun %v, %v", begun, err)
	}
}

// TestGangOutlivesItsLastWorker: the last worker whose command ended well loses its session before it is told so. In
// the next one it still does what on_complete says. Who is away until then is told that it has completed.
func TestGangOutlivesItsLastWorker(t *testing.T) {
	t.Parallel()
	g := newGang(t, 2, 0)
	g.start(1)
	away, stay := g.members[1], g.members[0]
	early, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- away.FinishAttempt(early, g.attempts[1]) }()
	rig.Await(t, "it has arrived", func() bool {
		arrival := znode.Arrival(znode.FinishRound(g.job.Root, away.Generation, 1), 1)
		_, there, err := g.sessions[0].Exists(t.Context(), arrival)
		return err == nil && there
	})
	cancel()
	<-ended
	g.sessions[1].Close()
	if err := stay.FinishAttempt(t.Context(), g.attempts[0]); err != nil {
		t.Fatal(err)
	}
	g.sessions[0].Close()
	back, err := stay.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Complete(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	store := storeIn(t, dial(t), g.job)
	if o := rig.Look(t, store, g.job.Path()); o.Status() != resource.StatusReady {
		t.Errorf("the job is %s", o.Status())
	}
	if _, err := away.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrDone) {
		t.Errorf("who was away is told %v", err)
	}
}

// TestAttemptByHand: a long reason is cut; while an attempt is deleted its workers go on; and one that somebody has
// spoilt makes its job unreadable, and no other.
func TestAttemptByHand(t *testing.T) {
	t.Parallel()
	g := newGang(t, 2, 3)
	g.start(1)
	ctx, at := t.Context(), znode.GangAttemptAt(g.job.Root, g.members[0].Generation)
	long := strings.Repeat("long\xff", 300)
	if err := g.members[0].Decide(ctx, g.attempts[0], worker.Loss{Because: long}); err != nil {
		t.Fatal(err)
	}
	g.start(2)
	if n := len(g.attempts[0].Because); n < 900 {
		t.Errorf("the reason has %d bytes", n)
	}
	s, moved := dial(t), make(chan error, 1)
	go func() { moved <- g.members[1].AwaitLoss(ctx, g.attempts[1]) }()
	store := storeIn(t, s, g.job)
	if err := s.Delete(ctx, at, -1); err != nil {
		t.Fatal(err)
	}
	o := rig.Look(t, store, g.job.Path())
	if o.Status() != resource.StatusDamaged {
		t.Errorf("without its attempt the job is %s", o.Status())
	}
	body, err := znode.Encode(g.attempts[0].GangAttempt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, at, body, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
		t.Fatal(err)
	}
	if a := g.read(0); a.Number != 2 || !a.Begun {
		t.Errorf("it is put back as %+v", a.GangAttempt)
	}
	if err := g.members[0].Decide(ctx, g.attempts[0], worker.Loss{Because: "on"}); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; !errors.Is(err, worker.ErrMoved) {
		t.Errorf("who waited is told %v", err)
	}
	if _, err := s.Set(ctx, at, []byte("zz"), -1); err != nil {
		t.Fatal(err)
	}
	if o := rig.Look(t, store, g.job.Path()); o.Status() != resource.StatusUnreadable {
		t.Errorf("with a spoilt attempt the job is %s", o.Status())
	}
}
