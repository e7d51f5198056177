package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// fenced waits for the end of a membership and checks its cause.
func fenced(t *testing.T, m *worker.Member) {
	t.Helper()
	select {
	case <-m.Context().Done():
	case <-time.After(patience):
		t.Fatal("still a member")
	}
	if cause := context.Cause(m.Context()); !errors.Is(cause, worker.ErrFenced) {
		t.Errorf("the membership ended with %v, want %v", cause, worker.ErrFenced)
	}
	if err := m.Barrier(t.Context(), worker.Barrier{Name: "b"}); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("barrier: %v, want %v", err, worker.ErrFenced)
	}
	if err := m.Complete(t.Context(), 0); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("complete: %v, want %v", err, worker.ErrFenced)
	}
	if err := m.Leave(t.Context(), worker.End{}); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("leave: %v, want %v", err, worker.ErrFenced)
	}
	if _, err := m.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
}

// TestLiveZnodeDeletedByHandIsMadeAgain, with the id in it as before.
func TestLiveZnodeDeletedByHandIsMadeAgain(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	m := join(t, j, "w0")
	admin := dial(t)
	live := znode.Live(j.Root, j.Name, "w0")
	hasID := func() bool {
		body, _, err := admin.Get(t.Context(), live)
		if errors.Is(err, zkconn.ErrNoNode) {
			return false
		}
		w, decodeErr := znode.DecodeWorker(body)
		if err != nil || decodeErr != nil {
			t.Fatal(err, decodeErr)
		}
		return w.ID == 0
	}
	rig.Await(t, "the live znode has the id", hasID)
	for range 3 {
		if err := admin.Delete(t.Context(), live, -1); err != nil {
			t.Fatal(err)
		}
		rig.Await(t, "the live znode is back", hasID)
	}
	if m.Context().Err() != nil {
		t.Error(context.Cause(m.Context()))
	}
	if err := m.Complete(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestTakenOverWorkerIsFenced: somebody deletes the live znode by hand, and another process of the identity is faster.
func TestTakenOverWorkerIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	proxy := newProxy(t)
	old, err := worker.Join(t.Context(), dialFor(t, time.Minute, proxy.Addr()), config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hang(true)
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "w0"), -1); err != nil {
		t.Fatal(err)
	}
	now := join(t, j, "w0")
	proxy.Hang(false)
	fenced(t, old)
	if o := look(t, store, j); now.ID != 0 || o.Live != 1 || job.Joined(o) != 1 {
		t.Errorf("the other is %d, observed %+v", now.ID, o)
	}
}

// TestWorkerOfAnEndedGenerationIsFenced, however it ended.
func TestWorkerOfAnEndedGenerationIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	proxy := newProxy(t)
	m, err := worker.Join(t.Context(), dialFor(t, time.Minute, proxy.Addr()), config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	// Deleted by hand while the worker cannot see it, and then replaced: no worker is live.
	proxy.Hang(true)
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "w0"), -1); err != nil {
		t.Fatal(err)
	}
	replace := plan.Row{Path: j.Path(), Old: look(t, store, j), New: j, Reason: plan.StaleLeftover}
	if err := store.Commit(t.Context(), replace); err != nil {
		t.Fatal(err)
	}
	proxy.Hang(false)
	fenced(t, m)
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("the new generation is %s", o.Status())
	}

	m = join(t, j, "w0")
	if _, err := dial(t).Multi(t.Context(),
		zkconn.DeleteOp(znode.Live(j.Root, j.Name, "w0"), -1), zkconn.DeleteOp(j.Path(), -1),
		zkconn.DeleteOp(znode.Gate(j.Root, m.Generation), -1),
		zkconn.DeleteOp(znode.Record(job.KindName, j.Root, j.Name), -1),
	); err != nil {
		t.Fatal(err)
	}
	fenced(t, m)
}
