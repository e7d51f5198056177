package worker_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Each test here is named after a bug of the classic worker controllers' way to leave.

// TestC1TwoLastLeaveAtOnce: one of them ends the job.
func TestC1TwoLastLeaveAtOnce(t *testing.T) {
	for range 10 {
		j, store := newJob(t, 2, onComplete(job.Remove))
		ms := []*worker.Member{join(t, j, "w0"), join(t, j, "w1")}
		var both sync.WaitGroup
		for _, m := range ms {
			both.Go(func() { complete(t, m) })
		}
		both.Wait()
		if o := look(t, store, j); o != nil {
			t.Fatalf("the job is %s", o.Status())
		}
	}
}

// TestC2CrashedNeighbourDoesNotKeepTheJob beyond its own completion, although it was live when the others left.
func TestC2CrashedNeighbourDoesNotKeepTheJob(t *testing.T) {
	j, store := newJob(t, 2, onComplete(job.Remove))
	crashed := lose(t, config(j, "w0")) // the server still holds its session
	complete(t, join(t, j, "w1"))
	if o := look(t, store, j); o == nil || job.Done(o) != 1 {
		t.Fatalf("observed %+v", o)
	}
	again, err := crashed.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, again)
	if o := look(t, store, j); o != nil {
		t.Errorf("the job is %s", o.Status())
	}
}

// TestC3CompletionRightAfterTheJoin counts: no cache has to be filled first.
func TestC3CompletionRightAfterTheJoin(t *testing.T) {
	j, store := newJob(t, 1, onComplete(job.Remove))
	complete(t, join(t, j, "w0"))
	if o := look(t, store, j); o != nil {
		t.Errorf("the job is %s", o.Status())
	}
}

// TestC4FinishingAloneDoesNotEndTheJob: the others have not joined yet, and get the next ids.
func TestC4FinishingAloneDoesNotEndTheJob(t *testing.T) {
	j, store := newJob(t, 3, onComplete(job.Remove))
	complete(t, join(t, j, "w0"))
	if o := look(t, store, j); o.Status() != job.Forming {
		t.Fatalf("the job is %s", o.Status())
	}
	if m := join(t, j, "w1"); m.ID != 1 {
		t.Errorf("id %d, want 1", m.ID)
	}
}

// TestC5JoinAgainstTheEndOfAJob: a worker that joins while the last one resets the job joins the next generation with
// all its znodes, or not at all.
func TestC5JoinAgainstTheEndOfAJob(t *testing.T) {
	for range 20 {
		j, store := newJob(t, 1)
		last := join(t, j, "w0")
		s := dial(t)
		var both sync.WaitGroup
		both.Go(func() { complete(t, last) })
		both.Go(func() {
			m, err := worker.Join(t.Context(), s, config(j, "next"))
			if errors.Is(err, worker.ErrFull) {
				return
			}
			if err != nil || m.ID != 0 || m.Generation == last.Generation {
				t.Errorf("joined as %+v, %v", m, err)
			}
		})
		both.Wait()
		o := look(t, store, j)
		if s := o.Status(); s != resource.StatusReady && s != job.Running {
			t.Fatalf("the job is %s: %+v", s, o)
		}
	}
}

// TestC6RejoinsDoNotCountTwice: N completions are those of N identities.
func TestC6RejoinsDoNotCountTwice(t *testing.T) {
	j, store := newJob(t, 2)
	for range 3 {
		crash(t, j, "w0")
	}
	complete(t, join(t, j, "w0"))
	if _, err := tryJoin(t, config(j, "w0")); !errors.Is(err, worker.ErrDone) {
		t.Errorf("joined again with %v", err)
	}
	if o := look(t, store, j); job.Done(o) != 1 || job.Joined(o) != 1 {
		t.Errorf("%d completed, %d joined", job.Done(o), job.Joined(o))
	}
}

// TestC7LiveWorkerDoesNotResurrectAJob that somebody deleted by hand under it.
func TestC7LiveWorkerDoesNotResurrectAJob(t *testing.T) {
	j, _ := newJob(t, 1)
	m := join(t, j, "w0")
	admin := dial(t)
	if _, err := admin.Multi(t.Context(),
		zkconn.DeleteOp(znode.Live(j.Root, j.Name, "w0"), -1),
		zkconn.DeleteOp(j.Path(), -1),
		zkconn.DeleteOp(znode.Record(job.KindName, j.Root, j.Name), -1),
		zkconn.DeleteOp(znode.Gate(j.Root, m.Generation), -1),
	); err != nil {
		t.Fatal(err)
	}
	fenced(t, m)
	for _, path := range []string{j.Path(), znode.Record(job.KindName, j.Root, j.Name), znode.Gate(j.Root, m.Generation)} {
		if _, exists, err := admin.Exists(t.Context(), path); err != nil || exists {
			t.Errorf("%s is there: %v, %v", path, exists, err)
		}
	}
}

// TestC8AllWorkersDownAtOnce: nothing is removed, and each comes back under its id.
func TestC8AllWorkersDownAtOnce(t *testing.T) {
	const n = 5
	j, store := newJob(t, n)
	s := dial(t)
	want := map[string]int{}
	for i := range n {
		m, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w", i)))
		if err != nil {
			t.Fatal(err)
		}
		want[m.Identity] = m.ID
	}
	s.Close()
	await(t, "all are down", func() bool { return look(t, store, j).Live == 0 })
	if o := look(t, store, j); o.Class() != resource.Stale || job.Joined(o) != n {
		t.Errorf("with all down: %s, %d joined", o.Status(), job.Joined(o))
	}
	for identity, id := range want {
		if m := join(t, j, identity); m.ID != id {
			t.Errorf("%s is %d, was %d", identity, m.ID, id)
		}
	}
	if d := cmp.Diff(want, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}
