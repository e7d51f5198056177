package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
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
	ws, err := store.Workers(t.Context(), j.Path())
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
				m, err := worker.Join(t.Context(), dial(t), c)
				if err != nil {
					t.Fatal(err)
				}
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
	m, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
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
	last, err := worker.Join(t.Context(), s, config(j, "w1"))
	if err != nil {
		t.Fatal(err)
	}
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
	m0, err := worker.Join(t.Context(), s0, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	s0.Close() // while it waits for the others
	<-m0.Context().Done()
	m0 = join(t, j, "w0")
	m1, err := worker.Join(t.Context(), s1, config(j, "w1"))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, m0)
	s1.Close() // while its command runs, which goes on
	<-m1.Context().Done()
	if m1, err = m1.Rejoin(t.Context(), dial(t)); err != nil {
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
	m, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
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
