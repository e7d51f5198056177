package election_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/election"
	"muster/zkserver"
	"muster/zkstate/zkconn"
)

// servers is the one ensemble of this test binary; every test has a folder of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	var err error
	if servers, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := servers.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is more than any test needs.
const patience = time.Minute

// open lets everybody do everything.
var open = zkconn.World(zkconn.PermAll)

// dial opens a session at addrs, or at the server itself.
func dial(t *testing.T, timeout time.Duration, addrs ...string) *zkconn.Session {
	t.Helper()
	if len(addrs) == 0 {
		addrs = servers.Addrs()
	}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: addrs, Timeout: timeout, Small: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newProxy stands before the server.
func newProxy(t *testing.T) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// bed is a queue, and a session that nobody cuts.
type bed struct {
	*testing.T
	queue   election.Queue
	session *zkconn.Session
}

func newBed(t *testing.T) *bed {
	t.Helper()
	s := dial(t, 30*time.Second)
	name := "/" + strings.ReplaceAll(t.Name(), "/", "_") + "-"
	dir, err := s.Create(t.Context(), name, nil, zkconn.PersistentSequential, open)
	if err != nil {
		t.Fatal(err)
	}
	return &bed{t, election.Queue{Dir: dir, Prefix: "lock-"}, s}
}

// join takes a place for s, or for a new session.
func (b *bed) join(sessions ...*zkconn.Session) *election.Place {
	b.Helper()
	if len(sessions) == 0 {
		sessions = append(sessions, dial(b.T, 30*time.Second))
	}
	p, err := b.queue.Join(b.Context(), sessions[0], nil, open)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// lead waits until p leads.
func (b *bed) lead(p *election.Place) context.Context {
	b.Helper()
	held, err := p.Await(b.Context(), patience, nil)
	if err != nil {
		b.Fatal(err)
	}
	return held
}

func (b *bed) leave(p *election.Place) {
	b.Helper()
	if err := p.Leave(); err != nil {
		b.Fatal(err)
	}
}

// places are the paths of those that stand, the leader first.
func (b *bed) places() []string {
	b.Helper()
	names, _, err := b.session.Children(b.Context(), b.queue.Dir)
	if err != nil {
		b.Fatal(err)
	}
	places := b.queue.InOrder(names)
	for i, name := range places {
		places[i] = b.queue.Dir + "/" + name
	}
	return places
}

// waiter is a place whose Await runs beside the test.
type waiter struct {
	place *election.Place
	told  chan string // every leader that it was told of
	held  chan context.Context
	err   chan error
}

// await starts to wait, and returns when the waiter was told who leads.
func (b *bed) await(ctx context.Context, p *election.Place) *waiter {
	b.Helper()
	w := &waiter{p, make(chan string, 100), make(chan context.Context, 1), make(chan error, 1)}
	go func() {
		held, err := p.Await(ctx, patience, func(leader string) { w.told <- leader })
		w.held <- held
		w.err <- err
	}()
	receive(b.T, w.told)
	return w
}

// leads waits until the waiter leads.
func (b *bed) leads(w *waiter) context.Context {
	b.Helper()
	held, err := receive(b.T, w.held), receive(b.T, w.err)
	if err != nil {
		b.Fatal(err)
	}
	return held
}

// receive waits for something on ch.
func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("not reached")
}
