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

	"muster/dev/fault"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func complete(t *testing.T, m *worker.Member) {
	t.Helper()
	if err := m.Complete(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// generations lists the folders of all generations of a job's root.
func generations(t *testing.T, j job.Job) []string {
	t.Helper()
	names, _, err := dial(t).Children(t.Context(), znode.RunDir(j.Root))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestLeaveKeepsTheID and how the command ended; the membership is over.
func TestLeaveKeepsTheID(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := join(t, j, "w0")
	join(t, j, "w1")
	code := 137
	if err := m.Leave(t.Context(), worker.End{Exit: &code, Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(m.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("the membership ended with %v", cause)
	}
	if o := look(t, store, j); o.Status() != job.Degraded || o.Live != 1 {
		t.Errorf("observed %s, %d live", o.Status(), o.Live)
	}
	again := join(t, j, "w0")
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	want := znode.Claim{Nonce: ws[0].Claim.Nonce, Lives: 2, State: znode.In, Exit: &code, Signal: "KILL"}
	if d := cmp.Diff(want, ws[0].Claim); d != "" || again.ID != 0 {
		t.Errorf("came back as %d, claim (-want +got):\n%s", again.ID, d)
	}
}

// TestLastToCompleteDoesWhatOnCompleteSays: ZooKeeper decides which of N is the last, when all complete at once.
func TestLastToCompleteDoesWhatOnCompleteSays(t *testing.T) {
	t.Parallel()
	for do, want := range map[job.OnComplete]resource.Status{
		job.Reset: resource.StatusReady, job.Remove: resource.StatusMissing, job.Retain: job.Completed,
	} {
		t.Run(string(do), func(t *testing.T) {
			const n = 8
			j, store := newJob(t, n, onComplete(do))
			members := make([]*worker.Member, n)
			for i := range n {
				c := config(j, fmt.Sprint("w", i))
				c.Run = "monday"
				m := joinIn(t, dial(t), c)
				members[i] = m
			}
			var all sync.WaitGroup
			for _, m := range members {
				all.Go(func() { complete(t, m) })
			}
			all.Wait()
			o := look(t, store, j)
			if o.Status() != want {
				t.Fatalf("the job is %s, want %s", o.Status(), want)
			}
			left := map[resource.Status]int{resource.StatusReady: 1, resource.StatusMissing: 0, job.Completed: 1}[want]
			if g := generations(t, j); len(g) != left {
				t.Errorf("generations %v, want %d", g, left)
			}
			if do != job.Reset {
				return
			}
			g := members[0].Generation
			last := job.LastRun(o.Record)
			if last == nil {
				t.Fatal("the record does not name the run")
			}
			at, err := time.Parse(time.RFC3339, last.Completed)
			want := &job.Run{ID: "monday", Generation: g, Completed: last.Completed}
			if d := cmp.Diff(want, last); d != "" || err != nil || at.IsZero() {
				t.Errorf("last run (-want +got), %v:\n%s", err, d)
			}
			if o.Record.Edited() || o.Record.Generation == g || len(resource.Changes(o.Record.Declaration, j)) > 0 {
				t.Errorf("the record after the run: %+v", o.Record)
			}
		})
	}
}

// TestFinishingBeforeOthersJoined does not end the job: N completions do.
func TestFinishingBeforeOthersJoined(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 3)
	for i := range 2 {
		m := join(t, j, fmt.Sprint("w", i))
		if m.ID != i {
			t.Errorf("id %d, want %d", m.ID, i)
		}
		complete(t, m)
		if o := look(t, store, j); o.Status() != job.Forming || o.Live != 0 {
			t.Errorf("after %d of 3: %s, %d live", i+1, o.Status(), o.Live)
		}
	}
	complete(t, join(t, j, "w2"))
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("after all: %s", o.Status())
	}
}

// TestLastCannotPutTheJobBack: it has completed all the same.
func TestLastCannotPutTheJobBack(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m := joinIn(t, s, config(j, "w0"))
	proxy.AfterReply(func(_ int32, req []byte) bool {
		if completes(req) {
			proxy.Refuse(true) // it never comes back
		}
		return completes(req)
	})
	go func() { <-m.Context().Done(); s.Close() }() // it knows that it has completed
	if err := m.Complete(t.Context(), 0); !errors.Is(err, worker.ErrUnfinished) || errors.Is(err, zkconn.ErrUnknown) {
		t.Errorf("complete: %v, want %v", err, worker.ErrUnfinished)
	}
	if o := look(t, store, j); o.Status() != job.Completed {
		t.Errorf("the job is %s", o.Status())
	}
}

// TestCrashedLastWorker: the one that is missing comes back, and completes the job; if it dies between its completion
// and the reset, the next apply does that.
func TestCrashedLastWorker(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	complete(t, join(t, j, "w0"))
	crash(t, j, "w1")
	if o := look(t, store, j); o.Class() != resource.Stale {
		t.Errorf("after the crash: %s", o.Status())
	}
	again := join(t, j, "w1")
	if again.ID != 1 {
		t.Errorf("id %d, want 1", again.ID)
	}
	complete(t, again)
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("after all: %s", o.Status())
	}

	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	complete(t, join(t, j, "w0"))
	last := joinIn(t, s, config(j, "w1"))
	done := ""
	fired := proxy.BeforeSend(func(op int32, req []byte) bool { // the reset, which is after the completion
		if isMulti(op, req) && done == "" && completes(req) {
			done = "yes"
			return false
		}
		if isMulti(op, req) && done != "" {
			proxy.Refuse(true) // it never comes back
		}
		return isMulti(op, req) && done != ""
	})
	go func() { <-fired; s.Close() }()
	if err := last.Complete(t.Context(), 0); err == nil {
		t.Error("a reset that was cut off is no error")
	}
	o := look(t, store, j)
	if o.Status() != job.Completed {
		t.Fatalf("after the cut: %s", o.Status())
	}
	if err := store.Commit(t.Context(), plan.Row{Path: j.Path(), Old: o, New: j, Reason: plan.CompletedDone}); err != nil {
		t.Error(err)
	}
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("after the next apply: %s", o.Status())
	}
}

// TestExpiryInEachPhase: a session that ends takes no completion and no id with it.
func TestExpiryInEachPhase(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 3)
	s0, s1 := dial(t), dial(t)
	m0 := joinIn(t, s0, config(j, "w0"))
	s0.Close() // while it waits for the others
	<-m0.Context().Done()
	m0 = join(t, j, "w0")
	m1 := joinIn(t, s1, config(j, "w1"))
	complete(t, m0)
	s1.Close() // while its command runs, which goes on
	<-m1.Context().Done()
	m1, err := m1.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	m2 := join(t, j, "w2")
	// Between the end of its command and its completion.
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "w2"), -1); err != nil {
		t.Fatal(err)
	}
	complete(t, m2)
	if o := look(t, store, j); job.Done(o) != 2 || o.Status() != job.Running {
		t.Errorf("with 1 of 3 at work: %s, %d completed", o.Status(), job.Done(o))
	}
	complete(t, m1)
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("after all: %s", o.Status())
	}
}

