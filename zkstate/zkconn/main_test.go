package zkconn_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/zkserver"
	"muster/zkstate/zkconn"
)

// one is the server that most tests share, each below a root of its own.
var one *zkserver.Ensemble

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if names, err = startNames(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if one, err = zkserver.Start(ctx, zkserver.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer one.Stop()
		return m.Run()
	}())
}

// dial opens a session on servers (default: the shared one), and closes it with the test.
func dial(t testing.TB, c zkconn.Config) *zkconn.Session {
	t.Helper()
	if c.Servers == nil {
		c.Servers = one.Addrs()
	}
	s, err := zkconn.Dial(within(t, 20*time.Second), c)
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

// root makes a znode for the test alone.
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

// proxy stands before the shared server.
func proxy(t testing.TB, target string) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// must fails the test on an error that is none of its business.
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
