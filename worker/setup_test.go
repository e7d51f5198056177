package worker_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

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
func newProxy(t *testing.T) *zkserver.Proxy { return rig.Proxy(t, servers.Addrs()[0]) }

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
	m, err := worker.Join(t.Context(), dial(t), config(j, identity))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// crash joins in a session of its own, which then ends. The worker is not live when crash returns.
func crash(t *testing.T, j job.Job, identity string) *worker.Member {
	t.Helper()
	s := dial(t)
	m, err := worker.Join(t.Context(), s, config(j, identity))
	if err != nil {
		t.Fatal(err)
	}
	s.Close() // a busy server may not confirm it, and ends the session later
	<-m.Context().Done()
	observer := dial(t)
	rig.Await(t, identity+" is not live", func() bool {
		_, live, err := observer.Exists(t.Context(), znode.Live(j.Root, j.Name, identity))
		return err == nil && !live
	})
	return m
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
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, w := range ws {
		all[w.Identity] = w.ID
	}
	return all
}
