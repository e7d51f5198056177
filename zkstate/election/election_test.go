package election_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/election"
	"muster/zkstate/zkconn"
)

// TestPlacesLeadInOrder: each waiter leads when all before it have left, and not earlier.
func TestPlacesLeadInOrder(t *testing.T) {
	f := newFixture(t)
	first := f.join()
	f.lead(first)
	var waiters []*waiter
	for range 4 {
		waiters = append(waiters, f.await(t.Context(), f.join()))
	}
	order := f.places()
	f.leave(first)
	for i, w := range waiters {
		held := f.leads(w)
		if places := f.places(); !slices.Equal(places, order[i+1:]) {
			t.Errorf("waiter %d leads, and these places exist: %q of %q", i, places, order)
		}
		f.leave(w.place)
		if cause := context.Cause(held); !errors.Is(cause, context.Canceled) {
			t.Errorf("what a place held after Leave ended with %v", cause)
		}
	}
	if left := f.places(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestAwaitTimesOut: a place that does not lead in time is kept, and Await can be called again.
func TestAwaitTimesOut(t *testing.T) {
	f := newFixture(t)
	first, second := f.join(), f.join()
	f.lead(first)
	for _, timeout := range []time.Duration{0, 100 * time.Millisecond} {
		var leaders []string
		_, err := second.Await(t.Context(), timeout, func(leader string) { leaders = append(leaders, leader) })
		if !errors.Is(err, election.ErrNotLeading) || !slices.Equal(leaders, f.places()[:1]) {
			t.Errorf("timeout of %s: %v; leaders %q", timeout, err, leaders)
		}
	}
	if n := len(f.places()); n != 2 {
		t.Errorf("there are %d places; want 2", n)
	}
	f.leave(first)
	if _, err := second.Await(t.Context(), 0, nil); err != nil {
		t.Errorf("the only place, without a timeout: %v", err)
	}
	f.leave(second)
	f.leave(second) // does no harm
}

// TestPlaceIsCreatedOnce even if the create or its reply is lost.
func TestPlaceIsCreatedOnce(t *testing.T) {
	isCreate := func(op int32, _ []byte) bool { return op == fault.OpCreate }
	faults := map[string]func(*fault.Proxy) <-chan struct{}{
		"not sent":    func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isCreate) },
		"reply lost":  func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isCreate) },
		"after reply": func(p *fault.Proxy) <-chan struct{} { return p.AfterReply(isCreate) },
	}
	for fault, arm := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			f, proxy := newFixture(t), newProxy(t)
			s := dial(t, 30*time.Second, proxy.Addr())
			secret := zkconn.World(zkconn.PermAll &^ zkconn.PermRead)
			place := f.queue.Dir + "/" + f.queue.Prefix
			other, err := f.session.Create(t.Context(), place, nil, zkconn.EphemeralSequential, secret)
			if err != nil {
				t.Fatal(err)
			}
			fired := arm(proxy)
			p := f.join(s)
			rig.Receive(t, fired, "an event")
			if places := f.places(); len(places) != 2 {
				t.Errorf("places: %q; want that of the other session and one more", places)
			}
			if err := f.session.Delete(t.Context(), other, -1); err != nil {
				t.Error(err)
			}
			f.lead(p)
			f.leave(p)
			if left := f.places(); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestLostReplyToTheDelete: Leave reads whether the place is gone.
