package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"

	"github.com/redis/go-redis/v9"
)

// fixture is a directory with a configuration, and a root for its jobs that no other test uses.
type fixture struct {
	dir, root string
}

// newFixture writes a configuration of n jobs j0, j1 and so on, followed by more.
func newFixture(t *testing.T, n int, more string) fixture {
	t.Helper()
	f := fixture{dir: t.TempDir(), root: "/t-" + zkstate.NewID()[:12]}
	f.write(t, n, more)
	return f
}

func (f fixture) write(t *testing.T, n int, more string) {
	t.Helper()
	hcl := fmt.Sprintf(`muster {
  stack = "tests"
  home  = "%[1]s-home"
  roots = ["%[1]s"]
}
job "j" {
  for_each = toset([for i in range(%[2]d) : "j${i}"])
  root     = "%[1]s"
  name     = each.key
  workers  = 2
}
%[3]s`, f.root, n, more)
	write(t, filepath.Join(f.dir, "main.hcl"), hcl)
}

// command runs the real binary in the directory of the fixture.
func (f fixture) command(servers string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "muster"), args...)
	cmd.Dir = f.dir
	cmd.Env = []string{
		"MUSTER_SERVERS=" + servers, "USER=tester", "TERM=xterm", "PATH=" + bin + ":" + os.Getenv("PATH"),
	}
	return cmd
}

