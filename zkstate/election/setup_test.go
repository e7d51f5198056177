package election_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/election"
	"muster/zkstate/zkconn"
)

// servers is the ensemble that all tests share. Each test has a folder of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) { os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}))) }

// testTimeout is longer than any test needs.
const testTimeout = time.Minute

// open permits everything to everybody.
var open = zkconn.World(zkconn.PermAll)

// dial opens a session with addrs, by default with the server itself.
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

// newProxy starts a proxy for the server.
func newProxy(t *testing.T) *zkserver.Proxy { return rig.Proxy(t, servers.Addrs()[0]) }

// fixture is a queue, and a session that no test ends.
type fixture struct {
	*testing.T
	queue   election.Queue
	session *zkconn.Session
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := dial(t, 30*time.Second)
	name := "/" + strings.ReplaceAll(t.Name(), "/", "_") + "-"
	dir, err := s.Create(t.Context(), name, nil, zkconn.PersistentSequential, open)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, election.Queue{Dir: dir, Prefix: "lock-"}, s}
}

// join creates a place for the session given, or for a new one.
func (f *fixture) join(sessions ...*zkconn.Session) *election.Place {
	f.Helper()
	if len(sessions) == 0 {
		sessions = append(sessions, dial(f.T, 30*time.Second))
	}
	p, err := f.queue.Join(f.Context(), sessions[0], nil, open)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// lead waits until p leads.
func (f *fixture) lead(p *election.Place) context.Context {
	f.Helper()
	held, err := p.Await(f.Context(), testTimeout, nil)
	if err != nil {
		f.Fatal(err)
	}
	return held
}

func (f *fixture) leave(p *election.Place) {
	f.Helper()
	if err := p.Leave(); err != nil {
		f.Fatal(err)
	}
}

// places are the paths of all places, the leader first.
func (f *fixture) places() []string {
	f.Helper()
	names, _, err := f.session.Children(f.Context(), f.queue.Dir)
	if err != nil {
		f.Fatal(err)
	}
	places := f.queue.InOrder(names)
	for i, name := range places {
		places[i] = f.queue.Dir + "/" + name
	}
	return places
}

// waiter is a place whose Await runs in a goroutine.
type waiter struct {
	place   *election.Place
	leaders chan string // the calls of waiting
	held    chan context.Context
	err     chan error
}

// await starts a waiter, and returns after its first call of waiting.
func (f *fixture) await(ctx context.Context, p *election.Place) *waiter {
	f.Helper()
	w := &waiter{p, make(chan string, 100), make(chan context.Context, 1), make(chan error, 1)}
	go func() {
		held, err := p.Await(ctx, testTimeout, func(leader string) { w.leaders <- leader })
		w.held <- held
		w.err <- err
	}()
	rig.Receive(f.T, w.leaders, "an event")
	return w
}

// leads waits until the waiter leads.
func (f *fixture) leads(w *waiter) context.Context {
	f.Helper()
	held, err := rig.Receive(f.T, w.held, "an event"), rig.Receive(f.T, w.err, "something")
	if err != nil {
		f.Fatal(err)
	}
	return held
}
