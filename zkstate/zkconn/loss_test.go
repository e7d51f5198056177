package zkconn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

// queueWrites starts n ephemeral creates after the session has lost its connection. The result waits for their errors.
func queueWrites(t testing.TB, s *zkconn.Session, dir string, n int) func() []error {
	t.Helper()
	for err := error(nil); !errors.Is(err, zkconn.ErrNotSent); {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err = s.Delete(ctx, dir+"/nothing", 0)
		cancel()
	}
	var all, started sync.WaitGroup
	errs := make([]error, n)
	started.Add(n)
	defer started.Wait()
	for i := range n {
		all.Go(func() {
			started.Done()
			_, errs[i] = s.Create(t.Context(), fmt.Sprintf("%s/%d", dir, i), nil, zkconn.Ephemeral, open)
		})
	}
	return func() []error { all.Wait(); return errs }
}

func TestNoQueuedWriteRunsInANewSession(t *testing.T) {
	dir := root(t)
	r := newRelay(t, shared.Connect())
	a, b := proxy(t, r.Addr().String()), proxy(t, r.Addr().String())
	s := dial(t, zkconn.Config{Servers: []string{a.Addr(), b.Addr()}})
	for _, p := range []*fault.Proxy{a, b} {
		p.Refuse(true)
		p.Cut()
	}
	errs := queueWrites(t, s, dir, 30)
	endSession(t, shared.Connect(), r.granted())
	for _, p := range []*fault.Proxy{a, b} {
		p.Refuse(false)
	}
	for _, err := range errs() {
		if !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("%v, want %v", err, zkconn.ErrSessionLost)
		}
	}
	closes(t, s.Context().Done(), 5*time.Second)
	if err := context.Cause(s.Context()); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Error(err)
	}
	names, _, err := dial(t, zkconn.Config{}).Children(t.Context(), dir)
	if len(names) != 0 || err != nil {
		t.Errorf("created after the session was gone: %v %v", names, err)
	}
	if err := s.Settled(t.Context()); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Errorf("settled: %v", err)
	}
	s.Close()
	if id := binary.BigEndian.Uint64(r.granted()[12:]); id != 0 {
		t.Errorf("the server granted session %#x after the refusal of %#x", id, s.ID())
	}
}

func TestSessionEndsAtItsOwnDeadlineWithoutAServer(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second // a busy machine may stop the test for a second or two
	for _, name := range []string{"silent", "refused"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := proxy(t, shared.Connect())
			s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: timeout})
			if got := s.Timeout(); got != timeout {
				t.Fatalf("timeout %s", got)
			}
			begin := time.Now()
			if name == "silent" {
				p.Hang(true)
			} else {
				p.Refuse(true)
				p.Cut()
			}
			closes(t, s.Context().Done(), 5*timeout)
			if took := time.Since(begin); took < timeout/4 || took > 2*timeout {
				t.Errorf("took %s, want about the timeout of %s, and that less one ping", took, timeout)
			}
			if err := context.Cause(s.Context()); !errors.Is(err, zkconn.ErrSessionLost) {
				t.Error(err)
			}
			if _, _, err := s.Get(t.Context(), "/"); !errors.Is(err, zkconn.ErrSessionLost) {
				t.Error(err)
			}
		})
	}
}

func TestIdleSessionStays(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second
	s := dial(t, zkconn.Config{Timeout: timeout})
	select {
	case <-s.Context().Done():
		t.Error(context.Cause(s.Context()))
	case <-time.After(2 * timeout):
	}
}

// TestFrozenServerCostsNoSession does it again with longer sessions while a busy machine takes longer for the new
// leader than is left of a session after a third of its timeout.
func TestFrozenServerCostsNoSession(t *testing.T) {
	t.Parallel()
	const longest = 40 * time.Second
	// The other servers elect a new leader after 8 ticks, before the sessions end.
	o := zkserver.Options{Servers: 3, TickTime: 200 * time.Millisecond}
	e := must(zkserver.Start(within(t, 4*time.Minute), o))(t)
	defer e.Stop()
	for timeout := 10 * time.Second; ; timeout *= 2 {
		err := freezeLeader(t, e, timeout)
		if err == nil {
			return
		}
		if !errors.Is(err, zkconn.ErrSessionLost) || timeout >= longest {
			t.Fatal(err)
		}
	}
}

