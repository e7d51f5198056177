package zkconn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/zkstate/zkconn"
)

// about returns a filter for requests with this code and path.
func about(op int32, path string) func(int32, []byte) bool {
	return func(o int32, req []byte) bool { return o == op && bytes.Contains(req, []byte(path)) }
}

func TestLostReplyIsUnknownAndThenSettled(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}})
	for _, c := range []struct {
		name string
		arm  func(func(int32, []byte) bool) <-chan struct{}
		want bool
	}{
		{"reply_lost", p.DropReply, true},
		{"request_lost", p.BeforeSend, false},
	} {
		for _, multi := range []bool{false, true} {
			path := fmt.Sprintf("%s/%s-%v", dir, c.name, multi)
			var err error
			if multi {
				c.arm(about(fault.OpMulti, path))
				_, err = s.Multi(ctx, zkconn.CheckOp(dir, 0), zkconn.CreateOp(path, nil, zkconn.Ephemeral, open))
			} else {
				c.arm(about(fault.OpCreate, path))
				_, err = s.Create(ctx, path, nil, zkconn.Ephemeral, open)
			}
			if !errors.Is(err, zkconn.ErrUnknown) {
				t.Errorf("%s: %v, want %v", path, err, zkconn.ErrUnknown)
			}
			if err := s.Settled(ctx); err != nil {
				t.Fatal(err)
			}
			stat, got, err := s.Exists(ctx, path)
			if err != nil || got != c.want || got && stat.EphemeralOwner != s.ID() {
				t.Errorf("%s: exists %v %+v %v, want %v", path, got, stat, err, c.want)
			}
		}
	}
}

func TestReadIsRepeatedWhenItsReplyIsLost(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}})
	lost := p.DropReply(about(fault.OpGetData, dir))
	if _, _, err := s.Get(ctx, dir); err != nil {
		t.Error(err)
	}
	closes(t, lost, 5*time.Second)
	if n := p.Requests()[fault.OpGetData]; n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestMissingReplyIsUnknownThoughPingsAreAnswered(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 20*time.Second), root(t)
	r := newRelay(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{r.Addr().String()}, Timeout: 1200 * time.Millisecond})
	// The first reply with a positive xid is the one to the create.
	once := true
	r.set(func(r *relay) {
		r.drop = func(reply []byte) bool {
			xid := int32(binary.BigEndian.Uint32(reply[4:]))
			drop := xid > 0 && once
			once = once && !drop
			return drop
		}
	})
	begin := time.Now()
	_, err := s.Create(ctx, dir+"/a", nil, zkconn.Ephemeral, open)
	took := time.Since(begin)
	if !errors.Is(err, zkconn.ErrUnknown) || took < 900*time.Millisecond || took > 5*time.Second {
		t.Fatalf("after %s: %v, want %v after 1s", took, err, zkconn.ErrUnknown)
	}
	if err := s.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	if stat, ok, err := s.Exists(ctx, dir+"/a"); !ok || err != nil || stat.EphemeralOwner != s.ID() {
		t.Errorf("exists: %v %+v %v", ok, stat, err)
	}
}

func TestSettledWaitsForAbandonedWrites(t *testing.T) {
	dir := root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: 5 * time.Second})
	p.Hang(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	data := make([]byte, 900_000)
	for i := range 40 { // more than fit into the network's and the library's buffers
		all.Go(func() {
			_, err := s.Create(ctx, fmt.Sprintf("%s/%d", dir, i), data, zkconn.Ephemeral, open)
			if !errors.Is(err, zkconn.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want %v and %v", err, zkconn.ErrUnknown, context.DeadlineExceeded)
			}
		})
	}
	all.Wait()
	p.Hang(false)
	if err := s.Settled(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	first, _, err := s.Children(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), dir+"/last", nil, zkconn.Ephemeral, open); err != nil {
		t.Fatal(err)
	}
	second, _, err := s.Children(t.Context(), dir)
	if err != nil || len(second) != len(first)+1 {
		t.Errorf("%d children when settled, then %d: %v", len(first), len(second), err)
	}
}

