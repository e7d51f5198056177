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

// addresses are those that m sees: of everybody who has joined, and of who is live.
func addresses(t *testing.T, m *worker.Member) (joined, live []string) {
	t.Helper()
	all, err := m.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		joined = append(joined, w.Address())
	}
	if all, err = m.Live(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		live = append(live, w.Address())
	}
	return joined, live
}

// sees fails unless m sees worker 0 at this address, wherever it looks.
func sees(t *testing.T, m *worker.Member, address string) {
	t.Helper()
	joined, live := addresses(t, m)
	if joined[0] != address || live[0] != address {
		t.Errorf("worker 0 has joined at %v, and is live at %v; want %s", joined, live, address)
	}
}

func advertise(t *testing.T, m *worker.Member, host string, port int) {
	t.Helper()
	if err := m.Advertise(t.Context(), host, port); err != nil {
		t.Fatal(err)
	}
}

// TestAnAddressThatIsAdvertisedLater holds over a lost session and a live znode that is deleted by hand, until the next
// life joins with its own.
func TestAnAddressThatIsAdvertisedLater(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	proxy := newProxy(t)
	m, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	peer := join(t, j, "w1")
	sees(t, peer, "127.0.0.1:7000")
	advertise(t, m, "gpu-3.cluster.local", 29500)
	sees(t, peer, "gpu-3.cluster.local:29500")
	if m.Address() != "gpu-3.cluster.local:29500" {
		t.Errorf("it believes that it is at %s", m.Address())
	}
	s, live := dial(t), znode.Live(j.Root, j.Name, "w0")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	advertise(t, m, "gpu-4", 29501)
	sees(t, peer, "gpu-4:29501")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "it is live again", func() bool {
		_, there, err := s.Exists(t.Context(), live)
		return there && err == nil
	})
	sees(t, peer, "gpu-4:29501")
	proxy.Refuse(true)
	proxy.Cut()
	<-m.Context().Done()
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, peer, "gpu-4:29501")
	if again.Address() != "gpu-4:29501" {
		t.Errorf("after a lost session it believes that it is at %s", again.Address())
	}
	if err := again.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	join(t, j, "w0")
	sees(t, peer, "127.0.0.1:7000")
}

// TestAdvertisingWithACutConnection: peers see one address in both places.
func TestAdvertisingWithACutConnection(t *testing.T) {
	t.Parallel()
	for fault, arm := range arms {
		t.Run(fault, func(t *testing.T) {
			j, _ := newJob(t, 1)
			proxy := newProxy(t)
			m, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, "w0"))
			if err != nil {
				t.Fatal(err)
			}
			cut := arm(proxy, func(op int32, req []byte) bool { return isMulti(op, req) && mentions(req, "late") })
			advertise(t, m, "late", 1)
			<-cut
			sees(t, m, "late:1")
		})
	}
}

// TestAnAddressWhoseReplyIsLostForGood is written again by the rejoin: it may not have been committed.
func TestAnAddressWhoseReplyIsLostForGood(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	cut := proxy.BeforeSend(func(op int32, req []byte) bool {
		if !isMulti(op, req) || !mentions(req, "late") {
			return false
		}
		proxy.Refuse(true)
		return true
	})
	go func() { <-cut; s.Close() }()
	if err := m.Advertise(t.Context(), "late", 1); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Fatalf("without a session: %v", err)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, again, "late:1")
}

func TestAnAddressThatCannotBe(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 1)
	if err := ms[0].Advertise(t.Context(), "host", 1<<16); err == nil {
		t.Error("a port above 65535")
	}
	sees(t, ms[0], "127.0.0.1:7000")
}

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
