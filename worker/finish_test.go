package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/znode"
)

// completeAndDie joins, completes, and dies before it can do what on_complete says.
func completeAndDie(t *testing.T, c worker.Config) {
	t.Helper()
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m, err := worker.Join(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
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
		if op != zkserver.OpMulti || !mentions(req, "/late") {
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
