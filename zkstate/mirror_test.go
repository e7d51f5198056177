package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// mirrored is a fixture whose session goes through a proxy, a Mirror of that session, and another session.
type mirrored struct {
	*fixture
	proxy  *zkserver.Proxy
	mirror *zkstate.Mirror
	other  *zkconn.Session
}

func newMirrored(t *testing.T) mirrored {
	t.Helper()
	f, p := newProxyFixture(t)
	m := mirrored{f, p, zkstate.NewMirror(f.session), newFixture(t).session}
	m.create(f.root, nil)
	return m
}

func (m mirrored) create(path string, body []byte, acl ...zkconn.ACL) {
	m.t.Helper()
	if acl == nil {
		acl = anyone()
	}
	if _, err := m.other.Create(m.t.Context(), path, body, zkconn.Persistent, acl); err != nil {
		m.t.Fatal(err)
	}
}

func (m mirrored) set(path string, body string) {
	m.t.Helper()
	if _, err := m.other.Set(m.t.Context(), path, []byte(body), -1); err != nil {
		m.t.Fatal(err)
	}
}

// reads is how many reads the proxy has seen.
func (m mirrored) reads() int {
	sent := m.proxy.Requests()
	return sent[3] + sent[4] + sent[12]
}

// changes waits until a Look has changed.
func (m mirrored) changes(l *zkstate.Look) {
	m.t.Helper()
	select {
	case <-l.Changed():
	case <-time.After(time.Minute):
		m.t.Fatal("the look never changed")
	}
}

func unchanged(t *testing.T, l *zkstate.Look) {
	t.Helper()
	select {
	case <-l.Changed():
		t.Error("the look changed")
	default:
	}
}

func get(t *testing.T, s zkstate.Source, path string) string {
	t.Helper()
	body, _, err := s.Get(t.Context(), path)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		t.Fatal(err)
	}
	if err != nil {
		return "none"
	}
	return string(body)
}

// TestLookSeesEachChange: whatever is read through a Look, it changes when that does, and only then.
func TestLookSeesEachChange(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	ctx := t.Context()
	for name, read := range map[string]func(s zkstate.Source, at string) string{
		"data": func(s zkstate.Source, at string) string { return get(t, s, at) },
		"existence": func(s zkstate.Source, at string) string {
			stat, there, err := s.Exists(ctx, at)
			return fmt.Sprint(stat, there, err)
		},
		"children": func(s zkstate.Source, at string) string {
			names, _, err := s.Children(ctx, at)
			return fmt.Sprint(names, err)
		},
	} {
		at := m.root + "/" + name // of its own: another kind of read must not set its watches
		for i, test := range []struct {
			change func()
			seen   string
		}{
			{func() { m.create(at, []byte("1")) }, "data existence children"},
			{func() { m.set(at, "2") }, "data existence"},
			{func() { m.create(at+"/c", nil) }, "existence children"},
			{func() { _ = m.other.Delete(ctx, at+"/c", -1) }, "existence children"},
			{func() { _ = m.other.Delete(ctx, at, -1) }, "data existence children"},
		} {
			l := m.mirror.Look()
			if got, want := read(l, at), read(m.other, at); got != want {
				t.Errorf("%s, change %d: %s, want %s", name, i, got, want)
			}
			unchanged(t, l)
			if test.change(); strings.Contains(test.seen, name) {
				m.changes(l)
				continue
			}
			if err := m.session.Sync(ctx, "/"); err != nil { // an event would have come before the answer
				t.Fatal(err)
			}
			unchanged(t, l)
		}
	}
}

// TestWhatHasNotChangedIsReadOnce: also by two Looks at the same time, and by a Look that replaces another.
func TestWhatHasNotChangedIsReadOnce(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	for i := range 10 {
		m.create(fmt.Sprintf("%s/%d", m.root, i), []byte("x"))
	}
	readAll := func(l *zkstate.Look) {
		var all sync.WaitGroup
		for i := range 10 {
			for range 5 {
				all.Go(func() {
					if got := get(t, l, fmt.Sprintf("%s/%d", m.root, i)); got == "none" {
						t.Errorf("%d: %s", i, got)
					}
				})
			}
		}
		all.Wait()
	}
	before, l, beside := m.reads(), m.mirror.Look(), m.mirror.Look()
	var both sync.WaitGroup
	both.Go(func() { readAll(l) })
	both.Go(func() { readAll(beside) })
	both.Wait()
	if n := m.reads() - before; n != 10 {
		t.Errorf("%d reads for 10 znodes", n)
	}
	beside.Close()
	m.set(m.root+"/3", "y")
	m.changes(l)
	next := m.mirror.Look()
	readAll(next)
	l.Close()
	if n := m.reads() - before; n != 11 || get(t, next, m.root+"/3") != "y" {
		t.Errorf("%d reads, want one more", n)
	}
}

