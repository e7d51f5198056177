package zkconn_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

// lostSession is a session with an ephemeral znode that ended while no server could be reached. It would last for
// minutes.
func lostSession(t *testing.T, dir string) *zkconn.Session {
	t.Helper()
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: 5 * time.Minute})
	must(s.Create(t.Context(), dir+"/held", nil, zkconn.Ephemeral, open))(t)
	p.Refuse(true)
	p.Cut()
	if err := s.Close(); err == nil {
		t.Fatal("a server has confirmed the end")
	}
	return s
}

func TestALostSessionIsClosedByTheNext(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, time.Minute), root(t)
	lost, next := lostSession(t, dir), dial(t, zkconn.Config{})
	if _, there, err := next.Exists(ctx, dir+"/held"); err != nil || !there {
		t.Fatal("the session has ended by itself", err)
	}
	for range 2 { // the second time it is gone already
		if err := next.CloseLost(ctx, lost); err != nil {
			t.Error(err)
		}
		if _, there, err := next.Exists(ctx, dir+"/held"); err != nil || there {
			t.Error("the znode of the lost session is there", err)
		}
	}
	if err := next.Sync(ctx, "/"); err != nil {
		t.Error(err)
	}
}

// TestALostSessionThatCannotBeClosed is let go in a bounded time, and nothing else is closed instead.
func TestALostSessionThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	closed, free, err := zkserver.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = free() })
	says := func(text string) string {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { l.Close() })
		go answer(l, text)
		return l.Addr().String()
	}
	granted := make([]byte, 4+36)
	granted[3], granted[19], granted[23] = 36, 1, 16 // session 1
	for name, c := range map[string]struct {
		server, want string
		cancel       bool
	}{
		"silent":    {says(""), "no answer within", false},
		"cancelled": {says(""), "closed", true},
		"closed":    {closed, "refused", false},
		"other":     {says(string(granted)), "another session", false},
		"no_server": {says("HTTP/1.1 400 Bad Request\r\n\r\n"), "not like a ZooKeeper server", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, dir := within(t, time.Minute), root(t)
			var to atomic.Pointer[string]
			next := dial(t, zkconn.Config{Timeout: 4 * time.Second,
				Dial: func(ctx context.Context, addr string) (net.Conn, error) {
					if other := to.Load(); other != nil {
						addr = *other
					}
					return new(net.Dialer).DialContext(ctx, "tcp", addr)
				}})
			lost := lostSession(t, dir)
			to.Store(&c.server)
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			if c.cancel {
				cancel()
			}
			if err := next.CloseLost(short, lost); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := next.Sync(ctx, "/"); err != nil {
				t.Error(err)
			}
		})
	}
}