func TestLostReplyToTheDelete(t *testing.T) {
	f, proxy := newFixture(t), newProxy(t)
	p := f.join(dial(t, 30*time.Second, proxy.Addr()))
	fired := proxy.DropReply(func(op int32, _ []byte) bool { return op == fault.OpDelete })
	f.leave(p)
	rig.Receive(t, fired, "an event")
	if left := f.places(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestContextEnds before Join, in Join, and in Await: nothing is left behind.
func TestContextEnds(t *testing.T) {
	t.Run("in Join", func(t *testing.T) {
		f, proxy := newFixture(t), newProxy(t)
		s := dial(t, 30*time.Second, proxy.Addr())
		ctx, cancel := context.WithCancel(t.Context())
		fired := proxy.DropReply(func(op int32, _ []byte) bool {
			if op == fault.OpCreate {
				cancel()
			}
			return op == fault.OpCreate
		})
		p, err := f.queue.Join(ctx, s, nil, open)
		if err != nil {
			t.Fatal(err)
		}
		rig.Receive(t, fired, "an event")
		if _, err := p.Await(ctx, testTimeout, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v", err)
		}
		f.leave(p)
		if left := f.places(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("before Join", func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.queue.Join(ctx, f.session, nil, open); !errors.Is(err, context.Canceled) {
			t.Errorf("Join: %v", err)
		}
		if left := f.places(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("in Await", func(t *testing.T) {
		f := newFixture(t)
		first := f.join()
		ctx, cancel := context.WithCancel(t.Context())
		w := f.await(ctx, f.join())
		cancel()
		if err := rig.Receive(t, w.err, "an event"); !errors.Is(err, context.Canceled) {
			t.Errorf("Await: %v", err)
		}
		f.leave(w.place)
		if n := len(f.places()); n != 1 {
			t.Errorf("there are %d places; want 1", n)
		}
		f.leave(first)
	})
}

// TestNeverTwoLeaders: the context of a leader whose session was closed, or that is disconnected, ends before the next
// one leads.
func TestNeverTwoLeaders(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		f, s := newFixture(t), dial(t, 30*time.Second)
		held := f.lead(f.join(s))
		w := f.await(t.Context(), f.join())
		s.Close()
		f.leads(w)
		if err := context.Cause(held); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead leader's context: %v", err)
		}
	})
	t.Run("disconnected", func(t *testing.T) {
		t.Parallel()
		f, proxy := newFixture(t), newProxy(t)
		dead := f.join(dial(t, 4*time.Second, proxy.Addr()))
		held := f.lead(dead)
		w := f.await(t.Context(), f.join())
		proxy.Refuse(true)
		proxy.Cut()
		f.leads(w)
		if err := context.Cause(held); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead leader's context: %v", err)
		}
		f.leave(dead) // does nothing
	})
	t.Run("a waiter", func(t *testing.T) {
		t.Parallel()
		f, s := newFixture(t), dial(t, 30*time.Second)
		first := f.join()
		f.lead(first)
		middle := f.await(t.Context(), f.join(s))
		last := f.await(t.Context(), f.join())
		s.Close()
		if err := rig.Receive(t, middle.err, "an event"); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("the dead waiter: %v", err)
		}
		f.leave(first)
		f.leads(last)
	})
}

// TestPlaceRemovedByHand: the place is lost, and only the next in order leads.
func TestPlaceRemovedByHand(t *testing.T) {
	remove := func(f *fixture, path string) {
		t.Helper()
		if err := f.session.Delete(t.Context(), path, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the leader's", func(t *testing.T) {
		f := newFixture(t)
		first := f.join()
		held := f.lead(first)
		w := f.await(t.Context(), f.join())
		remove(f, f.places()[0])
		f.leads(w)
		rig.Receive(t, held.Done(), "an event")
		if err := context.Cause(held); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("what was held ended with %v", err)
		}
		f.leave(first)
	})
	t.Run("a waiter's", func(t *testing.T) {
		f := newFixture(t)
		first := f.join()
		f.lead(first)
		middle := f.await(t.Context(), f.join())
		last := f.await(t.Context(), f.join())
		remove(f, f.places()[1])
		f.leave(first)
		f.leads(last)
		if err := rig.Receive(t, middle.err, "an event"); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("the waiter's Await: %v", err)
		}
		f.leave(middle.place)
		if len(last.leaders) > 0 {
			t.Errorf("the last waiter got another leader: %s", <-last.leaders)
		}
	})
	t.Run("and made by another", func(t *testing.T) {
		f := newFixture(t)
		first := f.join()
		held := f.lead(first)
		path := f.places()[0]
		other := dial(t, 30*time.Second)
		_, err := other.Multi(t.Context(), zkconn.DeleteOp(path, 0), zkconn.CreateOp(path, nil, zkconn.Ephemeral, open))
		if err != nil {
			t.Fatal(err)
		}
		rig.Receive(t, held.Done(), "an event")
		if err := context.Cause(held); !errors.Is(err, election.ErrRemoved) {
			t.Errorf("what was held ended with %v", err)
		}
		f.leave(first)
		if places := f.places(); !slices.Equal(places, []string{path}) {
			t.Errorf("the place of the other session is gone: %q", places)
		}
	})
}