// mustRun runs a command that has to succeed.
func (f fixture) mustRun(t testing.TB, args ...string) {
	t.Helper()
	if out, err := f.command(servers.Connect(), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// mustApply applies the configuration of the fixture.
func (f fixture) mustApply(t *testing.T) {
	t.Helper()
	f.mustRun(t, "apply", "--yes")
}

// read is the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write writes a file.
func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newEnsemble starts servers that only this test uses.
func newEnsemble(t *testing.T, o zkserver.Options) *zkserver.Ensemble {
	t.Helper()
	e, err := zkserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// newProxy starts a proxy to the server that delays every reply.
func newProxy(t *testing.T, by time.Duration) *fault.Proxy {
	t.Helper()
	proxy := rig.Proxy(t, servers.Addrs()[0])
	proxy.Delay(by)
	return proxy
}

// screen keeps what a command has written. A command may have it as both streams.
type screen struct {
	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{} // has room for one value, which says that something was written
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Write(b)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.seen.String(), "\r\n", "\n")
}

// await waits until text has been written.
func (s *screen) await(tb testing.TB, text string) {
	tb.Helper()
	s.awaitTimes(tb, text, 1)
}

func (s *screen) awaitTimes(tb testing.TB, text string, n int) {
	tb.Helper()
	late := time.After(3 * time.Minute)
	for strings.Count(s.String(), text) < n {
		select {
		case <-s.more:
		case <-late:
			tb.Fatalf("never saw %q (%d times) in:\n%s", text, n, s)
		}
	}
}

// groupFixture is a group "shop" in a root of its own, and a directory with the commands of its duties.
type groupFixture struct {
	fixture
	t *testing.T
}

// newGroupFixture applies a group with these blocks. It settles at once; its sessions last for 4 s.
func newGroupFixture(t *testing.T, blocks string) groupFixture {
	t.Helper()
	f := groupFixture{newFixture(t, 0, ""), t}
	f.declare(blocks)
	return f
}

func (f groupFixture) declare(blocks string) {
	f.t.Helper()
	f.declareWith("4s", blocks)
}

// declareWith is declare with another session timeout.
func (f groupFixture) declareWith(session, blocks string) {
	f.t.Helper()
	f.write(f.t, 0, fmt.Sprintf(`group "shop" {
  root   = %q
  settle = "1ms"
  timeouts {
    session = %q
    drain   = "20s"
    join    = "60s"
  }
%s
}
`, f.root, session, blocks))
	f.mustApply(f.t)
}

// duty writes the command of a duty, a shell script. It appends to the log what it says.
func (f groupFixture) duty(name, script string) {
	f.t.Helper()
	text := "#!/bin/sh\n" + f.sayToo(script) + "\n"
	dir := filepath.Join(f.dir, "duties")
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f groupFixture) log() string { return filepath.Join(f.dir, "log") }

// logged is what the commands have said.
func (f groupFixture) logged() string {
	text, err := os.ReadFile(f.log())
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return string(text)
}

// awaitLog waits until the commands have said a text n times.
func (f groupFixture) awaitLog(text string, n int) {
	f.t.Helper()
	rig.Await(f.t, fmt.Sprintf("%q, %d times, in the log", text, n), func() bool {
		return strings.Count(f.logged(), text) >= n
	})
}

// member is a command that joins the group.
func (f groupFixture) member(servers, identity, version string, more ...string) *exec.Cmd {
	cmd := f.command(servers, append([]string{
		"member", "--group", "shop", "--root", f.root, "--identity", identity, "--version", version,
	}, more...)...)
	cmd.Env = append(cmd.Env, "MUSTER_LOG=warn")
	return cmd
}

// memberWithDuties is a running member that does the duties of the directory.
func (f groupFixture) memberWithDuties(servers, identity, version string) (*exec.Cmd, *screen) {
	f.t.Helper()
	cmd := f.member(servers, identity, version, "--duties", "duties", "--address", "127.0.0.1:7000")
	seen := startOnScreen(f.t, cmd)
	seen.await(f.t, "joined "+f.root+"/shop as "+identity)
	return cmd, seen
}

// sendSignal sends a signal to a command.
func sendSignal(t *testing.T, cmd *exec.Cmd, sig os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// endsWith waits for the end of a command and checks its code.
func endsWith(t *testing.T, cmd *exec.Cmd, seen *screen, want int) {
	t.Helper()
	_ = cmd.Wait() // the code says it
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d:\n%s", got, want, seen)
	}
}

// pids reads the numbers after each "pid" in the log.
func (f groupFixture) pids() []int {
	f.t.Helper()
	var all []int
	for line := range strings.Lines(f.logged()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "pid "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				f.t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// gone waits until none of the processes is there, and returns how long that took.
func gone(t *testing.T, pids []int) time.Duration {
	t.Helper()
	begun := time.Now()
	rig.Await(t, fmt.Sprintf("the end of %v", pids), func() bool {
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	return time.Since(begun)
}

// stubborn is a command that goes on after SIGINT and SIGTERM, and so does what it has started.
const stubborn = `trap 'say asked $MUSTER_IDENTITY' INT TERM
(trap '' TERM; say pid $(exec sh -c 'echo $PPID'); while :; do sleep 0.2; done) &
say pid $$
say begins $MUSTER_IDENTITY
while :; do sleep 0.2; done`

// obedient is a command that ends half a second after SIGTERM.
const obedient = `trap 'say asked $MUSTER_IDENTITY; sleep 0.5; say ends $MUSTER_IDENTITY; exit 0' TERM
say begins $MUSTER_IDENTITY
while :; do sleep 0.1; done`

// numberAfter is the number in the first line of the log that starts so.
func (f groupFixture) numberAfter(start string) int {
	f.t.Helper()
	for line := range strings.Lines(f.logged()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), start); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				f.t.Fatal(err)
			}
			return n
		}
	}
	f.t.Fatalf("no %q in %s", start, f.logged())
	return 0
}

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

// command is that of the fixture, which may use Redis.
func (f queueFixture) command(servers string, args ...string) *exec.Cmd {
	cmd := f.fixture.command(servers, args...)
	cmd.Env = append(cmd.Env, redisEnviron()...)
	return cmd
}

// process is a command that joins the queue: an executor or a watcher, which runs a file of the directory.
func (f queueFixture) process(servers, role, identity string, more ...string) *exec.Cmd {
	cmd := f.command(servers, append([]string{role, "primes", "--root", f.root, "--identity", identity}, more...)...)
	cmd.Env = append(cmd.Env, "MUSTER_LOG=warn")
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

// generationOf is that of a group or a queue below the root.
func (f fixture) generationOf(t *testing.T, s *zkconn.Session, kind resource.Kind, name string) string {
	t.Helper()
	body, _, err := s.Get(t.Context(), znode.Record(kind.Name, f.root, name))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := znode.DecodeRecordAt(kind, resource.Join(f.root, name), body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Generation
}

// generation is that of the queue.
func (f queueFixture) generation() string {
	f.t.Helper()
	return f.generationOf(f.t, f.s, queue.Kind(), "primes")
}

// redis is a connection, and the queue as Redis has it.
func (f queueFixture) redis() (*redis.Client, *store.Queue) {
	f.t.Helper()
	c, err := store.FromEnvironment("redis://"+sharedRedis(f.t).Addr()+"/0", credentials)
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := store.Connect(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { client.Close() })
	return client, store.New(client, f.generation(), f.root+"/primes")
}

// inRedis is a batch as Redis has it.
func (f queueFixture) inRedis(id string) store.Batch {
	f.t.Helper()
	client, st := f.redis()
	defer client.Close()
	b, err := st.Batch(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}