// TestJobThatIsBeingTerminatedIsNotReset by a last worker that completes instead of leaving.
func TestJobThatIsBeingTerminatedIsNotReset(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	m := join(t, j, "w0")
	terminated := make(chan error, 1)
	go func() { terminated <- store.Terminate(t.Context(), j.Path(), time.Minute, nil) }()
	if err := m.StopRequested(t.Context()); err != nil {
		t.Fatal(err)
	}
	complete(t, m)
	if err := <-terminated; err != nil {
		t.Fatal(err)
	}
	if o := look(t, store, j); o != nil {
		t.Errorf("the job is %s", o.Status())
	}
}

// TestACLOfTheJob: all that workers write, also in a reset, has the ACL of the Record.
func TestACLOfTheJob(t *testing.T) {
	t.Parallel()
	auth := zkconn.Auth{Scheme: "digest", Data: []byte("me:secret")}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Auth: []zkconn.Auth{auth}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := job.Default()
	j.Root, j.Name, j.Workers = "/test-"+zkstate.NewID(), "j", 1
	store, err := zkstate.NewStore(s, zkstate.Config{
		Home: j.Root + "/home", Stack: "tests", ACL: []string{"auth::cdrwa"}, Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		t.Fatal(err)
	}
	create(t, store, j)
	m := joinIn(t, s, config(j, "w0"))
	stranger := dial(t)
	for _, path := range []string{
		znode.Live(j.Root, j.Name, "w0"),
		znode.ByIdentity(j.Root, m.Generation, "w0"),
		znode.ID(j.Root, m.Generation, 0),
	} {
		if _, err := stranger.Set(t.Context(), path, nil, -1); !errors.Is(err, zkconn.ErrNoAuth) {
			t.Errorf("%s: %v, want %v", path, err, zkconn.ErrNoAuth)
		}
	}
	complete(t, m)
	if _, err := stranger.Set(t.Context(), j.Path(), nil, -1); !errors.Is(err, zkconn.ErrNoAuth) {
		t.Errorf("%s: %v, want %v", j.Path(), err, zkconn.ErrNoAuth)
	}
}

// completeAndDie joins, completes, and dies before it can do what on_complete says.
func completeAndDie(t *testing.T, c worker.Config) {
	t.Helper()
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m := joinIn(t, s, c)
	proxy.AfterReply(func(_ int32, req []byte) bool {
		if completes(req) {
			proxy.Refuse(true) // it never comes back
		}
		return completes(req)
	})
	go func() { <-m.Context().Done(); s.Close() }()
	if err := m.Complete(t.Context(), 0); !errors.Is(err, worker.ErrUnfinished) {
		t.Fatalf("complete: %v, want %v", err, worker.ErrUnfinished)
	}
}

func ofRun(j job.Job, run, identity string) worker.Config {
	c := config(j, identity)
	c.Run = run
	return c
}

// TestResetOutlastsADeadJoiner: a worker that came too late died before it could withdraw. Its live znode refuses the
// reset until its session ends.
func TestResetOutlastsADeadJoiner(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	first := join(t, j, "w0")
	proxy := newProxy(t)
	release := make(chan struct{})
	late := dialFor(t, 8*time.Second, proxy.Addr()) // it must outlast the join of w1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claiming := make(chan struct{})
	claims := 0
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op != fault.OpMulti || !mentions(req, "/late") {
			return false
		}
		if claims++; claims == 1 {
			close(claiming)
			<-release
			return false
		}
		proxy.Refuse(true) // it withdraws
		return true
	})
	joined := call(func() error { _, err := worker.Join(ctx, late, config(j, "late")); return err })
	<-claiming
	last := join(t, j, "w1")
	close(release)
	live := znode.Live(j.Root, j.Name, "late")
	observer := dial(t)
	rig.Await(t, "the late one to be live", func() bool {
		_, there, err := observer.Exists(t.Context(), live)
		return err == nil && there
	})
	complete(t, first)
	complete(t, last)
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("the job is %s", o.Status())
	}
	cancel()
	if err := result(t, joined); err == nil {
		t.Error("the late one joined")
	}
}

