package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/worker"
	"muster/zkstate/znode"
)

// TestRejoinKeepsTheID, finds it by a binary search, and gives the newest address.
func TestRejoinKeepsTheID(t *testing.T) {
	t.Parallel()
	const n = 60
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
	proxy := newProxy(t)
	s = dial(t, proxy.Addr())
	var searched atomic.Int64
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == zkserver.OpExists && bytes.Contains(req, []byte("/id/n-")) {
			searched.Add(1)
		}
		return false
	})
	for i := range n {
		searched.Store(0)
		c := config(j, fmt.Sprint("w", i))
		c.Info.Port = 8000 + i
		m, err := worker.Join(t.Context(), s, c)
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != want[m.Identity] {
			t.Errorf("%s came back as %d, was %d", m.Identity, m.ID, want[m.Identity])
		}
		if reads := searched.Load(); reads < 1 || reads > 6 {
			t.Errorf("%s: found among %d in %d reads", m.Identity, n, reads)
		}
	}
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		if c := w.Claim; !w.Live || c.Lives != 2 || c.State != znode.In || w.Info.Port < 8000 {
			t.Errorf("recorded: %+v", w)
		}
	}
	if d := cmp.Diff(want, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestTakeover: a worker whose identity is live says at once what it waits for, and joins when the other is gone. With
// TakeoverFail it fails at once.
func TestTakeover(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	s := dial(t)
	old, err := worker.Join(t.Context(), s, config(j, "w0"))
	if err != nil {
		t.Fatal(err)
	}
	c := config(j, "w0")
	c.Takeover = worker.TakeoverFail
	if _, err := worker.Join(t.Context(), dial(t), c); !errors.Is(err, worker.ErrHeld) {
		t.Errorf("told to fail: %v", err)
	}
	c = config(j, "w0")
	c.Waiting = func(what string) {
		if !strings.Contains(what, "older process that is w0") {
			t.Errorf("waits for %q", what)
		}
		s.Close()
	}
	m, err := worker.Join(t.Context(), dial(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != old.ID {
		t.Errorf("id %d, was %d", m.ID, old.ID)
	}
}

// TestOneOfManyProcessesOfOneIdentityIsMember, at any time: each waits for the one before it.
func TestOneOfManyProcessesOfOneIdentityIsMember(t *testing.T) {
	t.Parallel()
	const processes = 12
	j, store := newJob(t, 2)
	var mu sync.Mutex
	holders, most := 0, 0
	var all sync.WaitGroup
	for range processes {
		s := dial(t)
		all.Go(func() {
			m, err := worker.Join(t.Context(), s, config(j, "w0"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			holders++
			most = max(most, holders)
			mu.Unlock()
			if m.ID != 0 {
				t.Errorf("id %d", m.ID)
			}
			if err := m.Context().Err(); err != nil {
				t.Errorf("fenced while holding: %v", context.Cause(m.Context()))
			}
			mu.Lock()
			holders--
			mu.Unlock()
			if err := m.Leave(t.Context(), worker.End{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d processes held one identity at once", most)
	}
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || ws[0].Claim.Lives != processes || ws[0].Claim.State != znode.Left {
		t.Errorf("recorded %+v, %v", ws, err)
	}
}
