package zkstate_test

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/resource/testkind"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the ensemble that all tests share. Each test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{Heap: "1g"})))
}

// fixture is a root of its own, a session and a store.
type fixture struct {
	t       testing.TB
	servers []string
	root    string
	session *zkconn.Session
	store   *zkstate.Store
	timeout time.Duration // of sessions; 0 is 10s
}

func newFixture(t testing.TB) *fixture { return newFixtureAt(t, servers.Addrs()) }

func newFixtureAt(t testing.TB, addrs []string) *fixture {
	t.Helper()
	f := &fixture{t: t, servers: addrs, root: "/test-" + zkstate.NewID()}
	f.session = f.dial()
	f.store = f.newStore(f.session)
	return f
}

func (f *fixture) dial(auth ...zkconn.Auth) *zkconn.Session {
	f.t.Helper()
	timeout := cmp.Or(f.timeout, 10*time.Second)
	s, err := zkconn.Dial(f.t.Context(), zkconn.Config{Servers: f.servers, Timeout: timeout, Auth: auth})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func (f *fixture) newStore(s *zkconn.Session, acl ...string) *zkstate.Store {
	f.t.Helper()
	return f.storeOf(s, "tester@here", acl...)
}

// storeOf is a store of the user by.
func (f *fixture) storeOf(s *zkconn.Session, by string, acl ...string) *zkstate.Store {
	f.t.Helper()
	store, err := zkstate.NewStore(s, zkstate.Config{
		Home: f.root + "/home", Stack: "tests", By: by, At: time.Unix(1700000000, 0), ACL: acl,
		Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return store
}

// declare is a job of n workers in the fixture's root.
func (f *fixture) declare(name string, n int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers, j.Address = f.root+"/jobs", name, n, "job."+name
	j.Timeouts.Stale = resource.Duration(time.Second)
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// declared is jobs as a list of declarations.
func declared(jobs ...job.Job) []resource.Declaration {
	var ds []resource.Declaration
	for _, j := range jobs {
		ds = append(ds, j)
	}
	return ds
}

// plan compares jobs with what is in ZooKeeper.
func (f *fixture) plan(jobs ...job.Job) plan.Plan {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), []string{f.root + "/jobs"})
	if err != nil {
		f.t.Fatal(err)
	}
	return plan.Diff(plan.Want{Stack: "tests", Home: f.root + "/home", Declared: declared(jobs...)}, state)
}

// commit commits every change and returns the errors by path.
func (f *fixture) commit(p plan.Plan) map[string]error {
	f.t.Helper()
	errs := map[string]error{}
	for _, r := range p.Rows {
		if r.Action().Changes() {
			errs[r.Path] = f.store.Commit(f.t.Context(), r)
		}
	}
	return errs
}

// apply commits every change; none may fail.
func (f *fixture) apply(jobs ...job.Job) {
	f.t.Helper()
	for path, err := range f.commit(f.plan(jobs...)) {
		if err != nil {
			f.t.Fatalf("%s: %v", path, err)
		}
	}
}

// expect plans and compares the actions by path relative to the root.
func (f *fixture) expect(want map[string]plan.Reason, jobs ...job.Job) plan.Plan {
	f.t.Helper()
	p := f.plan(jobs...)
	got := map[string]plan.Reason{}
	for _, r := range p.Rows {
		got[r.Path[len(f.root+"/jobs/"):]] = r.Reason
	}
	if d := gocmp.Diff(want, got); d != "" {
		f.t.Fatalf("plan (-want +got):\n%s", d)
	}
	return p
}

// join joins with a session of its own. close closes that session.
func (f *fixture) join(j job.Job, identity string) (m *worker.Member, close func()) {
	f.t.Helper()
	s := f.dial()
	m, err := worker.Join(f.t.Context(), s, worker.Config{
		Root: j.Root, Job: j.Name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return m, func() { s.Close() }
}

// joinFirst is join for an identity that is new, and waits until its worker has written its id into its live znode. It
// does so a moment after Join, and some tests compare what is there before and after a commit.
func (f *fixture) joinFirst(j job.Job, identity string) {
	f.t.Helper()
	f.join(j, identity)
	if err := awaitID(f.t.Context(), f.session, j, identity); err != nil {
		f.t.Fatal(err)
	}
}

func awaitID(ctx context.Context, s *zkconn.Session, j job.Job, identity string) error {
	for {
		stat, _, event, err := s.ExistsW(ctx, znode.Live(j.Root, j.Name, identity))
		if err != nil || stat.Version > 0 {
			return err
		}
		<-event
	}
}

// complete writes what a worker writes when it completes.
func (f *fixture) complete(m *worker.Member) {
	f.t.Helper()
	j, g := m.Job, m.Generation
	claim := znode.ByIdentity(j.Root, g, m.Identity)
	zero := 0
	body, err := znode.Encode(znode.Claim{Nonce: "n", Lives: 1, State: znode.Done, Exit: &zero})
	if err != nil {
		f.t.Fatal(err)
	}
	acl, _ := zkstate.ParseACL(nil)
	if _, err := f.session.Multi(f.t.Context(),
		zkconn.CheckOp(znode.Gate(j.Root, g), 0),
		zkconn.SetOp(claim, body, 0),
		zkconn.CreateOp(znode.NewEnd(j.Root, g), nil, zkconn.PersistentSequential, acl),
		zkconn.DeleteOp(znode.Live(j.Root, j.Name, m.Identity), -1), // any version: the member may write its id there
	); err != nil {
		f.t.Fatal(err)
	}
}

// tree lists every znode below path, sorted, relative to it.
func (f *fixture) tree(path string) []string {
	f.t.Helper()
	var all []string
	names, _, err := f.session.Children(f.t.Context(), path)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		all = append(all, name)
		for _, below := range f.tree(path + "/" + name) {
			all = append(all, name+"/"+below)
		}
	}
	return all
}

// TestAnotherKindInZooKeeper: a resource of a kind without folders and counts is created, found, changed, repaired and
// deleted, in a root that also holds a job.
func TestAnotherKindInZooKeeper(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kinds := []zkstate.Kind{zkstate.Job(), {Kind: testkind.Kind()}}
	store, err := zkstate.NewStore(f.session, zkstate.Config{
		Home: f.root + "/home", Stack: "tests", At: time.Now(), Kinds: kinds,
	})
	if err != nil {
		t.Fatal(err)
	}
	lamp := testkind.Lamp{
		Common: resource.Common{Name: "a", Root: f.root + "/jobs", Address: "lamp.a"}, Colour: "white", Watts: 40,
	}
	beside := f.declare("b", 2)
	row := func(declared ...resource.Declaration) plan.Row {
		t.Helper()
		state, err := store.Read(t.Context(), []string{lamp.Root})
		if err != nil {
			t.Fatal(err)
		}
		want := plan.Want{Stack: "tests", Home: f.root + "/home", Declared: append(declared, beside)}
		for _, r := range plan.Diff(want, state).Rows {
			if r.Path == lamp.ID().Path() {
				return r
			}
			if r.Path == beside.Path() && r.Reason != plan.Equal && r.Reason != plan.NotThere {
				t.Errorf("the job beside it: %s", r.Reason)
			}
		}
		return plan.Row{}
	}
	commit := func(want plan.Reason, declared ...resource.Declaration) {
		t.Helper()
		r := row(declared...)
		if r.Reason != want {
			t.Fatalf("reason = %q, want %q", r.Reason, want)
		}
		if err := store.Commit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Commit(t.Context(), plan.Row{Path: beside.Path(), New: beside, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	commit(plan.NotThere, lamp)
	lamp.Colour = "red"
	commit(plan.MutableDiffers, lamp)
	lamp.Watts = 60
	commit(plan.ReadyDiffers, lamp)
	if err := f.session.Delete(t.Context(), znode.Record("lamp", lamp.Root, lamp.Name), -1); err != nil {
		t.Fatal(err)
	}
	commit(plan.IsDamaged, lamp)
	if r := row(lamp); r.Reason != plan.Equal || r.Old.Record.Edited() {
		t.Errorf("after all that it is %s, edited %v", r.Reason, r.Old.Record.Edited())
	}
	commit(plan.Undeclared)
	if r := row(); r.Path != "" {
		t.Errorf("it is still there: %s", r.Reason)
	}
}
