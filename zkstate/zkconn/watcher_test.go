package zkconn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// heard collects the paths of events.
type heard struct {
	mu    sync.Mutex
	paths map[string]int
	lost  int
	more  chan struct{} // gets a value at an event
}

func newHeard() *heard { return &heard{paths: map[string]int{}, more: make(chan struct{}, 1)} }

func (h *heard) event(e zkconn.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paths[e.Path]++; e.Path == "" {
		h.lost++
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// await waits until enough holds.
func (h *heard) await(ctx context.Context, t *testing.T, what string, enough func() bool) {
	t.Helper()
	for {
		h.mu.Lock()
		done := enough()
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-h.more:
		case <-ctx.Done():
			t.Fatalf("%s: %d paths heard of", what, len(h.paths))
		}
	}
}

// TestWatcherHearsOfEachChange: of data, of children, of a creation and of an end; and once for each read.
func TestWatcherHearsOfEachChange(t *testing.T) {
	ctx, dir := within(t, time.Minute), root(t)
	s, other, h := dial(t, zkconn.Config{}), dial(t, zkconn.Config{}), newHeard()
	w := s.Watcher(h.event)
	watch := map[string]func(path string) error{
		"get":      func(path string) error { _, _, err := w.Get(ctx, path); return err },
		"exists":   func(path string) error { _, _, err := w.Exists(ctx, path); return err },
		"children": func(path string) error { _, _, err := w.Children(ctx, path); return err },
	}
	for _, test := range []struct{ read, change string }{
		{"get", "set"}, {"get", "delete"}, {"exists", "set"}, {"exists", "delete"}, {"children", "child"},
		{"children", "delete"}, {"exists", "create"},
	} {
		path := fmt.Sprintf("%s/%s-%s", dir, test.read, test.change)
		var err error
		if test.change != "create" {
			_, err = other.Create(ctx, path, nil, zkconn.Persistent, open)
		}
		if err == nil {
			err = watch[test.read](path)
		}
		switch {
		case err != nil:
		case test.change == "set":
			_, err = other.Set(ctx, path, []byte("x"), -1)
		case test.change == "delete":
			err = other.Delete(ctx, path, -1)
		case test.change == "child":
			_, err = other.Create(ctx, path+"/c", nil, zkconn.Persistent, open)
		case test.change == "create":
			_, err = other.Create(ctx, path, nil, zkconn.Persistent, open)
		}
		if err != nil {
			t.Fatal(test, err)
		}
		h.await(ctx, t, fmt.Sprint(test), func() bool { return h.paths[path] == 1 })
	}
	s.Close()
	h.await(ctx, t, "the end of the session", func() bool { return h.lost == 1 })
	late := newHeard()
	s.Watcher(late.event)
	late.await(ctx, t, "after the end", func() bool { return late.lost == 1 })
}

// TestNoEventIsLostBetweenTwoConnections: the watches need several requests to be set again, and the connection breaks
// after the first of them was answered. What has changed while there was no connection is heard of all the same.
func TestNoEventIsLostBetweenTwoConnections(t *testing.T) {
	ctx, dir := within(t, 2*time.Minute), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: 30 * time.Second}), dial(t, zkconn.Config{})
	h := newHeard()
	w := s.Watcher(h.event)
	const n = 4000
	path := func(i int) string { return fmt.Sprintf("%s/%0100d", dir, i) }
	all := func(op func(path string) zkconn.Op) {
		for i := 0; i < n; i += 100 {
			var ops []zkconn.Op
			for j := i; j < i+100; j++ {
				ops = append(ops, op(path(j)))
			}
			must(other.Multi(ctx, ops...))(t)
		}
	}
	all(func(path string) zkconn.Op { return zkconn.CreateOp(path, nil, zkconn.Persistent, open) })
	var reads sync.WaitGroup
	for worker := range 50 {
		reads.Go(func() {
			for i := worker; i < n; i += 50 {
				if _, _, err := w.Get(ctx, path(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reads.Wait()
	p.Refuse(true)
	p.Cut()
	all(func(path string) zkconn.Op { return zkconn.SetOp(path, []byte("x"), -1) })
	const setWatches = 101
	first := make(chan struct{}) // closed when the first request has come
	broken := p.BeforeSend(func(op int32, _ []byte) bool {
		if op != setWatches || !closed(first) {
			if op == setWatches {
				close(first)
			}
			return false
		}
		h.await(ctx, t, "after the first request", func() bool { return len(h.paths) > n/5 })
		<-time.After(200 * time.Millisecond) // for its answer
		return true
	})
	p.Refuse(false)
	closes(t, broken, time.Minute)
	h.await(ctx, t, "after the second connection", func() bool { return len(h.paths) == n })
	if sent := p.Requests()[setWatches]; sent < 4 {
		t.Errorf("%d requests to set watches; the test is about several", sent)
	}
	if h.lost > 0 {
		t.Error("the watches were lost, which is another way")
	}
}

// TestWatchesThatAServerRefusesAreLost: who waits for their events is told.
func TestWatchesThatAServerRefusesAreLost(t *testing.T) {
	ctx, dir := within(t, time.Minute), root(t)
	p := proxy(t, shared.Connect())
	s, h := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: 30 * time.Second}), newHeard()
	must(w2(s.Watcher(h.event).Exists(ctx, dir+"/none")))(t)
	p.Throttle(func(op int32, _ []byte) bool { return op == 101 })
	p.Cut()
	h.await(ctx, t, "lost", func() bool { return h.lost == 1 })
	if _, _, err := s.Get(ctx, dir+"/none"); !errors.Is(err, zkconn.ErrNoNode) {
		t.Error(err)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func w2[A, B any](a A, _ B, err error) (A, error) { return a, err }
