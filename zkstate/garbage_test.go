package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// populate makes j the leftover of a run in which n workers had joined: one real worker makes the folders, and the
// others' claims and ids are written as its join wrote them, many in one transaction.
func (f *fixture) populate(j job.Job, n int) {
	f.t.Helper()
	m, leave := f.join(j, "w0")
	leave()
	root, g := j.Root, m.Generation
	acl := zkconn.World(zkconn.PermAll)
	claim, _, err := f.session.Get(f.t.Context(), znode.ByIdentity(root, g, "w0"))
	if err != nil {
		f.t.Fatal(err)
	}
	info, _, err := f.session.Get(f.t.Context(), znode.ID(root, g, 0))
	if err != nil {
		f.t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for from := 1; from < n; from += 100 {
		group.Go(func() error {
			var ops []zkconn.Op
			for i := from; i < min(n, from+100); i++ {
				ops = append(ops,
					zkconn.CreateOp(znode.ByIdentity(root, g, fmt.Sprint("w", i)), claim, zkconn.Persistent, acl),
					zkconn.CreateOp(znode.NewID(root, g), info, zkconn.PersistentSequential, acl))
			}
			_, err := f.session.Multi(f.t.Context(), ops...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

// TestCostOfAChangeDoesNotDependOnItsWorkers replaces and deletes jobs that 4 and 3,000 workers had joined: the same
// requests, one of them a transaction, and the same time. What the workers left is collected afterwards.
func TestCostOfAChangeDoesNotDependOnItsWorkers(t *testing.T) {
	t.Parallel()
	const few, many = 4, 3000
	f, proxy := newProxyFixture(t)
	took := map[string]map[int]time.Duration{"replace": {}, "delete": {}}
	requests := map[string]map[int]map[int32]int{"replace": {}, "delete": {}}
	for _, n := range []int{few, many} {
		j := f.declare("a", n)
		f.apply(j)
		for _, change := range []string{"replace", "delete"} {
			f.populate(j, n)
			rows := f.plan(j).Rows
			if change == "delete" {
				rows = f.plan().Rows
			}
			if got := rows[0].Old; job.Joined(got) != n || got.Status() != resource.StatusStale {
				t.Fatalf("observed %+v, want %d joined and stale", got, n)
			}
			before := proxy.Requests()
			start := time.Now()
			if err := f.store.Commit(t.Context(), rows[0]); err != nil {
				t.Fatal(err)
			}
			took[change][n] = time.Since(start)
			requests[change][n] = sent(before, proxy.Requests())
		}
	}
	for _, change := range []string{"replace", "delete"} {
		t.Logf("%s: %s with %d workers, %s with %d: ratio %.2f", change, took[change][few], few,
			took[change][many], many, float64(took[change][many])/float64(took[change][few]))
		if a, z := requests[change][few], requests[change][many]; fmt.Sprint(a) != fmt.Sprint(z) || a[opMulti] != 1 {
			t.Errorf("%s: requests by code with %d workers %v, with %d %v; want the same, one transaction",
				change, few, a, many, z)
		}
		if took[change][many] > 20*took[change][few]+50*time.Millisecond {
			t.Errorf("%s of a job of %d workers took %s", change, many, took[change][many])
		}
	}
	start := time.Now()
	n, err := f.store.Collect(t.Context(), []string{f.root + "/jobs"})
	if err != nil || n != 4 {
		t.Errorf("collected %d generations, %v; want 4", n, err)
	}
	t.Logf("collected %d znodes in %s", 4*(few+many), time.Since(start))
	if left := f.tree(f.root + "/jobs/.muster/run"); len(left) != 0 {
		t.Errorf("%d znodes left, the first %s", len(left), left[0])
	}
}

// opPing is the operation code of a ping.
const opPing = 11

// sent counts the requests between before and after, by operation code, without pings.
func sent(before, after map[int32]int) map[int32]int {
	n := map[int32]int{}
	for op, count := range after {
		if op != opPing && count > before[op] {
			n[op] = count - before[op]
		}
	}
	return n
}

// TestCollectionIsTakenUpAfterACrash cuts the collection of a large generation at several places, each time for good;
// the next apply collects the rest and nothing else.
func TestCollectionContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	f, proxy := newProxyFixture(t)
	j, other := f.declare("a", 3000), f.declare("other", 1)
	f.apply(j, other)
	f.populate(j, 3000)
	f.join(other, "w")
	f.apply(other)
	before := len(f.tree(f.root + "/jobs/.muster/run"))
	for cut := range 3 {
		s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{proxy.Addr()}, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		fired := proxy.BeforeSend(func(op int32, _ []byte) bool {
			seen += map[bool]int{true: 1}[op == opMulti]
			return op == opMulti && seen == cut+2
		})
		go func() {
			<-fired
			s.Close()
		}()
		if _, err := f.newStore(s).Collect(t.Context(), []string{other.Root}); err == nil {
			t.Fatalf("collection %d was not cut", cut)
		}
	}
	left := len(f.tree(f.root + "/jobs/.muster/run"))
	if left >= before || left < 1000 {
		t.Fatalf("%d of %d znodes are left: nothing was cut in the middle", left, before)
	}
	if n, err := f.store.Collect(t.Context(), []string{other.Root}); n != 1 || err != nil {
		t.Errorf("collected %d generations, %v; want 1", n, err)
	}
	f.expect(map[string]plan.Reason{"other": plan.Equal}, other)
	if got := len(f.tree(f.root + "/jobs/.muster/run")); got != 1+5+2 { // g, its five children, one claim and one id
		t.Errorf("%d znodes are left below run, want only those of the other job: %v", got,
			f.tree(f.root+"/jobs/.muster/run"))
	}
}

// TestARecordThatCannotBeReadKeepsItsOwnGeneration, also without a gate: it may name it. It keeps no other, since the
// copies in these say that they are not its own.
func TestARecordThatCannotBeReadKeepsItsOwnGeneration(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j, other := f.declare("a", 1), f.declare("other", 1)
	f.apply(j, other)
	g := f.row("other", []job.Job{j, other}).Old.Record.Generation
	f.populate(j, 1)
	f.apply(other)
	f.write(znode.Record(job.KindName, other.Root, other.Name), []byte("{"), 0)
	f.remove(znode.Gate(other.Root, g))
	if n, err := f.store.Collect(t.Context(), []string{j.Root}); n != 1 || err != nil {
		t.Errorf("collected %d generations, %v; want 1", n, err)
	}
	if d := cmp.Diff([]string{g}, f.tree(znode.RunDir(j.Root))); d != "" {
		t.Errorf("generations (-want +got):\n%s", d)
	}
}

// TestNothingIsGarbageWhileRecordsAreForbidden: Collect does not fail because of it.
func TestNothingIsGarbageWhileRecordsAreForbidden(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j, other := f.declare("a", 1), f.declare("other", 1)
	f.apply(j)
	f.populate(j, 1)
	f.apply()
	acl, err := zkstate.ParseACL([]string{"digest:owner:" + digestID("owner") + ":cdrwa"})
	if err != nil {
		t.Fatal(err)
	}
	dir := znode.RecordDir(group.KindName, j.Root)
	if _, err := f.session.Create(t.Context(), dir, nil, zkconn.Persistent, acl); err != nil {
		t.Fatal(err)
	}
	owner := f.newStore(f.dial(zkconn.Auth{Scheme: "digest", Data: []byte("owner:secret")}), "auth::cdrwa")
	if err := owner.Commit(t.Context(), plan.Row{Path: other.Path(), New: other, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	if n, err := f.store.Collect(t.Context(), []string{j.Root}); n != 0 || err != nil {
		t.Errorf("collected %d generations, %v; want none", n, err)
	}
	if n, err := owner.Collect(t.Context(), []string{j.Root}); n != 1 || err != nil {
		t.Errorf("with permission to read: collected %d generations, %v; want 1", n, err)
	}
}

// TestCollectTakesNothingFromACopy: a worker of a deletes its own gate, makes its record name another generation, and
// writes what it likes as the copy into its own generation. Apply deletes nothing of others because of it, neither in
// ZooKeeper nor outside, and says once which folder it leaves.
func TestCollectTakesNothingFromACopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(e *estate, mine, theirs string) // as the attacker, into its generation
		left  bool                                 // its folder is left
	}{
		"the record of a queue": {func(e *estate, mine, theirs string) {
			e.copyBody(znode.Run(e.root+"/jobs", theirs), znode.Run(e.root+"/jobs", mine))
		}, true},
		"that record, in another root": {func(e *estate, mine, theirs string) {
			e.copyBody(znode.Run(e.root+"/jobs", theirs), znode.Run(e.root+"/jobs", mine))
			e.edit(znode.Run(e.root+"/jobs", mine), theirs, mine)
			e.edit(znode.Run(e.root+"/jobs", mine), e.root+"/jobs", "/elsewhere")
		}, true},
		"garbage":  {func(e *estate, mine, _ string) { e.edit(znode.Run(e.root+"/jobs", mine), "{", "") }, true},
		"nothing":  {func(*estate, string, string) {}, false},
		"its gate": {func(e *estate, _, theirs string) { e.remove(znode.Gate(e.root+"/jobs", theirs)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			a, b := e.declareKind(job.KindName, "a", 2), e.declareKind(queue.KindName, "b", 2)
			e.tryApply(e.mine, "mine", a)
			e.tryApply(e.theirs, "theirs", b)
			mine, theirs := e.generationOf(a), e.generationOf(b)
			e.occupy(a, mine)
			e.occupy(b, theirs)
			e.edit(znode.Record(job.KindName, a.ID().Root, "a"), mine, "nothing")
			if err := e.attacker.Delete(t.Context(), znode.Gate(a.ID().Root, mine), -1); err != nil {
				t.Fatal(err)
			}
			c.write(e, mine, theirs)
			before := e.all(b, theirs)
			var unlinked []string
			kind := zkstate.Queue()
			kind.Unlink = func(_ context.Context, rec *resource.Record) error {
				unlinked = append(unlinked, rec.Generation)
				return nil
			}
			for range 2 {
				store, err := zkstate.NewStore(e.session, zkstate.Config{
					Home: e.root + "/home", Stack: "theirs", Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), kind},
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = store.Collect(t.Context(), []string{a.ID().Root})
				if (err != nil) != c.left || c.left && (!errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), mine)) {
					t.Errorf("collect: %v", err)
				}
			}
			if len(unlinked) > 0 {
				t.Errorf("unlinked the keys of %q; b is in %s", unlinked, theirs)
			}
			if d := cmp.Diff(before, e.all(b, theirs)); d != "" {
				t.Errorf("b (-before +after):\n%s", d)
			}
			if _, there, err := e.session.Exists(t.Context(), znode.Run(a.ID().Root, mine)); there != c.left || err != nil {
				t.Errorf("the folder is there: %v, %v", there, err)
			}
		})
	}
}

// TestNobodyKeepsTheGarbageOfOthers: a worker of a makes a znode in its generation, which ops may not read, with one
// below it. The garbage of others is collected all the same, and the error names that znode. One that ops may not read,
// but delete, keeps nothing.
func TestNobodyKeepsTheGarbageOfOthers(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(job.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	b := e.declareKind(job.KindName, "b", 2)
	e.tryApply(e.theirs, "theirs", b, e.declareKind(job.KindName, "c", 2))
	only, err := zkstate.ParseACL([]string{"digest:mallory:" + digestID("mallory") + ":cdrwa"})
	if err != nil {
		t.Fatal(err)
	}
	mine := znode.Run(a.ID().Root, e.generationOf(a))
	for _, at := range []string{mine + "/hidden", mine + "/hidden/deep"} {
		if _, err := e.attacker.Create(t.Context(), at, nil, zkconn.Persistent, only); err != nil {
			t.Fatal(err)
		}
	}
	secret := znode.Run(b.ID().Root, e.generationOf(b)) + "/secret"
	if _, err := e.session.Create(t.Context(), secret, nil, zkconn.Persistent, only); err != nil {
		t.Fatal(err)
	}
	folders, _, err := e.session.Children(t.Context(), znode.RunDir(a.ID().Root))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} { // as an apply that crashed before it collected
		e.remove(znode.Record(job.KindName, a.ID().Root, name))
	}
	for _, g := range folders {
		e.remove(znode.Gate(a.ID().Root, g))
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "theirs", Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Collect(t.Context(), []string{a.ID().Root})
	if n != 2 || !errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), mine+"/hidden") {
		t.Errorf("collected %d of 2: %v", n, err)
	}
	left, _, err := e.session.Children(t.Context(), znode.RunDir(a.ID().Root))
	if err != nil || len(left) != 1 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestFoldersWhoseNameIsNoToken are left and named, as others are of which nobody can tell whose they are.
func TestFoldersWhoseNameIsNoToken(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(job.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	dir := znode.RunDir(a.ID().Root)
	all := zkconn.World(zkconn.PermAll)
	for name, body := range map[string]string{"no token!": "", "a token?": "somebody's"} {
		if _, err := e.session.Create(t.Context(), dir+"/"+name, []byte(body), zkconn.Persistent, all); err != nil {
			t.Fatal(err)
		}
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "mine", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Collect(t.Context(), []string{a.ID().Root})
	if n != 0 || !errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), "no token!") ||
		!strings.Contains(err.Error(), "a token?") {
		t.Errorf("collected %d: %v", n, err)
	}
}

// copyBody writes the body of one znode into another, with the rights of the attacker.
func (e *estate) copyBody(from, to string) {
	e.t.Helper()
	body, _, err := e.attacker.Get(e.t.Context(), from)
	if err == nil {
		_, err = e.attacker.Set(e.t.Context(), to, body, -1)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestCollectHasALimit for what is outside ZooKeeper: it holds the apply lock.
func TestCollectHasALimit(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(queue.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	e.occupy(a, e.generationOf(a))
	e.remove(a.ID().Path() + "/live")
	var left time.Duration
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, _ *resource.Record) error {
		until, _ := ctx.Deadline()
		left = time.Until(until)
		return nil
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "mine", Kinds: []zkstate.Kind{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.tryApply(store, "mine")
	if left <= 0 || left > time.Minute {
		t.Errorf("it may take %s", left)
	}
}
