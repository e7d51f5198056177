package zkmodel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muster/dev/zkmodel"
	"muster/plan"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

var everybody = zkconn.World(zkconn.PermAll)

// listen serves a model on loopback until the test ends, and returns its address.
func listen(t *testing.T, s *zkmodel.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, zkmodel.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// newServer is closed after what the test does later has ended.
func newServer(t *testing.T) *zkmodel.Server {
	s := zkmodel.New(zkmodel.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

// inMemory is the configuration of a client whose connections are pipes in this process.
func inMemory(s *zkmodel.Server) zkconn.Config {
	return zkconn.Config{
		Servers: []string{"127.0.0.1:2181"}, Timeout: 10 * time.Second, Small: true,
		Dial: func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go s.ServeConn(theirs)
			return ours, nil
		},
	}
}

func session(t *testing.T, c zkconn.Config) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientOnASocket: each call of muster's client works with a server on a socket.
func TestClientOnASocket(t *testing.T) {
	addr := listen(t, zkmodel.New(zkmodel.Options{}))
	ctx := t.Context()
	s := session(t, zkconn.Config{
		Servers: []string{addr}, Auth: []zkconn.Auth{{Scheme: "digest", Data: []byte("ann:secret")}},
	})
	_, err := s.Create(ctx, "/a", []byte("1"), zkconn.Persistent, []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}})
	must(t, err)
	_, _, changed, err := s.GetW(ctx, "/a")
	must(t, err)
	_, _, children, err := s.ChildrenW(ctx, "/a")
	must(t, err)
	if path, err := s.Create(ctx, "/a/s-", nil, zkconn.EphemeralSequential, everybody); path != "/a/s-0000000000" {
		t.Errorf("sequential znode %q: %v", path, err)
	}
	if err := s.Delete(ctx, "/a", -1); !errors.Is(err, zkconn.ErrNotEmpty) {
		t.Errorf("delete of a parent: %v", err)
	}
	_, err = s.Multi(ctx, zkconn.SetOp("/a", []byte("2"), 0), zkconn.CheckOp("/a", 7), zkconn.CheckOp("/none", 0))
	var why *zkconn.Error
	if !errors.Is(err, zkconn.ErrBadVersion) || !errors.As(err, &why) || why.Op != "check" || why.Path != "/a" {
		t.Errorf("multi with a wrong version: %v", err)
	}
	results, err := s.Multi(ctx, zkconn.CheckOp("/a", 0), zkconn.SetOp("/a", []byte("2"), 0),
		zkconn.CreateOp("/a/p-", nil, zkconn.PersistentSequential, everybody))
	must(t, err)
	if results[1].Stat.Version != 1 || results[2].Path != "/a/p-0000000001" {
		t.Errorf("results %+v", results)
	}
	<-changed
	<-children
	names, stat, err := s.Children(ctx, "/a")
	must(t, err)
	slices.Sort(names)
	if !slices.Equal(names, []string{"p-0000000001", "s-0000000000"}) || stat.Cversion != 2 || stat.Version != 1 {
		t.Errorf("children %q, %+v", names, stat)
	}
	must(t, s.Sync(ctx, "/"))
	stranger := session(t, zkconn.Config{Servers: []string{addr}})
	if _, _, err := stranger.Get(ctx, "/a"); !errors.Is(err, zkconn.ErrNoAuth) {
		t.Errorf("a stranger reads: %v", err)
	}
	must(t, s.Close())
	if stat, _, err := stranger.Exists(ctx, "/a"); err != nil || stat.NumChildren != 1 {
		t.Errorf("after the session: %+v, %v", stat, err)
	}
}

// TestServeExpires: without anybody's help a silent session ends, and an idle one goes on.
func TestServeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		idle := session(t, inMemory(s))
		c := inMemory(s)
		connections := make(chan net.Conn, 10)
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if len(connections) > 0 {
				return nil, io.ErrClosedPipe
			}
			conn, err := dial(ctx, addr)
			connections <- conn
			return conn, err
		}
		silent := session(t, c)
		_, err := silent.Create(t.Context(), "/e", nil, zkconn.Ephemeral, everybody)
		must(t, err)
		(<-connections).Close()
		connections <- nil
		_, _, gone, err := idle.GetW(t.Context(), "/e")
		must(t, err)
		cut := time.Now()
		<-gone
		if after := time.Since(cut); after < 9*time.Second || after > 11*time.Second {
			t.Errorf("the session expires after %s", after)
		}
		<-time.After(time.Hour)
		if err := idle.Context().Err(); err != nil {
			t.Errorf("the idle session ends: %v", err)
		}
	})
}

