package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// patience is how long a test waits for what must happen. It is long, since the machine may be busy.
const patience = 2 * time.Minute

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(childScript) != "" {
		os.Exit(childMain())
	}
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{})))
}

func dial(t *testing.T, addrs ...string) *zkconn.Session {
	t.Helper()
	return dialFor(t, 10*time.Second, addrs...)
}

// dialFor asks for a session timeout.
func dialFor(t *testing.T, timeout time.Duration, addrs ...string) *zkconn.Session {
	t.Helper()
	if len(addrs) == 0 {
		addrs = servers.Addrs()
	}
	return rig.Dial(t, timeout, addrs...)
}

// newProxy stands before the server.
func newProxy(t *testing.T) *fault.Proxy { return rig.Proxy(t, servers.Addrs()[0]) }

// newJob creates a job of n workers in a root of its own and returns it with the store that made it.
func newJob(t *testing.T, n int, edits ...func(*job.Job)) (job.Job, *zkstate.Store) {
	t.Helper()
	j := declare(n, edits...)
	store := newStore(t, j)
	create(t, store, j)
	return j, store
}

func declare(n int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/test-"+zkstate.NewID(), "j", n
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func newStore(t *testing.T, j job.Job) *zkstate.Store {
	t.Helper()
	return storeIn(t, dial(t), j)
}

func storeIn(t *testing.T, s *zkconn.Session, j job.Job) *zkstate.Store {
	t.Helper()
	return rig.Store(t, s, j.Root, zkstate.Job())
}

func create(t *testing.T, store *zkstate.Store, j job.Job) { rig.Create(t, store, j) }

func onComplete(do job.OnComplete) func(*job.Job) {
	return func(j *job.Job) { j.Lifecycle.OnComplete = do }
}

func config(j job.Job, identity string) worker.Config {
	return worker.Config{Root: j.Root, Job: j.Name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000}}
}

// join joins in a session of its own.
func join(t *testing.T, j job.Job, identity string) *worker.Member {
	t.Helper()
	return joinIn(t, dial(t), config(j, identity))
}

func joinIn(t *testing.T, s *zkconn.Session, c worker.Config) *worker.Member {
	t.Helper()
	m, err := worker.Join(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// crash joins in a session of its own, which then ends. The worker is not live when crash returns.
func crash(t *testing.T, j job.Job, identity string) *worker.Member {
	t.Helper()
	s := dial(t)
	m := joinIn(t, s, config(j, identity))
	s.Close() // a busy server may not confirm it, and ends the session later
	<-m.Context().Done()
	observer := dial(t)
	rig.Await(t, identity+" is not live", func() bool {
		_, live, err := observer.Exists(t.Context(), znode.Live(j.Root, j.Name, identity))
		return err == nil && !live
	})
	return m
}

func isMulti(op int32, _ []byte) bool { return op == fault.OpMulti }

// completes recognises the transaction of Complete.
func completes(req []byte) bool { return bytes.Contains(req, []byte("/end/d-")) }

func happened(fired <-chan struct{}) bool {
	select {
	case <-fired:
		return true
	default:
		return false
	}
}

// deadline is a context whose deadline passes when the test calls pass, however slow the machine is.
type deadline struct {
	context.Context
	passed chan struct{}
	pass   func()
}

func newDeadline() deadline {
	passed := make(chan struct{})
	return deadline{context.Background(), passed, sync.OnceFunc(func() { close(passed) })}
}

func (d deadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	if happened(d.passed) {
		return context.DeadlineExceeded
	}
	return nil
}

// tryJoin joins without waiting for anything.
func tryJoin(t *testing.T, c worker.Config) (*worker.Member, error) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	c.Waiting = func(string) { giveUp() }
	return worker.Join(ctx, dial(t), c)
}

func look(t *testing.T, store *zkstate.Store, j job.Job) *resource.Observed {
	t.Helper()
	return rig.Look(t, store, j.Path())
}

// ids maps every identity that joined to its id.
func ids(t *testing.T, store *zkstate.Store, j job.Job) map[string]int {
	t.Helper()
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, w := range ws {
		all[w.Identity] = w.ID
	}
	return all
}

// A test that needs a process to kill or to stop runs this test binary again as one, which follows a script:
// a list of words, each answered on standard output by a line. A duration before them is its session timeout; the
// line "<word> lost" says that it has lost its session. It ends with its standard input.
const (
	childScript  = "MUSTER_TEST_SCRIPT"
	childServers = "MUSTER_TEST_SERVERS"
	childJob     = "MUSTER_TEST_JOB" // root, name
	childWorkers = "MUSTER_TEST_IDENTITIES"
)

// child is such a process.
type child struct {
	cmd   *exec.Cmd
	lines chan string // closed when it has ended
}

func spawn(t *testing.T, j job.Job, script, identities string, addrs ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	c.cmd.Env = append(os.Environ(), childScript+"="+script, childServers+"="+strings.Join(addrs, ","),
		childJob+"="+j.Root+" "+j.Name, childWorkers+"="+identities)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		defer c.cmd.Wait()
		for in := bufio.NewScanner(stdout); in.Scan(); {
			c.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		c.cmd.Process.Kill()
		for range c.lines {
		}
	})
	return c
}

