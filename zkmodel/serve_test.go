package zkmodel_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"muster/zkmodel"
	"muster/zkstate/zkconn"
)

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, o zkmodel.Options) (*zkmodel.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := zkmodel.New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, zkmodel.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

func dial(t *testing.T, addr string, auth ...zkconn.Auth) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{addr}, Auth: auth, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var open = zkconn.World(zkconn.PermAll)

// TestSession: the client of muster works with a server on a socket.
func TestSession(t *testing.T) {
	_, addr := serve(t, zkmodel.Options{})
	ctx, s := t.Context(), dial(t, addr)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Create(ctx, "/a", []byte("1"), zkconn.Persistent, open)
	must(err)
	_, _, changed, err := s.GetW(ctx, "/a")
	must(err)
	seq, err := s.Create(ctx, "/a/s-", nil, zkconn.EphemeralSequential, open)
	must(err)
	if seq != "/a/s-0000000000" {
		t.Errorf("sequential znode %s", seq)
	}
	if err := s.Delete(ctx, "/a", -1); !errors.Is(err, zkconn.ErrNotEmpty) {
		t.Errorf("delete of a parent: %v", err)
	}
	_, err = s.Multi(ctx, zkconn.SetOp("/a", []byte("2"), 0), zkconn.CheckOp("/a", 7))
	if !errors.Is(err, zkconn.ErrBadVersion) {
		t.Errorf("multi with a wrong version: %v", err)
	}
	results, err := s.Multi(ctx, zkconn.CheckOp("/a", 0), zkconn.SetOp("/a", []byte("2"), 0),
		zkconn.CreateOp("/a/p-", nil, zkconn.PersistentSequential, open))
	must(err)
	if results[1].Stat.Version != 1 || results[2].Path != "/a/p-0000000001" {
		t.Errorf("results %+v", results)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	names, stat, err := s.Children(ctx, "/a")
	must(err)
	if len(names) != 2 || stat.Cversion != 2 || stat.NumChildren != 2 {
		t.Errorf("children %v, %+v", names, stat)
	}
	must(s.Sync(context.WithoutCancel(ctx), "/"))
}
