package worker_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// lose joins and then loses the session, which the server does not know yet: it still holds the live znode.
func lose(t *testing.T, c worker.Config) *worker.Member {
	t.Helper()
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m, err := worker.Join(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(true)
	proxy.Cut()
	s.Close()
	<-m.Context().Done()
	return m
}

// TestRejoinAfterTheLossOfTheSession: the same worker goes on at once, although the lost session is still there.
func TestRejoinAfterTheLossOfTheSession(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	if cause := context.Cause(m.Context()); !errors.Is(cause, zkconn.ErrSessionLost) {
		t.Errorf("the membership ended with %v", cause)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || !ws[0].Live || ws[0].Claim.Lives != 1 || ws[0].Info.ID != 0 || again.ID != 0 {
		t.Errorf("rejoined as %d, recorded %+v, %v", again.ID, ws, err)
	}
	if err := m.Leave(t.Context(), worker.End{}); err == nil {
		t.Error("the membership of the lost session could still write")
	}
	if err := again.Complete(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestRejoinAfterAnUnansweredRejoin: the first attempt was committed, and then that session was lost too.
func TestRejoinAfterAnUnansweredRejoin(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	proxy := newProxy(t)
	s, fired := dial(t, proxy.Addr()), dropForGood(proxy)
	go func() { <-fired; s.Close() }()
	if _, err := m.Rejoin(t.Context(), s); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Fatalf("rejoin: %v, want %v", err, zkconn.ErrSessionLost)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	if o := look(t, store, j); again.ID != 0 || o.Live != 1 || job.Joined(o) != 1 {
		t.Errorf("rejoined as %d, observed %+v", again.ID, o)
	}
}

// dropForGood drops the reply of the next transaction, and no connection comes after that.
func dropForGood(proxy *zkserver.Proxy) (fired <-chan struct{}) {
	return proxy.DropReply(func(op int32, req []byte) bool {
		if isMulti(op, req) {
			proxy.Refuse(true)
		}
		return isMulti(op, req)
	})
}

func TestRejoinWithEveryOperationCut(t *testing.T) {
	t.Parallel()
	for fault, arm := range faults() {
		for i := range 5 { // sync, claim, live znode, transaction, and watching
			t.Run(fmt.Sprint(fault, "/", i), func(t *testing.T) {
				j, store := newJob(t, 2)
				m := lose(t, config(j, "w0"))
				proxy := newProxy(t)
				s := dial(t, proxy.Addr())
				cut := arm(proxy, nth(i))
				again, err := m.Rejoin(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				<-cut
				revive(t, dial(t), again)
				if o := look(t, store, j); again.ID != 0 || o.Live != 1 || job.Joined(o) != 1 {
					t.Errorf("rejoined as %d, observed %+v", again.ID, o)
				}
			})
		}
	}
}

func TestRejoinAfterATakeoverIsFenced(t *testing.T) {
	t.Parallel() // the other waits until the lost session has expired
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	now := join(t, j, "w0")
	if _, err := m.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
	if o := look(t, store, j); o.Live != 1 || now.Context().Err() != nil {
		t.Errorf("the other was disturbed: %+v, %v", o, context.Cause(now.Context()))
	}
}

func TestRejoinLearnsOfAnUnansweredCompletion(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one of two": 2, "the last": 1} {
		t.Run(name, func(t *testing.T) {
			j, store := newJob(t, n)
			proxy := newProxy(t)
			s := dial(t, proxy.Addr())
			m, err := worker.Join(t.Context(), s, config(j, "w0"))
			if err != nil {
				t.Fatal(err)
			}
			observer := dial(t)
			rig.Await(t, "the id is told", func() bool {
				body, _, err := observer.Get(t.Context(), znode.Live(j.Root, j.Name, "w0"))
				w, _ := znode.DecodeWorker(body)
				return err == nil && w.ID == 0
			})
			rig.Await(t, "the roll is written", func() bool { return n > 1 || look(t, store, j).Version > 0 })
			fired := dropForGood(proxy)
			go func() { <-fired; s.Close() }()
			if err := m.Complete(t.Context(), 3); !errors.Is(err, zkconn.ErrUnknown) {
				t.Fatalf("complete: %v, want an unknown outcome", err)
			}
			var done *worker.DoneError
			if _, err := m.Rejoin(t.Context(), dial(t)); !errors.As(err, &done) || done.Exit != 3 {
				t.Errorf("rejoin: %v, want %v with code 3", err, worker.ErrDone)
			}
			if o := look(t, store, j); n == 1 && job.LastRun(o.Record) == nil || n == 2 && job.Done(o) != 1 {
				t.Errorf("observed %+v", o)
			}
		})
	}
}

// TestRejoinAfterTerminate: a worker whose Complete got no answer does not take a generation that terminate ended for a
// completed one.
func TestRejoinAfterTerminate(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	observer := dial(t)
	rig.Await(t, "the id is told", func() bool {
		stat, _, err := observer.Exists(t.Context(), znode.Live(j.Root, j.Name, "w0"))
		return err == nil && stat.Version > 0
	})
	fired := dropForGood(proxy)
	go func() { <-fired; s.Close() }()
	if err := m.Complete(t.Context(), 0); !errors.Is(err, zkconn.ErrUnknown) {
		t.Fatalf("complete: %v, want an unknown outcome", err)
	}
	if err := store.Terminate(t.Context(), j.Path(), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rejoin(t.Context(), observer); !errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
}

// TestStoppedProcessIsFenced: a process that was stopped for longer than its session timeout cannot write when it
// goes on, and finds out that it was replaced.
func TestStoppedProcessIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	c := spawn(t, j, "10s stay rejoin leave", "w0", servers.Addrs()...)
	c.expect(t, "joined 0")
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	now := join(t, j, "w0") // waits until the session has expired
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "stay lost")
	c.expect(t, "rejoin fenced")
	c.expect(t, "leave lost")
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || !ws[0].Live || ws[0].Claim.Lives != 2 || now.Context().Err() != nil {
		t.Errorf("recorded %+v, %v; the new member: %v", ws, err, context.Cause(now.Context()))
	}
}