// kill ends the process at once and returns when it is gone, with what it said last.
func (c *child) kill() []string {
	c.cmd.Process.Kill()
	var last []string
	for line := range c.lines {
		last = append(last, line)
	}
	return last
}

// expect waits for a line.
func (c *child) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got, ok := <-c.lines:
		if got != want {
			t.Fatalf("the process said %q (%v), want %q", got, ok, want)
		}
	case <-time.After(patience):
		t.Fatalf("the process did not say %q", want)
	}
}

// reach waits until the process has come to a fault. It may have joined before.
func (c *child) reach(t *testing.T, fault <-chan struct{}) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case <-fault:
			return
		case line, alive := <-c.lines:
			if (!alive || !strings.HasPrefix(line, "joined ")) && !happened(fault) {
				t.Fatalf("the process said %q (%v) before the fault", line, alive)
			}
		case <-limit:
			t.Fatal("the process did not come to the fault")
		}
	}
}

// childMain is the process.
func childMain() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		}
		os.Exit(0)
	}()
	root, name, _ := strings.Cut(os.Getenv(childJob), " ")
	cfg := zkconn.Config{Servers: strings.Split(os.Getenv(childServers), ","), Timeout: time.Second}
	script := strings.Fields(os.Getenv(childScript))
	if timeout, err := time.ParseDuration(script[0]); err == nil {
		script, cfg.Timeout = script[1:], timeout
	}
	if script[0] == "many" {
		return childMany(ctx, cfg, root, name)
	}
	s, err := zkconn.Dial(ctx, cfg)
	if err != nil {
		fmt.Println("dial", err)
		return 1
	}
	j := job.Job{Common: resource.Common{Root: root, Name: name}}
	m, err := worker.Join(ctx, s, config(j, os.Getenv(childWorkers)))
	if err != nil {
		fmt.Println("join", outcome(err, s))
		return 1
	}
	fmt.Println("joined", m.ID)
	for _, word := range script {
		switch word {
		case "leave":
			err = m.Leave(ctx, worker.End{})
		case "stay":
			<-m.Context().Done()
			err = context.Cause(m.Context())
		case "rejoin":
			var next *zkconn.Session
			if next, err = zkconn.Dial(ctx, cfg); err == nil {
				s = next
				_, err = m.Rejoin(ctx, s)
			}
		}
		fmt.Println(word, outcome(err, s))
	}
	<-ctx.Done()
	return 0
}

// outcome is the word for err, which a call in s returned.
func outcome(err error, s *zkconn.Session) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, worker.ErrFenced):
		return "fenced"
	case errors.Is(err, worker.ErrDone):
		return "done"
	case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, worker.ErrUnfinished) && s.Context().Err() != nil:
		return "lost"
	}
	return err.Error()
}
