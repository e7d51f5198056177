package zkconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

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
