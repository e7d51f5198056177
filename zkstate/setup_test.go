package zkstate_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/job"
	"muster/plan"
	"muster/resource"
	"muster/worker"
	"muster/zkserver"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	var err error
	if servers, err = zkserver.Start(context.Background(), zkserver.Options{Heap: "1g"}); err != nil {
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

// bed is a root of its own, a session and a store.
type bed struct {
	t       testing.TB
	servers []string
	root    string
	session *zkconn.Session
	store   *zkstate.Store
}

func newBed(t testing.TB) *bed { return newBedAt(t, servers.Addrs()) }

func newBedAt(t testing.TB, addrs []string) *bed {
	t.Helper()
	b := &bed{t: t, servers: addrs, root: "/test-" + zkstate.NewID()}
	b.session = b.dial()
	b.store = b.newStore(b.session)
	return b
}

func (b *bed) dial(auth ...zkconn.Auth) *zkconn.Session {
	b.t.Helper()
	s, err := zkconn.Dial(b.t.Context(), zkconn.Config{Servers: b.servers, Timeout: 10 * time.Second, Auth: auth})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	return s
}

func (b *bed) newStore(s *zkconn.Session, acl ...string) *zkstate.Store {
	b.t.Helper()
	return b.storeOf(s, "tester@here", acl...)
}

// storeOf is a store of one person.
func (b *bed) storeOf(s *zkconn.Session, by string, acl ...string) *zkstate.Store {
	b.t.Helper()
	store, err := zkstate.NewStore(s, zkstate.Config{
		Home: b.root + "/home", Stack: "tests", By: by, At: time.Unix(1700000000, 0), ACL: acl,
		Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return store
}

// declare is a job of n workers in the bed's root.
func (b *bed) declare(name string, n int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers, j.Address = b.root+"/jobs", name, n, "job."+name
	j.Timeouts.Stale = resource.Duration(time.Second)
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// declared is jobs as declarations.
func declared(jobs ...job.Job) []resource.Declaration {
	var ds []resource.Declaration
	for _, j := range jobs {
		ds = append(ds, j)
	}
	return ds
}

// plan compares jobs with what is there.
func (b *bed) plan(jobs ...job.Job) plan.Plan {
	b.t.Helper()
	state, err := b.store.Read(b.t.Context(), []string{b.root + "/jobs"})
	if err != nil {
		b.t.Fatal(err)
	}
	return plan.Diff(plan.Want{Stack: "tests", Declared: declared(jobs...)}, state)
}

// commit commits every change and returns what each commit answered.
func (b *bed) commit(p plan.Plan) map[string]error {
	b.t.Helper()
	answers := map[string]error{}
	for _, r := range p.Rows {
		if r.Action().Changes() {
			answers[r.Path] = b.store.Commit(b.t.Context(), r)
		}
	}
	return answers
}

// apply commits every change; none may fail.
func (b *bed) apply(jobs ...job.Job) {
	b.t.Helper()
	for path, err := range b.commit(b.plan(jobs...)) {
		if err != nil {
			b.t.Fatalf("%s: %v", path, err)
		}
	}
}

// expect plans and compares the actions by path relative to the root.
func (b *bed) expect(want map[string]plan.Reason, jobs ...job.Job) plan.Plan {
	b.t.Helper()
	p := b.plan(jobs...)
	got := map[string]plan.Reason{}
	for _, r := range p.Rows {
		got[r.Path[len(b.root+"/jobs/"):]] = r.Reason
	}
	if d := cmp.Diff(want, got); d != "" {
		b.t.Fatalf("plan (-want +got):\n%s", d)
	}
	return p
}

// join joins in a session of its own, which close ends.
func (b *bed) join(j job.Job, identity string) (m *worker.Member, close func()) {
	b.t.Helper()
	s := b.dial()
	m, err := worker.Join(b.t.Context(), s, worker.Config{
		Root: j.Root, Job: j.Name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m, func() { s.Close() }
}

// complete does what a worker whose command ended well does.
func (b *bed) complete(m *worker.Member) {
	b.t.Helper()
	j, g := m.Job, m.Generation
	claim := znode.ByIdentity(j.Root, g, m.Identity)
	zero := 0
	body, err := znode.EncodeClaim(znode.Claim{Nonce: "n", Lives: 1, State: znode.Done, Exit: &zero})
	if err != nil {
		b.t.Fatal(err)
	}
	acl, _ := zkstate.ParseACL(nil)
	if _, err := b.session.Multi(b.t.Context(),
		zkconn.CheckOp(znode.Gate(j.Root, g), 0),
		zkconn.SetOp(claim, body, 0),
		zkconn.CreateOp(znode.NewEnd(j.Root, g), nil, zkconn.PersistentSequential, acl),
		zkconn.DeleteOp(znode.Live(j.Root, j.Name, m.Identity), -1), // the member writes its id there, sooner or later
	); err != nil {
		b.t.Fatal(err)
	}
}

// tree lists every znode below path, sorted, relative to it.
func (b *bed) tree(path string) []string {
	b.t.Helper()
	var all []string
	names, _, err := b.session.Children(b.t.Context(), path)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		all = append(all, name)
		for _, below := range b.tree(path + "/" + name) {
			all = append(all, name+"/"+below)
		}
	}
	return all
}