// TestThrottledRequestIsRepeated: an overloaded server refuses a request without executing it.
func TestThrottledRequestIsRepeated(t *testing.T) {
	dir := root(t)
	through := newRelay(t, shared.Addrs()[0])
	s := dial(t, zkconn.Config{Servers: []string{through.Addr().String()}})
	for _, op := range []int32{fault.OpMulti, fault.OpGetData} {
		through.set(func(r *relay) { r.throttle = func(o int32) bool { return o == op } })
		var err error
		if op == fault.OpMulti {
			_, err = s.Multi(t.Context(), zkconn.CreateOp(dir+"/n", nil, zkconn.Persistent, open))
		} else {
			_, _, err = s.Get(t.Context(), dir+"/n")
		}
		if err != nil {
			t.Errorf("operation %d: %v", op, err)
		}
		through.set(func(r *relay) {
			if r.throttle != nil {
				t.Errorf("operation %d was not refused", op)
			}
		})
	}
	over, cancel := context.WithCancel(t.Context())
	through.set(func(r *relay) { r.throttle = func(o int32) bool { cancel(); return o == fault.OpMulti } })
	_, err := s.Multi(over, zkconn.CreateOp(dir+"/m", nil, zkconn.Persistent, open))
	if !errors.Is(err, zkconn.ErrNotSent) && !errors.Is(err, zkconn.ErrUnknown) {
		t.Errorf("given up while the server is busy: %v", err)
	}
}

func TestWriteWithoutAConnectionIsNotSent(t *testing.T) {
	dir := root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}})
	p.Refuse(true)
	p.Cut()
	var unsent []string
	for i := 0; len(unsent) < 10; i++ {
		path := fmt.Sprintf("%s/%d", dir, i)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := s.Create(ctx, path, nil, zkconn.Ephemeral, open)
		cancel()
		switch {
		case errors.Is(err, zkconn.ErrNotSent) && errors.Is(err, context.DeadlineExceeded):
			unsent = append(unsent, path)
		case !errors.Is(err, zkconn.ErrUnknown):
			t.Fatal(err)
		}
	}
	p.Refuse(false)
	ctx := within(t, 10*time.Second)
	if err := s.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	for _, path := range unsent {
		if _, ok, err := s.Exists(ctx, path); ok || err != nil {
			t.Errorf("%s was sent: %v", path, err)
		}
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Set(over, dir, nil, 0); !errors.Is(err, zkconn.ErrNotSent) {
		t.Errorf("%v, want %v", err, zkconn.ErrNotSent)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	dir := root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}})
	p.Hang(true)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	if _, _, err := s.Get(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %s", took)
	}
	p.Hang(false)
}

func TestNetworkErrorsNeverReachCallers(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 30*time.Second), root(t)
	p := proxy(t, shared.Connect())
	auth := []zkconn.Auth{{Scheme: "digest", Data: []byte("a:b")}}
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Auth: auth})
	stop := make(chan struct{})
	var all sync.WaitGroup
	var unknown sync.Map
	for i := range 16 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.Create(ctx, fmt.Sprintf("%s/%d-%d", dir, i, n), nil, zkconn.Ephemeral, open)
				var raw net.Error
				switch {
				case err == nil:
				case errors.As(err, &raw) || !errors.Is(err, zkconn.ErrUnknown):
					t.Errorf("%#v", err)
				default:
					unknown.Store(err.Error(), true)
				}
				if _, _, err := s.Get(ctx, dir); err != nil {
					t.Errorf("get: %#v", err)
				}
			}
		})
	}
	for range 8 {
		if _, _, err := s.Get(ctx, dir); err != nil {
			t.Fatal(err)
		}
		p.Cut()
	}
	close(stop)
	all.Wait()
	some := false
	unknown.Range(func(any, any) bool { some = true; return false })
	if !some {
		t.Error("no write was hit: the test proves nothing")
	}
}
