package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/fault"
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
	proxy      *fault.Proxy         // all reach Redis through it
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

// acts are what this program does as a command, by its first argument. The next one is a directory for what must be
// remembered.
var acts = map[string]func(args []string) int{
	"act-lines": actLines, "act-go": actGo, "act-json": actJSON, "act-one": actOne, "act-ledger": actLedger,
}

// errAgain means that a task failed, and would not if it were tried again.
var errAgain = errors.New("try again")

// errNever means that a task failed for good.
var errNever = errors.New("do not try again")

// perform performs a task.
func perform(ctx context.Context, dir, payload string) (string, error) {
	words := strings.SplitN(payload, " ", 5)
	if len(words) != 5 {
		return "", fmt.Errorf("the task %q has %d words", payload, len(words))
	}
	micros, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	work(ctx, time.Duration(micros)*time.Microsecond)
	switch words[2] {
	case poison:
		return "", errNever
	case deadly:
		return "", killExecutor()
	case uncertain:
		f, err := os.OpenFile(filepath.Join(dir, "again", words[0]+"-"+words[1]), os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			f.Close()
			return "", errAgain
		}
	}
	return answer(payload), nil
}

// work takes so long, or until ctx ends.
func work(ctx context.Context, d time.Duration) {
	if d > 0 {
		zkconn.Pause(ctx, d)
	}
}

// killExecutor kills the muster that this command belongs to: each one between it and the test.
func killExecutor() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || exe == self {
			return errAgain
		}
		if filepath.Base(exe) == "muster" {
			p, err := os.FindProcess(pid)
			if err != nil {
				return err
			}
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	return errAgain
}

// parentOf is the process id of a parent; 0 if the process has ended.
func parentOf(pid int) (parent int) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(body), ") ") // after the name
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return 0
	}
	return parent
}

// actLines answers each line with one. It has no other way to fail than to end.
func actLines(args []string) int {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		result, err := perform(context.Background(), args[0], strings.TrimSuffix(line, "\n"))
		if err != nil {
			out.Flush()
			fmt.Fprintln(os.Stderr, err)
			return failureCode(err)
		}
		out.WriteString(result)
		out.WriteByte('\n')
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

// actJSON is actLines for --lines=json.
func actJSON(args []string) int {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		var task struct {
			Task string `json:"task"`
		}
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		reply := map[string]any{}
		if result, err := perform(context.Background(), args[0], task.Task); err != nil {
			reply["error"], reply["retry"] = err.Error(), !errors.Is(err, errNever)
		} else {
			reply["result"] = result
		}
		body, _ := json.Marshal(reply) // of texts and a bool
		out.Write(append(body, '\n'))
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

// actOne performs the task on its standard input.
func actOne(args []string) int {
	body, err := io.ReadAll(os.Stdin)
	if err == nil {
		var result string
		if result, err = perform(context.Background(), args[0], string(body)); err == nil {
			fmt.Print(result)
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return failureCode(err)
}

func failureCode(err error) int {
	if errors.Is(err, errNever) {
		return 65
	}
	return 1
}

// actLedger is the command of watchers: it checks the results of a batch, and notes in one write what it found. Its
// arguments are the directory and the seed.
func actLedger(args []string) int {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b, err := parseBatch(seed, os.Getenv("MUSTER_BATCH"))
	if err == nil {
		var found finding
		if found, err = check(b, os.Stdin); err == nil {
			err = note(filepath.Join(args[0], "ledger"), found)
			work(context.Background(), time.Duration(b.hash(10)%500)*time.Millisecond) // its watcher may die meanwhile
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