// freezeLeader pauses the leader for longer than the timeout of sessions that all three servers have, and returns why
// one of them was lost.
func freezeLeader(t *testing.T, e *zkserver.Ensemble, timeout time.Duration) error {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	var sessions []*zkconn.Session
	lost := make(chan error, 12)
	for range cap(lost) {
		s := dial(t, zkconn.Config{Servers: e.Addrs(), Timeout: timeout})
		defer s.Close()
		context.AfterFunc(s.Context(), func() { lost <- context.Cause(s.Context()) })
		sessions = append(sessions, s)
	}
	leader := must(e.Leader(ctx))(t)
	if err := e.Server(leader).Pause(); err != nil {
		return err
	}
	defer e.Server(leader).Resume()
	select {
	case err := <-lost:
		return err
	case <-time.After(timeout + 2*time.Second):
	}
	for i, s := range sessions {
		if _, err := s.Create(ctx, fmt.Sprintf("/frozen-%s-%d", timeout, i), nil, zkconn.Ephemeral, open); err != nil {
			return err
		}
	}
	return nil
}

func TestCredentialsSurviveAFailedWriteAfterTheHandshake(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 30*time.Second), root(t)
	r := newRelay(t, shared.Connect())
	p := proxy(t, r.Addr().String())
	auth := []zkconn.Auth{{Scheme: "digest", Data: []byte("a:b")}, {Scheme: "digest", Data: []byte("c:d")}}
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Auth: auth})
	acl := []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}}
	mine := must(s.Create(ctx, dir+"/mine", nil, zkconn.Persistent, acl))(t)
	r.set(func(r *relay) { r.resets = 8 })
	p.Cut()
	if _, _, err := s.Get(ctx, mine); err != nil {
		t.Error(err)
	}
	lost := p.BeforeSend(about(fault.OpAuth, "c:d"))
	p.Cut()
	closes(t, lost, 10*time.Second)
	if _, _, err := s.Get(ctx, mine); err != nil {
		t.Error(err)
	}
}

func TestWatchesSurviveReconnection(t *testing.T) {
	ctx, dir := within(t, 30*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	const n = 50
	for i := range n {
		must(other.Create(ctx, fmt.Sprintf("%s/%d", dir, i), nil, zkconn.Persistent, open))(t)
	}
	for round := range int32(5) {
		var changed []<-chan struct{}
		for i := range n {
			_, _, ch, err := s.GetW(ctx, fmt.Sprintf("%s/%d", dir, i))
			if err != nil {
				t.Fatal(err)
			}
			changed = append(changed, ch)
		}
		_, _, created, err := s.ExistsW(ctx, fmt.Sprintf("%s/new-%d", dir, round))
		if err != nil {
			t.Fatal(err)
		}
		_, _, child, err := s.ChildrenW(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		p.Refuse(true)
		p.Cut()
		var reads sync.WaitGroup
		for range 64 { // queued reads must not overtake the watches
			reads.Go(func() {
				if _, _, err := s.Get(ctx, dir); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range n {
			must(other.Set(ctx, fmt.Sprintf("%s/%d", dir, i), nil, round))(t)
		}
		must(other.Create(ctx, fmt.Sprintf("%s/new-%d", dir, round), nil, zkconn.Persistent, open))(t)
		p.Refuse(false)
		for _, ch := range append(changed, created, child) {
			closes(t, ch, 10*time.Second)
		}
		reads.Wait()
	}
}

func TestCloseWithoutAServerReturnsAnError(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	told := dial(t, zkconn.Config{Servers: []string{p.Addr()}})
	alone := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Second})
	other := dial(t, zkconn.Config{})
	for name, s := range map[string]*zkconn.Session{"told": told, "alone": alone} {
		must(s.Create(ctx, dir+"/"+name, nil, zkconn.Ephemeral, open))(t)
	}
	if err := told.Close(); err != nil {
		t.Error(err)
	}
	if _, ok, err := other.Exists(ctx, dir+"/told"); ok || err != nil {
		t.Errorf("left behind: %v", err)
	}
	p.Refuse(true)
	p.Cut()
	_, _, gone, err := other.ExistsW(ctx, dir+"/alone")
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Close(); err == nil {
		t.Error("Close without a server returned no error")
	}
	closes(t, gone, 10*time.Second)
}

// TestConnected: a session is not connected while no server can be reached, and later is again.
func TestConnected(t *testing.T) {
	t.Parallel()
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Minute})
	if !s.Connected() {
		t.Error("not connected after Dial")
	}
	becomes := func(want bool) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx := within(t, 30*time.Second); s.Connected() != want; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("connected never becomes %v", want)
			}
		}
	}
	p.Refuse(true)
	p.Cut()
	becomes(false)
	p.Refuse(false)
	becomes(true)
	if err := s.Close(); err != nil || s.Connected() {
		t.Errorf("after Close: %v, connected %v", err, s.Connected())
	}
}

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