// TestAnEventDuringTheReadIsNotLost: a server has read, its answer is on the way, and the znode changes.
func TestAnEventDuringTheReadIsNotLost(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	for i := range 20 {
		at := fmt.Sprintf("%s/%d", m.root, i)
		m.create(at, []byte("old"))
		before := m.reads()
		m.proxy.Mute(true)
		l, got := m.mirror.Look(), make(chan string, 1)
		go func() { got <- get(t, l, at) }()
		for m.reads() == before {
			if err := m.other.Sync(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
		}
		m.set(at, "new")
		m.proxy.Mute(false)
		if seen := <-got; seen == "old" {
			m.changes(l)
		}
		if seen := get(t, l, at); seen != "new" {
			t.Fatal(seen)
		}
	}
}

// TestAReadThatIsGivenUpIsReadAgain: the one who waits for it does not get the error of the one who gave up.
func TestAReadThatIsGivenUpIsReadAgain(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(m.root+"/a", []byte("x"))
	before := m.reads()
	m.proxy.Mute(true)
	hasty, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := m.mirror.Look().Get(hasty, m.root+"/a")
		first <- err
	}()
	for m.reads() == before {
		if err := m.other.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
	}
	second, l := make(chan string, 1), m.mirror.Look()
	go func() { second <- get(t, l, m.root+"/a") }()
	for l.Uses() == 0 {
		runtime.Gosched()
	}
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	m.proxy.Mute(false)
	if got := <-second; got != "x" {
		t.Error(got)
	}
}

// TestARefusalIsDoubted: no event says that an ACL has changed.
func TestARefusalIsDoubted(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	at := m.root + "/secret"
	m.create(at, []byte("x"), zkconn.ACL{Perms: zkconn.PermAdmin, Scheme: "world", ID: "anyone"})
	l := m.mirror.Look()
	for range 2 {
		if _, _, err := l.Get(t.Context(), at); !errors.Is(err, zkconn.ErrNoAuth) {
			t.Errorf("error = %v", err)
		}
		if _, there, err := l.Exists(t.Context(), at); !there || err != nil {
			t.Errorf("exists: %v, %v", there, err)
		}
	}
	unchanged(t, l)
	m.mirror.Doubt()
	m.changes(l)
	if _, _, err := l.Get(t.Context(), at); !errors.Is(err, zkconn.ErrNoAuth) {
		t.Errorf("error = %v", err)
	}
}

// TestLooksEndWithTheSession: all of them change, and their reads say why.
func TestLooksEndWithTheSession(t *testing.T) {
	t.Parallel()
	f, p := newProxyFixture(t)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: f.servers, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := mirrored{f, p, zkstate.NewMirror(s), f.session}
	l, unused := m.mirror.Look(), m.mirror.Look()
	if got := get(t, l, m.root); got != "none" {
		t.Fatal(got)
	}
	p.Refuse(true)
	p.Cut()
	if got := get(t, l, m.root); got != "none" { // from memory
		t.Fatal(got)
	}
	for _, look := range []*zkstate.Look{l, unused, m.mirror.Look()} {
		m.changes(look)
		if _, _, err := look.Get(t.Context(), m.root); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("error = %v", err)
		}
		if err := look.Sync(t.Context(), "/"); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("sync: %v", err)
		}
	}
	m.changes(m.mirror.Look())
}

// TestWhatNobodyUsesIsForgotten: some is kept for the next Look, and no more than some.
func TestWhatNobodyUsesIsForgotten(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(m.root+"/kept", []byte("x"))
	kept := m.mirror.Look()
	get(t, kept, m.root+"/kept")
	for round := range 3 {
		l := m.mirror.Look()
		var all sync.WaitGroup
		for worker := range 20 {
			all.Go(func() {
				for i := worker; i < zkstate.MaxIdle; i += 20 {
					if got := get(t, l, fmt.Sprintf("%s/%d-%d", m.root, round, i)); got != "none" {
						t.Error(got)
					}
				}
			})
		}
		all.Wait()
		l.Close()
	}
	if n := m.mirror.Remembered(); n > zkstate.MaxIdle+1 {
		t.Errorf("%d answers are remembered, and one is used", n)
	}
	before := m.reads()
	if get(t, m.mirror.Look(), m.root+"/kept"); m.reads() != before {
		t.Error("what is used was forgotten")
	}
}

// TestWhatIsUsedNowAndThenIsListedOnce: a Look that is made and closed each second for months costs no memory.
func TestWhatIsUsedNowAndThenIsListedOnce(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(m.root+"/kept", []byte("x"))
	for range 3 * zkstate.MaxIdle {
		l := m.mirror.Look()
		get(t, l, m.root+"/kept")
		l.Close()
	}
	if n := m.mirror.Listed(); n > 2 {
		t.Errorf("%d answers are listed for one", n)
	}
}
