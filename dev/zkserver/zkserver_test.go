package zkserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"
)

func start(t *testing.T, o Options) *Ensemble {
	t.Helper()
	begin := time.Now()
	e, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d server(s) served after %s", len(e.Addrs()), time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a client with a session.
func connect(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-deadline:
			t.Fatalf("no session with %s", addrs)
		}
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, []byte("data"), 0, zk.WorldACL(zk.PermAll))
	return err
}

// eventually repeats an attempt until it succeeds.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := attempt()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("still: %v", err)
		case <-tick.C:
		}
	}
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	if e.Connect() != e.Server(0).Addr() {
		t.Errorf("Connect %s, Addr %s", e.Connect(), e.Server(0).Addr())
	}
	if err := create(connect(t, e.Addrs()...), "/a"); err != nil {
		t.Error(err)
	}
	stat, err := e.Server(0).Stat(within(t, 5*time.Second))
	if err != nil || stat["Mode"] != "standalone" {
		t.Errorf("Stat %v, %v", stat, err)
	}
	mntr, err := e.Server(0).Mntr(within(t, 5*time.Second))
	if err != nil || mntr["zk_znode_count"] != "6" {
		t.Errorf("Mntr %v, %v", mntr, err)
	}
	if leader, err := e.Leader(within(t, 5*time.Second)); leader != 0 || err != nil {
		t.Errorf("Leader %d, %v", leader, err)
	}
}

func TestStopIsIdempotentAndRemovesItsDirectory(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	for range 2 {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(e.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory after Stop: %v", err)
	}
	if _, err := e.Server(0).Stat(within(t, 5*time.Second)); err == nil {
		t.Error("still answers after Stop")
	}
	if err := e.Server(0).Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "was stopped") {
		t.Errorf("Restart after Stop: %v", err)
	}
}

func TestGivenDirectoryKeepsItsData(t *testing.T) {
	t.Setenv("LC_ALL", "C") // in which Java cannot use every directory name
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), `a b\c:ü`)
			first := start(t, Options{Servers: servers, Dir: dir})
			if err := create(connect(t, first.Addrs()...), "/kept"); err != nil {
				t.Fatal(err)
			}
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			second := start(t, Options{Servers: servers, Dir: dir})
			if d := cmp.Diff(first.Addrs(), second.Addrs()); d == "" {
				t.Error("a new start is expected to choose new ports")
			}
			if there, _, err := connect(t, second.Addrs()...).Exists("/kept"); !there || err != nil {
				t.Errorf("exists %t, %v", there, err)
			}
		})
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	s := e.Server(0)
	if err := create(connect(t, s.Addr()), "/kept"); err != nil {
		t.Fatal(err)
	}
	before := s.Pid()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Errorf("second Kill: %v", err)
	}
	if err := s.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Pause of a dead server: %v", err)
	}
	if err := s.Restart(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if s.Pid() == before {
		t.Error("Restart has to be a new process")
	}
	if _, _, err := connect(t, s.Addr()).Get("/kept"); err != nil { // a new client, since the old one may wait a minute
		t.Error(err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	s := e.Server(0)
	for range 3 {
		if err := errors.Join(s.Pause(), s.Pause()); err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err != nil {
			t.Fatalf("a paused server is expected to accept: %v", err)
		}
		conn.Close()
		if _, err := s.Stat(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Stat of a paused server: %v", err)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Pause(), s.Kill()); err != nil {
		t.Errorf("Kill of a paused server: %v", err)
	}
}

func TestThreeServersElectAnotherLeader(t *testing.T) {
	t.Parallel()
	e := start(t, Options{Servers: 3})
	old, err := e.Leader(within(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := create(connect(t, e.Server(old).Addr()), "/a"); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []struct {
		name       string
		begin, end func(*Server) error
	}{
		{"kill", (*Server).Kill, func(s *Server) error { return s.Restart(within(t, 20*time.Second)) }},
		{"pause", (*Server).Pause, (*Server).Resume},
	} {
		if err := fault.begin(e.Server(old)); err != nil {
			t.Fatal(err)
		}
		leader, err := e.Leader(within(t, 20*time.Second))
		if err != nil || leader == old {
			t.Fatalf("%s: leader %d after %d, %v", fault.name, leader, old, err)
		}
		wantExists(t, dialRaw(t, e.Server(leader).Addr()), "/a", true)
		if err := fault.end(e.Server(old)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { _, err := e.Server(old).Stat(within(t, time.Second)); return err })
		old = leader
	}
}

func TestWholeEnsembleRestarts(t *testing.T) {
	t.Parallel()
	e := start(t, Options{Servers: 3})
	for i := range 3 {
		if err := e.Server(i).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	restarted := make(chan error)
	for i := range 3 {
		go func() { restarted <- e.Server(i).Restart(within(t, 2*time.Minute)) }()
	}
	for range 3 {
		if err := <-restarted; err != nil {
			t.Error(err)
		}
	}
}

func TestTwoEnsemblesAtOnce(t *testing.T) {
	t.Parallel()
	one, two := start(t, Options{}), start(t, Options{Netty: true, Jute: 2 << 20, SuperPassword: "pw"})
	a, b := connect(t, one.Addrs()...), connect(t, two.Addrs()...)
	if err := errors.Join(create(a, "/one"), create(b, "/two")); err != nil {
		t.Fatal(err)
	}
	if there, _, err := b.Exists("/one"); there || err != nil {
		t.Errorf("the second ensemble has the first one's znode: %t, %v", there, err)
	}
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.AddAuth("digest", []byte("super:pw")); err != nil {
		t.Error(err)
	}
	if _, err := b.Create("/two/closed", nil, 0, zk.DigestACL(zk.PermAll, "someone", "else")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Set("/two/closed", make([]byte, 5<<18), -1); err != nil {
		t.Errorf("1.25 MiB by the super user with a limit of 2 MiB: %v", err)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"2 servers":             {Servers: 2},
		"1 ports for 3 servers": {Servers: 3, Ports: []int{2181}},
	} {
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error about %q, got %v", name, err)
		}
	}
}
