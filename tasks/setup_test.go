package tasks

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// The servers of all tests of this package; every test has a root, and a queue, of its own there.
var (
	servers *zkserver.Ensemble
	rediss  *redisserver.Server
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}), rig.Redis(&rediss, redisserver.Options{})))
}

// limit is how long a test waits for what must happen.
const limit = 5 * time.Minute

func dial(t testing.TB, addrs ...string) *zkconn.Session {
	t.Helper()
	return dialTimeout(t, 10*time.Second, addrs...)
}

// dialTimeout opens a session with a timeout.
func dialTimeout(t testing.TB, timeout time.Duration, addrs ...string) *zkconn.Session {
	t.Helper()
	if len(addrs) == 0 {
		addrs = servers.Addrs()
	}
	return rig.Dial(t, timeout, addrs...)
}

// fixture is a queue in a root of its own.
type fixture struct {
	t     testing.TB
	queue queue.Queue
	admin *zkstate.Store
	s     *zkconn.Session // an observer's

	found string        // the generation, once it was read
	once  sync.Once     // of found
	redis *redis.Client // an observer's, once it was asked for
}

// newFixture creates a queue on the Redis of the tests.
func newFixture(t testing.TB, edits ...func(*queue.Queue)) *fixture {
	t.Helper()
	f := prepare(t, edits...)
	f.create()
	return f
}

// prepare is a fixture whose queue does not exist yet.
func prepare(t testing.TB, edits ...func(*queue.Queue)) *fixture {
	t.Helper()
	f := &fixture{t: t, queue: queue.Default(), s: dial(t)}
	f.queue.Root, f.queue.Name, f.queue.Redis = "/test-"+zkstate.NewID(), "primes", "redis://"+rediss.Addr()+"/0"
	for _, edit := range edits {
		edit(&f.queue)
	}
	f.admin = rig.Store(t, f.s, f.queue.Root, zkstate.Queue())
	return f
}

// create applies a queue that does not exist.
func (f *fixture) create() { rig.Create(f.t, f.admin, f.queue) }

// change applies the queue as it is now.
func (f *fixture) change(edit func(*queue.Queue)) {
	f.t.Helper()
	edit(&f.queue)
	rig.Update(f.t, f.admin, f.queue)
}

func (f *fixture) look() *resource.Observed { return rig.Look(f.t, f.admin, f.queue.Path()) }

func noEnvironment(string) string { return "" }

// login is an edit for join: who the process is in a Redis on this machine.
func login(user, password string) func(*Config) {
	return func(c *Config) {
		c.Redis.Getenv = func(name string) string {
			return map[string]string{
				queue.EnvUsername: user, queue.EnvPassword: password, queue.EnvHosts: "127.0.0.1",
			}[name]
		}
	}
}

func (f *fixture) config(identity string, role queue.Role) Config {
	return Config{
		Root: f.queue.Root, Queue: f.queue.Name, Identity: identity, Role: role, Parallel: 10,
		Redis: Access{Getenv: noEnvironment},
	}
}

// join joins in a session of its own.
func (f *fixture) join(identity string, role queue.Role, edits ...func(*Config)) *Process {
	f.t.Helper()
	return f.joinIn(dial(f.t), identity, role, edits...)
}

// joinIn joins in a session.
func (f *fixture) joinIn(s *zkconn.Session, identity string, role queue.Role, edits ...func(*Config)) *Process {
	f.t.Helper()
	c := f.config(identity, role)
	for _, edit := range edits {
		edit(&c)
	}
	p, err := Join(f.t.Context(), s, c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.Leave() })
	return p
}

// generation is the queue's, which most tests never replace.
func (f *fixture) generation() string {
	f.t.Helper()
	f.once.Do(func() { f.found = f.look().Record.Generation })
	return f.found
}

// client is a connection to the Redis of the queue.
func (f *fixture) client() *redis.Client {
	f.t.Helper()
	client, err := Access{Getenv: noEnvironment}.connect(f.t.Context(), f.queue)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { client.Close() })
	return client
}

// store is the queue in Redis, seen by an observer.
func (f *fixture) store() *store.Queue {
	f.t.Helper()
	if f.redis == nil {
		f.redis = f.client()
	}
	return open(f.redis, f.queue, f.generation())
}

// books are those of the queue in Redis.
func (f *fixture) books() store.Books {
	f.t.Helper()
	b, err := f.store().Books(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fixture) ledger() ledger { return ledger{f.s, f.queue.Root, f.generation()} }

// hook is between a client of Redis and its connection: it sends each command, or does not.
type hook func(cmd redis.Cmder, send func() error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(cmd, func() error { return next(ctx, cmd) })
	}
}

// lost is what the caller of a command sees whose request or reply is lost.
func lost(cmd redis.Cmder) error {
	cmd.SetErr(io.ErrUnexpectedEOF)
	return io.ErrUnexpectedEOF
}
