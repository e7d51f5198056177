package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// calmTimeout is for sessions that no test ends, and that a busy machine must not end either.
const calmTimeout = 30 * time.Second

// sessions is an edit for newWorld: what the session timeout is.
func sessions(d time.Duration) func(*queue.Queue) {
	return func(q *queue.Queue) { q.Timeouts.Session = resource.Duration(d) }
}

// world is a queue on servers of its own, and the processes that use it.
type world struct {
	t          *testing.T
	dir        string // what commands remember, and the output of processes
	seed       uint64
	ensemble   *zkserver.Ensemble
	redis      *redisserver.Server
	watched    *redisserver.Watched // instead of redis, if there are sentinels
	proxy      *zkserver.Proxy      // all reach Redis through it
	queue      queue.Queue
	generation string
	processes  map[string]*process

	s      *zkconn.Session // see session
	client *redis.Client   // see books
}

// newWorld starts servers and creates a queue. edit changes what is declared.
func newWorld(t *testing.T, o zkserver.Options, edit func(*queue.Queue)) *world {
	t.Helper()
	w := startWorld(t, o, edit)
	var err error
	if w.redis, err = redisserver.Start(t.Context(), redisserver.Options{Fsync: "always"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.redis.Stop() })
	w.proxy = rig.Proxy(t, w.redis.Addr())
	w.queue.Redis = "redis://" + w.proxy.Addr()
	w.create()
	return w
}

// startWorld starts ZooKeeper only.
func startWorld(t *testing.T, o zkserver.Options, edit func(*queue.Queue)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), processes: map[string]*process{}}
	for _, dir := range []string{"again", "batches", "results"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.ensemble, err = zkserver.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ensemble.Stop() })
	t.Cleanup(w.show)
	t.Cleanup(func() { // before the servers end
		for _, p := range w.processes {
			p.kill()
		}
	})
	w.queue = queue.Default()
	w.queue.Root, w.queue.Name = "/faults", "numbers"
	w.queue.Timeouts.Session = resource.Duration(calmTimeout)
	w.queue.Backoff = resource.Duration(100 * time.Millisecond)
	if edit != nil {
		edit(&w.queue)
	}
	return w
}

// create commits the queue.
func (w *world) create() {
	w.t.Helper()
	store := w.store()
	rig.Create(w.t, store, w.queue)
	w.generation = rig.Look(w.t, store, w.queue.Path()).Record.Generation
	w.client = w.newClient()
	w.t.Cleanup(func() { w.client.Close() })
}

// session is the test's own session. It is another one after the last one was lost.
func (w *world) session() *zkconn.Session {
	w.t.Helper()
	if w.s != nil && w.s.Context().Err() == nil {
		return w.s
	}
	if w.s != nil {
		_ = w.s.Close()
	}
	s, err := zkconn.Dial(w.t.Context(), zkconn.Config{Servers: w.ensemble.Addrs(), Timeout: calmTimeout})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	w.s = s
	return s
}

func (w *world) store() *zkstate.Store {
	w.t.Helper()
	store, err := newStore(w.session(), w.queue)
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

func newStore(s *zkconn.Session, q queue.Queue) (*zkstate.Store, error) {
	return zkstate.NewStore(s, zkstate.Config{
		Home: q.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{zkstate.Queue()},
	})
}

// muster runs a command of muster. It returns what that wrote to standard output; the error has the rest.
func (w *world) muster(args ...string) (stdout string, err error) {
	cmd := exec.Command(muster(), args...)
	cmd.Env, cmd.Dir = w.environ(w.ensemble.Addrs()), w.dir
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("muster %s: %w: %s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// state is who is in the queue and which batches there are; an error while ZooKeeper does not answer.
func (w *world) state() (*view.Queue, error) {
	w.t.Helper()
	store := w.store()
	o, err := store.Look(w.t.Context(), w.queue.Path())
	if err != nil {
		return nil, err
	}
	return store.QueueState(w.t.Context(), o)
}

// ended are the batches that have ended.
func (w *world) ended() (map[string]znode.BatchEnd, error) {
	ctx, s := w.t.Context(), w.session()
	all := map[string]znode.BatchEnd{}
	days, _, err := s.Children(ctx, znode.EndedDays(w.queue.Root, w.generation))
	if err != nil {
		return nil, err
	}
	for _, name := range days {
		day, err := znode.ParseEndedDay(name)
		if err != nil {
			return nil, err
		}
		ids, _, err := s.Children(ctx, znode.EndedDay(w.queue.Root, w.generation, day))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			body, _, err := s.Get(ctx, znode.EndedBatch(w.queue.Root, w.generation, day, id))
			if err != nil {
				return nil, err
			}
			if all[id], err = znode.Decode[znode.BatchEnd](body); err != nil {
				return nil, fmt.Errorf("%s: %w", id, err)
			}
		}
	}
	return all, nil
}

// books is a client of the queue's Redis, past the proxy, and the queue there.
func (w *world) books() (*redis.Client, *store.Queue) {
	w.t.Helper()
	return w.client, store.New(w.client, w.generation, w.queue.Path())
}

func (w *world) newClient() *redis.Client {
	if w.watched != nil {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: w.watched.Name, SentinelAddrs: w.watched.SentinelAddrs(), MaxRetries: -1, Protocol: 2,
		})
	}
	return redis.NewClient(&redis.Options{Addr: w.redis.Addr(), MaxRetries: -1, Protocol: 2})
}

// keysLeft are the keys of all queues in Redis, without their prefix, except those that a queue has also when it is
// empty.
func (w *world) keysLeft() (left []string, err error) {
	c, _ := w.books()
	keys, err := c.Keys(w.t.Context(), "*").Result()
	for _, k := range keys {
		_, name, _ := strings.Cut(k, "}:")
		if name != "q" && name != "wake:e" && name != "wake:w" {
			left = append(left, k)
		}
	}
	return left, err
}

// environ is the environment of a process that reaches ZooKeeper at these servers.
func (w *world) environ(servers []string, more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + w.dir,
		"MUSTER_SERVERS=" + strings.Join(servers, ","), "MUSTER_ROOT=" + w.queue.Root,
		"FAULTS_QUEUE=" + w.queue.Name, "FAULTS_SESSION=" + time.Duration(w.queue.Timeouts.Session).String(),
	}, more...)
}

// show prints what the processes wrote last, if the test has failed.
func (w *world) show() {
	if !w.t.Failed() {
		return
	}
	for name := range w.processes {
		body, _ := os.ReadFile(filepath.Join(w.dir, name+".out"))
		const most = 1500
		w.t.Logf("%s wrote:\n%s", name, body[max(0, len(body)-most):])
	}
	if w.redis != nil {
		w.t.Logf("redis wrote:\n%s", w.redis.Output())
	}
}

// withLimit is a context that ends after d, or with the test.
func (w *world) withLimit(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.t.Context(), d)
}
