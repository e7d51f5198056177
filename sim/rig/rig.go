// Package rig is what tests with real servers share: the servers of a test binary, sessions and proxies that end with
// their test, resources in a root of their own, and waiting. For tests that let processes and servers fail at random it
// also says for how long, and with which seed. It has no opinion about what a test does with them, and makes no faults.
package rig

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/tasks/store/storemodel"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// Patience is how long Await and Receive wait for what must happen. It is long, since the machine may be busy.
const Patience = 5 * time.Minute

// A Server starts what all tests of a binary share, and returns what stops it.
type Server func(ctx context.Context) (stop func() error, err error)

// ZooKeeper starts an ensemble.
func ZooKeeper(e **zkserver.Ensemble, o zkserver.Options) Server { return server(e, zkserver.Start, o) }

// Redis starts a Redis.
func Redis(r **redisserver.Server, o redisserver.Options) Server {
	return server(r, redisserver.Start, o)
}

func server[S interface{ Stop() error }, O any](s *S, start func(context.Context, O) (S, error), o O) Server {
	return func(ctx context.Context) (_ func() error, err error) {
		if *s, err = start(ctx, o); err != nil {
			return nil, err
		}
		return (*s).Stop, nil
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
func Proxy(t testing.TB, addr string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(addr)
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

// Liar is an address that stands for a Redis until the test ends, and answers some requests itself: with what no Redis
// answers, if the test wants that. answer returns what a request gets, also without an end; nil: what the Redis says.
// It is called for many connections at a time.
func Liar(t testing.TB, redis string, answer func(request []string) io.Reader) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { lie(open, c, redis, answer) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		end()
		running.Wait()
	})
	return l.Addr().String()
}

// lie answers a connection until either side ends it, or ctx.
func lie(ctx context.Context, c net.Conn, redis string, answer func(request []string) io.Reader) {
	ctx, end := context.WithCancel(ctx)
	closeAtEnd := func(c net.Conn) { context.AfterFunc(ctx, func() { _ = c.Close() }) }
	var copying sync.WaitGroup
	defer copying.Wait()
	defer end()
	closeAtEnd(c)
	truth, err := net.Dial("tcp", redis)
	if err == nil { // nobody listens at "": then all answers are lies
		closeAtEnd(truth)
		copying.Go(func() {
			defer end()
			_, _ = io.Copy(c, truth)
		})
	}
	for raw, words := range storemodel.Requests(c) {
		switch lie := answer(words); {
		case lie != nil:
			_, err = io.Copy(c, lie)
		case truth != nil:
			_, err = truth.Write(raw)
		default:
			return
		}
		if err != nil {
			return
		}
	}
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
	late := time.After(Patience)
	for !holds() {
		select {
		case <-time.After(10 * time.Millisecond):
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

// Long reports whether the long forms are wanted: MUSTER_SOAK is set.
func Long() bool { return os.Getenv("MUSTER_SOAK") != "" }

// Seed is MUSTER_SEED, or random. It is logged. It repeats the choice of faults, but not what they meet.
func Seed(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("MUSTER_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	t.Logf("MUSTER_SEED=%d", n)
	return n
}

// PollEvery is how often Until looks.
const PollEvery = 50 * time.Millisecond

// Until looks until ok returns "". After a limit it fails with what ok said last.
func Until(t *testing.T, limit time.Duration, what string, ok func() string) {
	t.Helper()
	late := time.Now().Add(limit)
	for {
		missing := ok()
		if missing == "" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: not within %s: %s", what, limit, missing)
		}
		zkconn.Pause(t.Context(), PollEvery)
	}
}

// Between is a random duration.
func Between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// Build builds commands into dir, by their names, from the folders of their packages: without C, as make build does.
func Build(dir string, packages map[string]string) error {
	for name, from := range packages {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, name), from)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", from, err, out)
		}
	}
	return nil
}
