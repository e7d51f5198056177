package zkconn_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// shared is the server that most tests use, each below a root of its own.
var shared *zkserver.Ensemble

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if names, err = startNames(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if shared, err = zkserver.Start(ctx, zkserver.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer shared.Stop()
		return m.Run()
	}())
}

// dial opens a session, by default on the shared server, and closes it at the end of the test.
func dial(t testing.TB, c zkconn.Config) *zkconn.Session {
	t.Helper()
	if c.Servers == nil {
		c.Servers = shared.Addrs()
	}
	s, err := zkconn.Dial(within(t, time.Minute), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// within is the test's context with a deadline.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// root creates a znode that only this test uses.
func root(t testing.TB) string {
	t.Helper()
	path := "/" + strings.ReplaceAll(t.Name(), "/", "_")
	s := dial(t, zkconn.Config{})
	made, err := s.Create(t.Context(), path+"-", nil, zkconn.PersistentSequential, open)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

var open = zkconn.World(zkconn.PermAll)

// proxy starts a proxy for the server at target.
func proxy(t testing.TB, target string) *fault.Proxy { return rig.Proxy(t, target) }

// must returns v, and fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// closes waits until ch is closed.
func closes(t testing.TB, ch <-chan struct{}, d time.Duration) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("still open after %s", d)
	}
}
