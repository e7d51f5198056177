package zkconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
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
	through := newRelay(t, p.Addr())
	s, h := dial(t, zkconn.Config{Servers: []string{through.Addr().String()}, Timeout: 30 * time.Second}), newHeard()
	must(w2(s.Watcher(h.event).Exists(ctx, dir+"/none")))(t)
	through.set(func(r *relay) { r.throttle = func(op int32) bool { return op == 101 } })
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

// silence makes a session of two servers lose the answers of the first, and returns how old the last answered request
// was when the second answered.
func silence(t *testing.T, timeout time.Duration, prepare func(*zkconn.Session)) time.Duration {
	t.Helper()
	ctx := within(t, time.Minute)
	a, b := proxy(t, shared.Connect()), proxy(t, shared.Connect())
	b.Refuse(true)
	s := dial(t, zkconn.Config{Servers: []string{a.Addr(), b.Addr()}, Timeout: timeout})
	prepare(s)
	if err := s.Sync(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	b.Refuse(false)
	a.Hang(true)
	last := s.Answered()
	for s.Answered() == last {
		asked, cancel := context.WithTimeout(ctx, timeout/10)
		_ = s.Sync(asked, "/")
		cancel()
		if s.Context().Err() != nil {
			t.Fatal(context.Cause(s.Context()))
		}
	}
	return time.Since(last)
}

// TestSilentServerIsLeft in time for the duties of a member, which end at half of the session timeout. A session that
// does not ask for that stays longer.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	t.Run("soon", func(t *testing.T) {
		t.Parallel()
		took := silence(t, timeout, func(s *zkconn.Session) { s.LeaveAfter(s.Timeout() * 3 / 10) })
		if took >= timeout/2 || took < timeout*3/10 {
			t.Errorf("the next answer came after %s, want 3 s and a little", took)
		}
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		if took := silence(t, timeout, func(*zkconn.Session) {}); took < timeout/2 {
			t.Errorf("the next answer came after %s: the server was left before 6.7 s", took)
		}
	})
}

// TestSlowServerIsKept if there is no other: the first answer of a connection may take longer.
func TestSlowServerIsKept(t *testing.T) {
	t.Parallel()
	ctx := within(t, time.Minute)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: 6 * time.Second})
	s.LeaveAfter(1)
	p.Delay(600 * time.Millisecond)
	for range 3 {
		if err := s.Sync(ctx, "/"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatCountsAsAnswered: only what a server cannot answer without the leader.
func TestWhatCountsAsAnswered(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	s := dial(t, zkconn.Config{})
	first := s.Answered()
	if first.IsZero() {
		t.Error("the handshake does not count")
	}
	if _, _, err := s.Get(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	if got := s.Answered(); got != first {
		t.Error("a read counts")
	}
	if err := s.Sync(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	second := s.Answered()
	if !second.After(first) {
		t.Error("a sync does not count")
	}
	must(s.Create(ctx, root(t)+"/a", nil, zkconn.Ephemeral, open))(t)
	if third := s.Answered(); !third.After(second) {
		t.Error("a write does not count")
	}
}

// TestSilence: a pause between two answers is never forgotten, once somebody has asked for that.
func TestSilence(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 2*time.Minute), root(t)
	s := dial(t, zkconn.Config{Timeout: time.Minute})
	const pause = 500 * time.Millisecond
	silent := func() {
		for s.Silence() < pause {
			<-time.After(time.Millisecond)
		}
	}
	for silent(); s.Silence() >= pause; { // until the answer comes in time
		if err := s.Sync(ctx, "/"); err != nil {
			t.Fatal(err)
		}
	}
	s.LeaveAfter(30 * time.Second)
	silent()
	if err := s.Sync(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	create := zkconn.CreateOp(dir+"/a", nil, zkconn.Persistent, open)
	if _, err := s.MultiWithin(ctx, pause, create); !errors.Is(err, zkconn.ErrSilent) {
		t.Errorf("%v, want %v", err, zkconn.ErrSilent)
	}
	if _, err := s.MultiWithin(ctx, time.Hour, create); err != nil {
		t.Error("it was sent before: ", err)
	}
	if got := s.Silence(); got < pause {
		t.Errorf("the silence was %s, and is %s", pause, got)
	}
}

// gathering is a connection that can hand over several frames at once, and can break for writes alone.
type gathering struct {
	net.Conn
	atOnce  atomic.Int32 // frames that the next Read returns
	rest    []byte
	broken  atomic.Bool
	closing sync.Once
	closed  chan struct{}
}

func (g *gathering) Read(b []byte) (int, error) {
	for n := int32(0); len(g.rest) == 0 || n < g.atOnce.Load(); n++ {
		frame, err := readFrame(g.Conn)
		if err != nil {
			return 0, err
		}
		g.rest = append(g.rest, frame...)
	}
	g.atOnce.Store(0)
	n := copy(b, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

func (g *gathering) Write(b []byte) (int, error) {
	if g.broken.Load() {
		return 0, errors.New("broken by the test")
	}
	return g.Conn.Write(b)
}

func (g *gathering) Close() error {
	g.closing.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// TestAnAnswerThatCameBeforeTheEndCounts: a connection is given up while the session has an answer of it that it has
// not looked at. Whoever gets this answer also gets the event of its watch.
func TestAnAnswerThatCameBeforeTheEndCounts(t *testing.T) {
	ctx, dir := within(t, time.Minute), root(t)
	conns := make(chan *gathering, 100)
	connect := func(ctx context.Context, addr string) (net.Conn, error) {
		raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		g := &gathering{Conn: raw, closed: make(chan struct{})}
		conns <- g
		return g, nil
	}
	s := dial(t, zkconn.Config{Timeout: 30 * time.Second, Dial: connect})
	first, other := <-conns, dial(t, zkconn.Config{})
	for _, name := range []string{"/a", "/b"} {
		must(other.Create(ctx, dir+name, nil, zkconn.Persistent, open))(t)
	}
	must(w2(s.Watcher(func(zkconn.Event) { // at the first of two frames
		if first.broken.Swap(true) {
			return
		}
		go s.Exists(ctx, "/")
		<-first.closed
	}).Get(ctx, dir+"/a")))(t)
	first.atOnce.Store(2)
	must(other.Set(ctx, dir+"/a", []byte("x"), -1))(t)
	_, _, changed, err := s.GetW(ctx, dir+"/b")
	if err != nil {
		t.Fatal(err)
	}
	must(other.Set(ctx, dir+"/b", []byte("x"), -1))(t)
	closes(t, changed, 20*time.Second)
}