// TestBodyMayChange: a changed body ends nothing.
func TestBodyMayChange(t *testing.T) {
	f := newFixture(t)
	p := f.join()
	held := f.lead(p)
	if _, err := f.session.Set(t.Context(), f.places()[0], []byte("changed"), 0); err != nil {
		t.Fatal(err)
	}
	w := f.await(t.Context(), f.join())
	if held.Err() != nil {
		t.Errorf("a changed body ended what was held: %v", context.Cause(held))
	}
	f.leave(p)
	f.leads(w)
}

func TestInOrder(t *testing.T) {
	q := election.Queue{Dir: "/q", Prefix: "lock-"}
	for what, c := range map[string]struct{ names, want []string }{
		"by number": {
			[]string{"lock-0000000010", "lock-0000000009", "lock-0000000100"},
			[]string{"lock-0000000009", "lock-0000000010", "lock-0000000100"},
		},
		"over the end of the numbers": {
			[]string{"lock--2147483647", "lock--2147483648", "lock-2147483646", "lock-2147483647"},
			[]string{"lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"},
		},
		"back to zero": {
			[]string{"lock-0000000000", "lock--000000001", "lock-0000000001"},
			[]string{"lock--000000001", "lock-0000000000", "lock-0000000001"},
		},
		"only places": {
			[]string{"note", "lock-", "lock-1", "lock-00000000010", "seat-0000000001",
				"lock-0000000002", "lock-2147483648"},
			[]string{"lock-0000000002"},
		},
		"none": {nil, nil},
	} {
		if d := cmp.Diff(c.want, q.InOrder(c.names)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
}

// TestNoHerdEffect: each of many waiters has one watch, and reads the queue twice: when it joins, and when the place
// before it is gone.
func TestNoHerdEffect(t *testing.T) {
	const many = 60
	f, proxy := newFixture(t), newProxy(t)
	before := watches(t) + 1 // the leader's, which it sets in the background
	first := f.join()
	f.lead(first)
	waiters := make([]*waiter, many)
	for i := range waiters {
		waiters[i] = f.await(t.Context(), f.join(dial(t, 30*time.Second, proxy.Addr())))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for watches(t) < before+many { // ends with the test's deadline at the latest
		<-tick.C
	}
	if n := watches(t) - before; n != many {
		t.Errorf("%d waiters have %d watches", many, n)
	}
	f.leave(first)
	for _, w := range waiters {
		f.leads(w)
		f.leave(w.place)
	}
	requests := proxy.Requests()
	if n := requests[fault.OpGetChildren2]; n != 2*many {
		t.Errorf("%d waiters read the queue %d times; want each twice", many, n)
	}
	// Each checks the place before it once, to wait, and its own once, to leave it; what it holds it reads.
	if n := requests[fault.OpExists]; n != 2*many {
		t.Errorf("%d waiters checked a place %d times; want each twice", many, n)
	}
}

// watches is the number of watches on the server.
func watches(t *testing.T) int {
	t.Helper()
	facts, err := servers.Server(0).Mntr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(facts["zk_watch_count"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

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
func newProxy(t *testing.T) *fault.Proxy { return rig.Proxy(t, servers.Addrs()[0]) }

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