// TestNextRunDoesTheReset if the last worker of a run died before it. Its workers may wait already.
func TestNextRunDoesTheReset(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	waits := make(chan struct{}, 100)
	early := ofRun(j, "tuesday", "w1")
	early.Waiting = func(string) { waits <- struct{}{} }
	next := make(chan *worker.Member, 2)
	monday := ofRun(j, "monday", "w0")
	first, err := worker.Join(t.Context(), dial(t), monday)
	if err != nil {
		t.Fatal(err)
	}
	s := dial(t)
	go func() {
		m, err := worker.Join(t.Context(), s, early)
		if err != nil {
			t.Error(err)
		}
		next <- m
	}()
	<-waits
	if err := first.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	completeAndDie(t, monday)
	m := <-next
	if m == nil || m.ID != 0 || m.Generation == first.Generation {
		t.Fatalf("the worker of the next run: %+v", m)
	}
	if last := job.LastRun(look(t, store, j).Record); last == nil || last.ID != "monday" {
		t.Errorf("the last run: %+v", last)
	}
	complete(t, m)
	completeAndDie(t, config(j, "w0"))
	if m, err := worker.Join(t.Context(), dial(t), config(j, "w1")); err != nil || m.ID != 0 {
		t.Errorf("a worker that names no run, after one that named none: %+v, %v", m, err)
	}
}

// TestReturningWorkerDoesTheReset, and does not run its command again.
func TestReturningWorkerDoesTheReset(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	completeAndDie(t, config(j, "w0"))
	if o := look(t, store, j); o.Status() != job.Completed {
		t.Fatalf("the job is %s", o.Status())
	}
	if _, err := tryJoin(t, config(j, "w0")); !errors.Is(err, worker.ErrDone) {
		t.Errorf("the worker comes back: %v", err)
	}
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("the job is %s", o.Status())
	}
}

// TestNextRunRemoves a job as on_complete says, and then waits for it to be created; a retained job is retained.
func TestNextRunRemoves(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1, onComplete(job.Remove))
	completeAndDie(t, ofRun(j, "monday", "w0"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := ofRun(j, "tuesday", "w0")
	c.Waiting = func(what string) {
		if strings.Contains(what, "the job to be created") {
			cancel()
		}
	}
	if _, err := worker.Join(ctx, dial(t), c); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("the next run: %v", err)
	}
	if o := look(t, store, j); o != nil {
		t.Errorf("the job is %s", o.Status())
	}

	kept, store := newJob(t, 1, onComplete(job.Retain))
	complete(t, join(t, kept, "w0"))
	if _, err := tryJoin(t, config(kept, "w1")); !errors.Is(err, worker.ErrFull) {
		t.Errorf("a worker comes to a retained job: %v", err)
	}
	if o := look(t, store, kept); o.Status() != job.Completed {
		t.Errorf("the retained job is %s", o.Status())
	}
}

// TestManyOfTheNextRun come at once to a job that nobody has reset: all of them are in the same new generation.
func TestManyOfTheNextRun(t *testing.T) {
	t.Parallel()
	const n = 8
	j, _ := newJob(t, n)
	for i := range n - 1 {
		m, err := worker.Join(t.Context(), dial(t), ofRun(j, "monday", string(rune('a'+i))))
		if err != nil {
			t.Fatal(err)
		}
		complete(t, m)
	}
	completeAndDie(t, ofRun(j, "monday", "last"))
	all := make(chan string, n)
	for i := range n {
		s := dial(t)
		go func() {
			m, err := worker.Join(t.Context(), s, ofRun(j, "tuesday", string(rune('a'+i))))
			if err != nil {
				t.Error(err)
				all <- ""
				return
			}
			all <- m.Generation
		}()
	}
	g := <-all
	for range n - 1 {
		if other := <-all; other != g || g == "" {
			t.Errorf("generations %q and %q", g, other)
		}
	}
}
