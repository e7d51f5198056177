package wrap

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(guardCommandVariable) != "" {
		_ = os.Unsetenv(guardCommandVariable)
		os.Exit(Guard(os.Args[1], os.Args[2:], os.Environ(), []*os.File{os.Stdin, os.Stdout, os.Stderr}, nil))
	}
	if behaviour, ok := os.LookupEnv(childVariable); ok {
		child(behaviour)
		return
	}
	if os.Getenv(guardVariable) != "" {
		GuardGroups(os.Stdin, nil)
		return
	}
	if os.Getenv(parallelVariable) != "" {
		asParallelInit()
	}
	if script, ok := os.LookupEnv(initVariable); ok {
		asInit(script)
	}
	var err error
	if servers, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := servers.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// dial opens a session of this length.
func dial(ctx context.Context, timeout time.Duration, addrs ...string) (*zkconn.Session, error) {
	return zkconn.Dial(ctx, zkconn.Config{Servers: addrs, Timeout: timeout})
}

// testJob is a job, and a session to look at it with.
type testJob struct {
	t       *testing.T
	s       *zkconn.Session
	store   *zkstate.Store
	job     job.Job
	session time.Duration // timeout of a worker's session: shorter than the job's, so that one is soon lost
}

// newTestJob makes a job of n workers in a root of its own, unless n is 0: then there is only the root's name.
func newTestJob(t *testing.T, n int) *testJob {
	t.Helper()
	s, err := dial(t.Context(), 10*time.Second, servers.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := &testJob{t: t, s: s, job: job.Default(), session: 2 * time.Second}
	f.job.Root, f.job.Name, f.job.Workers = "/test-"+zkstate.NewID(), "j", max(n, 1)
	f.job.Lifecycle.OnComplete = job.Retain
	c := zkstate.Config{Home: f.job.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{zkstate.Job()}}
	if f.store, err = zkstate.NewStore(s, c); err != nil {
		t.Fatal(err)
	}
	if n > 0 {
		f.create()
	}
	return f
}

func (f *testJob) create() {
	f.t.Helper()
	if err := f.store.Commit(f.t.Context(), plan.Row{Path: f.job.Path(), New: f.job, Reason: plan.NotThere}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *testJob) look() *resource.Observed {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), f.job.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// claim says how an identity stands: "in", "left 1", "left SIGKILL", "done 0"; empty if it never joined.
func (f *testJob) claim(identity string) string {
	f.t.Helper()
	path := znode.ByIdentity(f.job.Root, f.look().Record.Generation, identity)
	_, there, err := f.s.Exists(f.t.Context(), path)
	if err != nil {
		f.t.Fatal(err)
	}
	if !there {
		return ""
	}
	body, _, err := f.s.Get(f.t.Context(), path)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := znode.Decode[znode.Claim](body)
	if err != nil {
		f.t.Fatal(err)
	}
	switch {
	case c.Exit != nil:
		return fmt.Sprint(c.State, " ", *c.Exit)
	case c.Signal != "":
		return fmt.Sprint(c.State, " ", c.Signal)
	}
	return string(c.State)
}

// takeOver writes the claim of an identity as another process would.
func (f *testJob) takeOver(identity string) {
	f.t.Helper()
	claim, err := znode.Encode(znode.Claim{Nonce: "another", Lives: 2, State: znode.In})
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.ByIdentity(f.job.Root, f.look().Record.Generation, identity), claim, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// await looks at a fact until it holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.Done():
			t.Fatalf("never happened: %s", what)
		}
	}
}
