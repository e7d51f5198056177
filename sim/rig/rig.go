// Package rig is what tests with real servers share: the servers of a test binary, sessions and proxies that end with
// their test, resources in a root of their own, and waiting. It has no opinion about what a test does with them.
package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// Patience is how long Await and Receive wait for what must happen. It is long, since the machine may be busy.
const Patience = 5 * time.Minute

// A Server starts what all tests of a binary share, and returns what stops it.
type Server func(ctx context.Context) (stop func() error, err error)

// ZooKeeper starts an ensemble.
func ZooKeeper(e **zkserver.Ensemble, o zkserver.Options) Server {
	return func(ctx context.Context) (_ func() error, err error) {
		if *e, err = zkserver.Start(ctx, o); err != nil {
			return nil, err
		}
		return (*e).Stop, nil
	}
}

// Redis starts a Redis.
func Redis(r **redisserver.Server, o redisserver.Options) Server {
	return func(ctx context.Context) (_ func() error, err error) {
		if *r, err = redisserver.Start(ctx, o); err != nil {
			return nil, err
		}
		return (*r).Stop, nil
	}
}

// Main runs the tests of a binary while its servers run. It returns the code to end with.
func Main(m *testing.M, servers ...Server) (code int) {
	for _, start := range servers {
		stop, err := start(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
	}
	return m.Run()
}

// Dial opens a session that the end of the test closes.
func Dial(t testing.TB, timeout time.Duration, addrs ...string) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: addrs, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Proxy stands before a server, ZooKeeper's or Redis's, until the test ends.
func Proxy(t testing.TB, addr string) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// StartRedis starts a Redis that ends with the test.
func StartRedis(t testing.TB, o redisserver.Options) *redisserver.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Liar stands for the Redis at an address until the test ends, and returns its own. See redisserver.NewLiar.
func Liar(t testing.TB, redis string, answer func(request []string) io.Reader) (addr string) {
	t.Helper()
	l, err := redisserver.NewLiar(redis, answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr()
}

// Store is that of the stack "tests", whose home is below the root.
func Store(t testing.TB, s *zkconn.Session, root string, kinds ...zkstate.Kind) *zkstate.Store {
	t.Helper()
	store, err := zkstate.NewStore(s, zkstate.Config{Home: root + "/home", Stack: "tests", Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Create applies a resource that does not exist.
func Create(t testing.TB, store *zkstate.Store, d resource.Declaration) {
	t.Helper()
	row := plan.Row{Path: d.ID().Path(), New: d, Reason: plan.NotThere}
	if err := store.Commit(t.Context(), row); err != nil {
		t.Fatal(err)
	}
}

// Update applies fields that may change while somebody is live.
func Update(t testing.TB, store *zkstate.Store, d resource.Declaration) {
	t.Helper()
	path := d.ID().Path()
	row := plan.Row{Path: path, Old: Look(t, store, path), New: d, Reason: plan.MutableDiffers}
	if err := store.Commit(t.Context(), row); err != nil {
		t.Fatal(err)
	}
}

// Look is what is there of a resource; nil: nothing.
func Look(t testing.TB, store *zkstate.Store, path string) *resource.Observed {
	t.Helper()
	o, err := store.Look(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Await looks at a fact until it holds.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(Patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %s for %s", Patience, what)
		}
	}
}

// Receive waits for what somebody sends.
func Receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience):
		t.Fatalf("waited %s for %s", Patience, what)
	}
	return v
}