// TestWorkersInMemory: a job is applied, and its workers join and pass a barrier.
func TestWorkersInMemory(t *testing.T) {
	s := newServer(t)
	ctx, j := t.Context(), job.Default()
	j.Root, j.Name, j.Workers = "/jobs", "j", 3
	store, err := zkstate.NewStore(session(t, inMemory(s)), zkstate.Config{
		Home: "/home", Stack: "tests", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	must(t, err)
	must(t, store.Commit(ctx, plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}))
	type joined struct {
		id  int
		err error
	}
	members := make(chan joined, j.Workers)
	for i := range j.Workers {
		own := session(t, inMemory(s))
		c := worker.Config{Root: j.Root, Job: j.Name, Identity: fmt.Sprintf("w%d", i)}
		c.Info = znode.Worker{IP: "127.0.0.1", Port: 7000}
		go func() {
			m, err := worker.Join(ctx, own, c)
			if err != nil {
				members <- joined{err: err}
				return
			}
			members <- joined{m.ID, m.Barrier(ctx, worker.Barrier{Name: "start"})}
		}()
	}
	var ids []int
	for range j.Workers {
		m := <-members
		must(t, m.err)
		ids = append(ids, m.id)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []int{0, 1, 2}) {
		t.Errorf("ids %v", ids)
	}
}

// TestClientThatDoesNotRead does not keep the server from anything.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			s.ServeConn(theirs)
			close(served)
		}()
		handshake := make([]byte, 4+44)
		handshake[3], handshake[4+27] = 44, 16
		for range 2 { // the second is a request that closes the connection
			_, err := ours.Write(handshake)
			must(t, err)
		}
		other := session(t, inMemory(s))
		_, err := other.Create(t.Context(), "/a", nil, zkconn.Persistent, everybody)
		must(t, err)
		<-served
	})
}

// refusing is a listener whose Accept fails with these errors, one after the other. Then it has no more connections.
type refusing struct {
	errs  []error
	asked time.Time // when Accept was called last
	ctx   context.Context
	close func()
}

func (r *refusing) Accept() (net.Conn, error) {
	if r.asked = time.Now(); len(r.errs) == 0 {
		<-r.ctx.Done()
		return nil, net.ErrClosed
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
}

func (r *refusing) Close() error   { r.close(); return nil }
func (r *refusing) Addr() net.Addr { return nil }

// TestServeWithoutFiles: Serve goes on when the process has no file for a connection, and waits longer each time, up
// to a second. Close does not wait for that. Other errors end it.
func TestServeWithoutFiles(t *testing.T) {
	const ms = time.Millisecond
	none := slices.Repeat([]error{syscall.EMFILE, syscall.ENFILE}, 10)
	for name, c := range map[string]struct {
		errs     []error
		asked    time.Duration // Accept was called last
		closed   time.Duration // Close is called
		ends     time.Duration
		endsWith error
	}{
		"goes_on":      {none, 13275 * ms, time.Hour, time.Hour, zkmodel.ErrClosed},
		"is_closed":    {none, 300 * ms, 300 * ms, 300 * ms, zkmodel.ErrClosed},
		"other_errors": {append(none[:1:1], syscall.EINVAL), 5 * ms, time.Hour, 5 * ms, syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := zkmodel.New(zkmodel.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				l := &refusing{c.errs, time.Time{}, ctx, cancel}
				start := time.Now()
				time.AfterFunc(c.closed, func() { s.Close() })
				if err := s.Serve(l); !errors.Is(err, c.endsWith) || time.Since(start) != c.ends {
					t.Errorf("after %v: %v; want %v after %v", time.Since(start), err, c.endsWith, c.ends)
				}
				if at := l.asked.Sub(start); at != c.asked {
					t.Errorf("Accept was called last after %v, want %v", at, c.asked)
				}
				must(t, s.Close())
			})
		})
	}
}

// TestServersClose: Close ends what is served, and nothing is served after it.
func TestServersClose(t *testing.T) {
	s := zkmodel.New(zkmodel.Options{})
	addr := listen(t, s)
	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	endless, err := net.Dial("tcp", addr)
	must(t, err)
	defer endless.Close()
	_, err = endless.Write([]byte("\xff\xff\xff\xff"))
	must(t, err)
	if n, err := endless.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes after the beginning of an endless frame", n)
	}
	must(t, s.Close())
	must(t, s.Close())
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes after Close", n)
	}
	ours, theirs := net.Pipe()
	s.ServeConn(theirs)
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection after Close: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if err := s.Serve(l); !errors.Is(err, zkmodel.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}
