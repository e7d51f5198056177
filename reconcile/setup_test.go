package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/apply"
	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

var servers *zkserver.Ensemble

func TestMain(m *testing.M) { os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}))) }

const stack = "tests"

// estate is a stack in a root of its own, and what files declare there.
type estate struct {
	t     testing.TB
	root  string
	s     *zkconn.Session
	store *zkstate.Store // of a person

	mu    sync.Mutex
	files func() (*Configuration, error)
}

func newEstate(t testing.TB, declared ...string) *estate {
	t.Helper()
	e := &estate{t: t, root: "/test-" + zkstate.NewID()}
	e.s = rig.Dial(t, 10*time.Second, servers.Addrs()...)
	e.store = e.open(e.s, "ann@desk")
	e.declare("1", declared...)
	return e
}

func (e *estate) open(s *zkconn.Session, by string) *zkstate.Store {
	e.t.Helper()
	store, err := zkstate.NewStore(s, zkstate.Config{
		Home: e.root + "/home", Stack: stack, By: by, Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return store
}

// job is one of n workers. A name may say more: "a:barrier=3m" has another timeout, which may change during a run.
func (e *estate) job(name string) job.Job {
	j := job.Default()
	name, more, _ := strings.Cut(name, ":")
	j.Root, j.Name, j.Workers, j.Address = e.root, name, 2, "job."+name
	j.Timeouts.Stale = resource.Duration(time.Millisecond)
	for _, word := range strings.Split(more, ",") {
		switch what, value, _ := strings.Cut(word, "="); what {
		case "barrier":
			d, err := time.ParseDuration(value)
			if err != nil {
				e.t.Fatal(err)
			}
			j.Timeouts.Barrier = resource.Duration(d)
		case "workers":
			j.Workers = len(value)
		case "remove":
			j.Lifecycle.OnComplete = job.Remove
		}
	}
	return j
}

func (e *estate) want(names ...string) *Configuration {
	w := plan.Want{Stack: stack, Home: e.root + "/home"}
	for _, name := range names {
		w.Declared = append(w.Declared, e.job(name))
	}
	return &Configuration{Want: w, Roots: []string{e.root}, Digest: strings.Join(names, " ")}
}

// declare writes the files: a commit, and the names of jobs.
func (e *estate) declare(commit string, names ...string) {
	c := e.want(names...)
	c.Commit, c.Digest = commit, commit+": "+c.Digest
	e.load(func() (*Configuration, error) { return c, nil })
}

func (e *estate) load(f func() (*Configuration, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files = f
}

func (e *estate) path(name string) string { return e.root + "/" + name }

func (e *estate) look(name string) *resource.Observed { return rig.Look(e.t, e.store, e.path(name)) }

func (e *estate) there(name string) bool { return e.look(name) != nil }

// barrier is the timeout of a job that is there.
func (e *estate) barrier(name string) time.Duration {
	o := e.look(name)
	if o == nil || o.Record == nil {
		return 0
	}
	return time.Duration(job.Of(o.Record).Timeouts.Barrier)
}

func (e *estate) kept() *znode.Reconcile {
	e.t.Helper()
	kept, _, err := e.store.Reconcile(e.t.Context(), stack)
	if err != nil {
		e.t.Fatal(err)
	}
	return &kept
}

// applies applies a configuration by hand.
func (e *estate) applies(names ...string) {
	e.t.Helper()
	c := e.want(names...)
	p, err := apply.Compare(e.t.Context(), e.store, c.Want, c.Roots)
	if err == nil {
		p.ID = zkstate.NewID()
		_, err = apply.Run(e.t.Context(), e.store, p, apply.Options{Config: c.Digest, LockTimeout: rig.Patience})
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// joins makes a worker live, until leave is called.
func (e *estate) joins(name, identity string) (leave func()) {
	e.t.Helper()
	s, err := zkconn.Dial(e.t.Context(), zkconn.Config{Servers: servers.Addrs(), Timeout: 10 * time.Second})
	if err == nil {
		_, err = worker.Join(e.t.Context(), s, worker.Config{
			Root: e.root, Job: name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
		})
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return func() { s.Close() }
}

// running is a reconciler of the estate.
type running struct {
	*Reconciler
	t     testing.TB
	stop  context.CancelFunc
	ended chan error

	mu     sync.Mutex
	events []Event
}

func (e *estate) start(edits ...func(*Config)) *running {
	e.t.Helper()
	r := &running{t: e.t, ended: make(chan error, 1)}
	c := Config{
		Stack: stack, Home: e.root + "/home", Kinds: []zkstate.Kind{zkstate.Job()},
		Rules: Rules{Allow: DefaultAllow(), MaxDelete: 10, MaxReplace: 10},
		Poll:  50 * time.Millisecond, Every: time.Hour, Patience: time.Hour,
		Load: func() (*Configuration, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.files()
		},
		Connect: connectTo(servers.Addrs()...),
		Open:    func(s *zkconn.Session) (*zkstate.Store, error) { return e.open(s, "reconcile@host"), nil },
		Log:     slog.New(slog.NewTextHandler(e.t.Output(), nil)),
		Events: func(e Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	for _, edit := range edits {
		edit(&c)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.Reconciler = New(c)
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.ended <- r.Run(ctx)
	}()
	e.t.Cleanup(func() { r.stop(); <-over })
	return r
}

func connectTo(addrs ...string) func(ctx context.Context) (*zkconn.Session, error) {
	return func(ctx context.Context) (*zkconn.Session, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return zkconn.Dial(ctx, zkconn.Config{Servers: addrs, Timeout: 4 * time.Second})
	}
}

func allowing(words ...Word) func(*Config) { return func(c *Config) { c.Allow = words } }

// waits waits until a change of a job waits for a reason that has this text.
func (r *running) waits(path, why string) {
	r.t.Helper()
	rig.Await(r.t, path+" waits: "+why, func() bool {
		return r.told(func(e Event) bool {
			text, _ := e.Data["why"].(string)
			return e.Subject == path && strings.Contains(text, why)
		})
	})
}

func (r *running) told(is func(Event) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, is)
}

// count is how many events of a type there were.
func (r *running) count(typ string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// settles waits until so many more passes went well: what is not done by then waits for something else.
func (r *running) settles(e *estate) {
	r.t.Helper()
	before := r.Now().LastSuccess
	for range 2 { // an event each, which changes nothing
		if _, err := e.store.EditReconcile(r.t.Context(), func(k *znode.Reconcile) bool { return true }); err != nil {
			r.t.Fatal(err)
		}
		rig.Await(r.t, "a pass", func() bool { return r.Now().LastSuccess.After(before) })
		before = r.Now().LastSuccess
	}
}

var errHalf = errors.New("a file is half there")
