package zkconn_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

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
