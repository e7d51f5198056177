package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// redisPassword is that of the Redis of these tests: so they see that commands do not get it.
const redisPassword = "of-the-tests"

// shared is the Redis of all tests of this package that need one. It is started by the first.
var shared struct {
	once  sync.Once
	redis *redisserver.Server
	err   error
}

func sharedRedis(t testing.TB) *redisserver.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.redis, shared.err = redisserver.Start(context.Background(), redisserver.Options{Password: redisPassword})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.redis
}

func stopRedis() error {
	if shared.redis == nil {
		return nil
	}
	return shared.redis.Stop()
}

// queueFixture is a queue "primes" in a root of its own, and a directory for commands and their log.
type queueFixture struct {
	groupFixture
	s *zkconn.Session
}

// newQueueFixture applies a queue with these arguments. Sessions of its processes last for 4 s.
func newQueueFixture(t *testing.T, arguments string) queueFixture {
	t.Helper()
	f := queueFixture{groupFixture: groupFixture{newFixture(t, 0, ""), t}}
	if err := os.Mkdir(filepath.Join(f.dir, "duties"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.write(t, 0, fmt.Sprintf(`queue "primes" {
  root    = %q
  redis   = "redis://%s/0"
  backoff = "1ms"
  timeouts {
    session = "4s"
    drain   = "20s"
    join    = "60s"
  }
%s
}
`, f.root, sharedRedis(t).Addr(), arguments))
	f.mustApply(t)
	f.s = rig.Dial(t, 0, servers.Addrs()...)
	return f
}

// credentials are what a process of the queue needs in its environment.
func credentials(name string) string {
	return map[string]string{"MUSTER_REDIS_PASSWORD": redisPassword, "MUSTER_REDIS_HOSTS": "127.0.0.1"}[name]
}

// redisEnviron is credentials as an environment.
func redisEnviron() (all []string) {
	for _, name := range []string{"MUSTER_REDIS_PASSWORD", "MUSTER_REDIS_HOSTS"} {
		all = append(all, name+"="+credentials(name))
	}
	return all
}

// process is a command that joins the queue: an executor or a watcher, which runs a file of the directory.
func (f queueFixture) process(servers, role, identity string, more ...string) *exec.Cmd {
	cmd := f.command(servers, append([]string{role, "primes", "--root", f.root, "--identity", identity}, more...)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "MUSTER_LOG=warn")
	cmd.Env = append(cmd.Env, redisEnviron()...)
	return cmd
}

// watcher is a running watcher with a command that f.duty has written.
func (f queueFixture) watcher(servers, identity, command string, more ...string) (*exec.Cmd, *screen) {
	f.t.Helper()
	more = append(more, "--", filepath.Join(f.dir, "duties", command))
	cmd := f.process(servers, "watcher", identity, more...)
	seen := startOnScreen(f.t, cmd)
	seen.await(f.t, "joined "+f.root+"/primes as "+identity)
	return cmd, seen
}

// join is an executor in this process.
func (f queueFixture) join(identity string) *tasks.Process {
	f.t.Helper()
	s := rig.Dial(f.t, 0, servers.Addrs()...)
	p, err := tasks.Join(f.t.Context(), s, tasks.Config{
		Root: f.root, Queue: "primes", Identity: identity, Role: queue.Executor, Parallel: 1,
		Redis: tasks.Access{Getenv: credentials},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.Leave() })
	return p
}

// submit submits a batch in this process.
func (f queueFixture) submit(id string, payloads ...[]byte) {
	f.t.Helper()
	access := tasks.Access{Getenv: credentials}
	c := tasks.SubmitConfig{Root: f.root, Queue: "primes", ID: id, By: "tester@here", Redis: access}
	if _, err := tasks.Submit(f.t.Context(), f.s, c, tasks.Payloads(payloads...)); err != nil {
		f.t.Fatal(err)
	}
}

// completed submits a batch and executes it in this process: the result of a task is its payload. "dead" is dead.
func (f queueFixture) completed(id string, payloads ...[]byte) {
	f.t.Helper()
	f.submit(id, payloads...)
	p := f.join("executor-of-" + id)
	var results []store.Result
	for begun := true; begun || len(results) > 0; begun = false {
		var got store.Turned
		err := p.Call(f.t.Context(), func(ctx context.Context, seq int64) (err error) {
			turn := store.Turn{Results: results, Idle: 100, Room: time.Hour, MaxBytes: 1 << 30}
			got, err = p.Store().Turn(ctx, p.Seat, seq, turn)
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
		results = nil
		for _, g := range got.Granted {
			for i, payload := range g.Payloads {
				r := store.Result{Task: store.Task{Batch: g.Batch, Index: g.Index + int64(i)}, Attempt: g.Attempt}
				if r.Outcome = store.Done; string(payload) == "dead" {
					r.Outcome = store.Never
				}
				r.Data = tasks.Answer{Body: payload}.Encode()
				results = append(results, r)
			}
		}
	}
	if err := p.Leave(); err != nil {
		f.t.Fatal(err)
	}
}

// ended waits until a batch has ended: its manifest is gone.
func (f queueFixture) ended(id string) {
	f.t.Helper()
	at := resource.Join(znode.Batches(f.root, f.generation()), id)
	rig.Await(f.t, "the end of batch "+id, func() bool {
		_, there, err := f.s.Exists(f.t.Context(), at)
		if err != nil {
			f.t.Fatal(err)
		}
		return !there
	})
}

// generation is that of the queue.
func (f queueFixture) generation() string {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.Record(queue.KindName, f.root, "primes"))
	if err != nil {
		f.t.Fatal(err)
	}
	rec, err := znode.DecodeRecordAt(queue.Kind(), resource.Join(f.root, "primes"), body)
	if err != nil {
		f.t.Fatal(err)
	}
	return rec.Generation
}

// inRedis is a batch as Redis has it.
func (f queueFixture) inRedis(id string) store.Batch {
	f.t.Helper()
	c, err := store.FromEnvironment("redis://"+sharedRedis(f.t).Addr()+"/0", credentials)
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := store.Connect(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	b, err := store.New(client, f.generation(), f.root+"/primes").Batch(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}
