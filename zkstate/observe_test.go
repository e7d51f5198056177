package zkstate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// write creates a znode, or replaces its data.
func (f *fixture) write(path string, body []byte, mode zkconn.Mode, acl ...string) {
	f.t.Helper()
	list, err := zkstate.ParseACL(acl)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, ok, err := f.session.Exists(f.t.Context(), path); err != nil {
		f.t.Fatal(err)
	} else if ok {
		_, err = f.session.Set(f.t.Context(), path, body, -1)
		if err != nil {
			f.t.Fatal(err)
		}
		return
	}
	if _, err := f.session.Create(f.t.Context(), path, body, mode, list); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(path string) {
	f.t.Helper()
	if err := f.session.Delete(f.t.Context(), path, -1); err != nil {
		f.t.Fatal(err)
	}
}

// TestDamagedAndForeign: what is not a sound job is named, blocks its own row or is put back, and leaves the rest of
// the plan alone.
func TestDamagedAndForeign(t *testing.T) {
	t.Parallel()
	type damage = func(f *fixture, j job.Job, g string)
	removeAll := func(f *fixture, j job.Job, g string) { // everything except the job znode
		f.remove(znode.Record(job.KindName, j.Root, j.Name))
		f.remove(znode.Gate(j.Root, g))
		f.remove(znode.Run(j.Root, g))
	}
	for name, test := range map[string]struct {
		damage     damage
		reason     plan.Reason
		says       string
		lost       []resource.Part
		undeclared plan.Reason
	}{
		"record is no JSON": {func(f *fixture, j job.Job, _ string) {
			f.write(znode.Record(job.KindName, j.Root, j.Name), []byte("{"), 0)
		}, plan.IsUnreadable, "is damaged", nil, plan.NotOurs},
		"record of another job": {func(f *fixture, j job.Job, _ string) {
			f.copyRecord("other", j.Name)
		}, plan.IsUnreadable, "belongs to", nil, plan.NotOurs},
		"gate removed": {func(f *fixture, j job.Job, g string) {
			f.remove(znode.Gate(j.Root, g))
		}, plan.IsDamaged, "", []resource.Part{resource.PartGate}, plan.IsDamaged},
		"gate removed after joins": {func(f *fixture, j job.Job, g string) {
			f.join(j, "w")
			f.remove(znode.Gate(j.Root, g))
		}, plan.IsDamaged, "", []resource.Part{resource.PartGate}, plan.IsDamaged},
		"job znode removed": {func(f *fixture, j job.Job, _ string) {
			f.remove(j.Path())
		}, plan.IsDamaged, "", []resource.Part{resource.PartZnode}, plan.IsDamaged},
		"record removed": {func(f *fixture, j job.Job, _ string) {
			f.remove(znode.Record(job.KindName, j.Root, j.Name))
		}, plan.IsDamaged, "", []resource.Part{resource.PartRecord}, plan.IsDamaged},
		"record and job znode foreign": {removeAll, plan.IsForeign, "no record", nil, plan.NotOurs},
		"classic roll damaged": {func(f *fixture, j job.Job, g string) {
			removeAll(f, j, g)
			f.write(j.Path(), []byte{0, 0, 9, 9, 1}, 0)
			f.write(j.Path()+"/10.0.0.1:9000", nil, zkconn.Ephemeral)
		}, plan.IsUnreadable, "roll is damaged", nil, plan.NotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			j, other := f.declare("a", 2), f.declare("other", 2)
			f.apply(j, other)
			o, err := f.store.Look(t.Context(), j.Path())
			if err != nil {
				t.Fatal(err)
			}
			test.damage(f, j, o.Record.Generation)
			f.expect(map[string]plan.Reason{"a": test.reason, "other": plan.Equal}, j, other)
			old := f.row("a", []job.Job{j, other}).Old
			if !strings.Contains(old.Problem, test.says) {
				t.Errorf("the problem is %q; want something about %q", old.Problem, test.says)
			}
			if d := cmp.Diff(test.lost, old.Lost); d != "" {
				t.Errorf("lost (-want +got):\n%s", d)
			}
			f.expect(map[string]plan.Reason{"a": test.undeclared, "other": plan.Equal}, other)
		})
	}
}

func (f *fixture) copyRecord(from, to string) {
	f.t.Helper()
	body, _, err := f.session.Get(f.t.Context(), znode.Record(job.KindName, f.root+"/jobs", from))
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(znode.Record(job.KindName, f.root+"/jobs", to), body, 0)
}

// TestPermissions: what may not be read blocks its row, and a root that may not be listed is named.
func TestPermissions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := zkconn.Auth{Scheme: "digest", Data: []byte("owner:secret")}
	owner := f.newStore(f.dial(secret), "auth::cdrwa")
	j := f.declare("a", 2)
	if err := owner.Commit(t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	state, err := f.store.Read(t.Context(), []string{j.Root}, j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{j.Root}, state.Unlisted); d != "" {
		t.Errorf("unlisted roots (-want +got):\n%s", d)
	}
	o := state.Found[j.Path()]
	if o.Status() != resource.StatusUnreadable || !strings.Contains(o.Problem, "no permission") {
		t.Errorf("observed %+v, want no permission", o)
	}
	state, err = owner.Read(t.Context(), []string{j.Root})
	if got := state.Found[j.Path()]; err != nil || got.Status() != resource.StatusReady {
		t.Errorf("the owner reads %+v, %v", got, err)
	}
	more := f.declare("b", 2)
	if err := f.store.Commit(t.Context(), plan.Row{Path: more.Path(), New: more, Reason: plan.NotThere}); err == nil {
		t.Error("another user created a job below the owner's root")
	}
}

// TestStrangers: a persistent child of a job znode is not a worker; it is named and blocks.
func TestStrangers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	m, _ := f.join(j, "w0")
	f.write(j.Path()+"/note", nil, zkconn.Persistent)
	j.Workers = 3
	look := func(workers []string, want plan.Reason) {
		t.Helper()
		state, err := f.store.Read(t.Context(), []string{j.Root})
		if err != nil {
			t.Fatal(err)
		}
		o := state.Found[j.Path()]
		if err := f.store.FillMembers(t.Context(), j.Path(), &o); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(workers, o.Members); d != "" {
			t.Errorf("workers (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"note"}, o.Strangers); d != "" {
			t.Errorf("strangers (-want +got):\n%s", d)
		}
		state.Found[j.Path()] = o
		declares := plan.Want{Stack: "tests", Home: f.root + "/home", Declared: declared(j)}
		if got := plan.Diff(declares, state).Rows[0].Reason; got != want {
			t.Errorf("the row is %s, want %s", got, want)
		}
	}
	look([]string{"w0"}, plan.LiveDiffers)
	if err := m.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	look(nil, plan.StrangerChildren)
}

// TestRootsInsideRoots: a folder on the path to another root, or to home, is not a foreign job.
func TestRootsInsideRoots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deep := f.declare("a", 1, func(j *job.Job) { j.Root += "/prod/eu" })
	flat := f.declare("a", 1)
	f.apply(flat)
	if err := f.store.Commit(t.Context(), plan.Row{Path: deep.Path(), New: deep, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.CreateEnsembleID(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := f.store.Read(t.Context(), []string{f.root, flat.Root, deep.Root})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]resource.Status{}
	for path, o := range state.Found {
		got[path] = o.Status()
	}
	want := map[string]resource.Status{flat.Path(): resource.StatusReady, deep.Path(): resource.StatusReady}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("observed (-want +got):\n%s", d)
	}
}

func TestWorkersAreListedWithTheirIDs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 3)
	f.apply(j)
	m0, leave0 := f.join(j, "w-zero")
	f.join(j, "w-one")
	_, leave2 := f.join(j, "w-two")
	f.complete(m0)
	leave0()
	leave2()
	ws, _, err := f.store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		Identity string
		ID       int
		Live     bool
		State    znode.ClaimState
		Address  string
	}
	var got []line
	for _, w := range ws {
		got = append(got, line{w.Identity, w.ID, w.Live, w.Claim.State, w.Info.Address()})
	}
	want := []line{
		{"w-zero", 0, false, znode.Done, "127.0.0.1:7000"},
		{"w-one", 1, true, znode.In, "127.0.0.1:7000"},
		{"w-two", 2, false, znode.In, "127.0.0.1:7000"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("workers (-want +got):\n%s", d)
	}
}

// TestReadWhileEverythingMoves reads while jobs are made, replaced and deleted, and workers come and go: nothing is
// ever seen as damaged, foreign or, with a worker in it, as stale.
func TestReadWhileEverythingMoves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keeper := f.declare("keeper", 1)
	f.apply(keeper)
	f.join(keeper, "w")
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for _, name := range []string{"x", "y", "z"} {
		store, session := f.newStore(f.dial()), f.dial()
		writers.Go(func() {
			for !closed(stop) {
				f.churn(store, session, f.declare(name, 1))
			}
		})
	}
	reader := zkstate.NewReader(f.dial(), f.root+"/home", zkstate.Job())
	seen := map[resource.Status]int{}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		state, err := reader.Read(t.Context(), []string{keeper.Root})
		if err != nil {
			t.Fatal(err)
		}
		for path, o := range state.Found {
			status := o.Status()
			seen[status]++
			switch status {
			case resource.StatusUnreadable, resource.StatusForeign, resource.StatusDamaged:
				t.Fatalf("%s is %s: %s %v", path, status, o.Problem, o.Lost)
			}
			if path == keeper.Path() && status != job.Running {
				t.Fatalf("the running job is seen as %s: %+v", status, o)
			}
		}
	}
	close(stop)
	writers.Wait()
	t.Logf("seen: %v", seen)
	for _, must := range []resource.Status{resource.StatusReady, job.Running, resource.StatusStale} {
		if seen[must] == 0 {
			t.Errorf("never saw a job %s: nothing moved", must)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// churn creates a job, lets a worker join and leave, replaces and deletes the job. Commits may be refused.
func (f *fixture) churn(store *zkstate.Store, session *zkconn.Session, j job.Job) {
	ctx := f.t.Context()
	bigger := j
	bigger.Workers = 2
	if err := f.only(ctx, j); err != nil {
		return
	}
	m, err := worker.Join(ctx, session, worker.Config{
		Root: j.Root, Job: j.Name, Identity: "w", Info: znode.Worker{IP: "::1", Port: 1},
	})
	if err != nil {
		f.t.Error(err)
		return
	}
	if err := m.Leave(ctx, worker.End{}); err != nil {
		f.t.Error(err)
	}
	for _, row := range []plan.Row{{New: bigger, Reason: plan.StaleLeftover}, {Reason: plan.Undeclared}} {
		row.Path = j.Path()
		if row.Old, _ = store.Look(ctx, j.Path()); row.Old != nil {
			store.Commit(ctx, row)
		}
	}
}

func TestParseACL(t *testing.T) {
	t.Parallel()
	acl, err := zkstate.ParseACL([]string{"digest:ops:aGFzaA==:cdrwa", "ip:127.0.0.1:r", "auth::crw"})
	if err != nil {
		t.Fatal(err)
	}
	want := []zkconn.ACL{
		{Perms: 31, Scheme: "digest", ID: "ops:aGFzaA=="}, {Perms: 1, Scheme: "ip", ID: "127.0.0.1"},
		{Perms: 7, Scheme: "auth"},
	}
	if d := cmp.Diff(want, acl); d != "" {
		t.Errorf("acl (-want +got):\n%s", d)
	}
	for _, bad := range []string{"", "world", "world:anyone", "world:anyone:", "world:anyone:x", ":a:r"} {
		if _, err := zkstate.ParseACL([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if world, err := zkstate.ParseACL(nil); err != nil || !slices.Equal(world, zkconn.World(zkconn.PermAll)) {
		t.Errorf("no entries are %v, %v; want world", world, err)
	}
}

// damages are what somebody can delete of a job so that it can be put back.
func damages() map[string][]resource.Part {
	return map[string][]resource.Part{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartZnode},
		"record and znode": {resource.PartRecord, resource.PartZnode},
		"gate and znode":   {resource.PartGate, resource.PartZnode},
	}
}

// part is the znode that is a part of j in generation g.
func part(p resource.Part, j job.Job, g string) string {
	return map[resource.Part]string{
		resource.PartRecord: znode.Record(job.KindName, j.Root, j.Name), resource.PartGate: znode.Gate(j.Root, g),
		resource.PartZnode: j.Path(),
	}[p]
}

// lose deletes parts of j, and returns the row that puts them back.
func (f *fixture) lose(j job.Job, parts []resource.Part) (plan.Row, error) {
	o, err := f.store.Find(f.t.Context(), j.Path())
	if err != nil {
		return plan.Row{}, err
	}
	for _, p := range parts {
		if err := f.session.Delete(f.t.Context(), part(p, j, o.Record.Generation), -1); err != nil {
			return plan.Row{}, err
		}
	}
	o, err = f.store.Find(f.t.Context(), j.Path())
	row := plan.Row{Path: j.Path(), Old: o, New: j, Reason: plan.IsDamaged}
	if err == nil && (o == nil || !o.Repairable()) {
		err = fmt.Errorf("%s without %v is %+v", j.Name, parts, o)
	}
	return row, err
}

// TestCostOfALookDoesNotDependOnOtherJobs: many workers may look for a job that is not there yet, in a root with many
// jobs. Find pays for its search, and finds what has neither Record nor znode.
func TestCostOfALookDoesNotDependOnOtherJobs(t *testing.T) {
	t.Parallel()
	f, proxy := newProxyFixture(t)
	missing, lost := f.declare("missing", 1), f.declare("lost", 1)
	f.apply(lost)
	row, err := f.lose(lost, damages()["record and znode"])
	if err != nil {
		t.Fatal(err)
	}
	look := func(path string) map[int32]int {
		before := proxy.Requests()
		if o, err := f.store.Look(t.Context(), path); err != nil || o != nil {
			t.Fatalf("look at %s: %+v, %v", path, o, err)
		}
		return sent(before, proxy.Requests())
	}
	few := look(missing.Path())
	jobs := []job.Job{lost}
	for i := range 30 {
		jobs = append(jobs, f.declare(fmt.Sprint("other", i), 1))
	}
	f.apply(jobs...)
	if err := f.store.Commit(t.Context(), row); err != nil && !errors.Is(err, plan.ErrAlreadyDone) {
		t.Fatal(err)
	}
	if row, err = f.lose(lost, damages()["record and znode"]); err != nil || row.Old == nil {
		t.Fatalf("%+v, %v", row.Old, err)
	}
	for _, path := range []string{missing.Path(), lost.Path()} {
		if d := cmp.Diff(few, look(path)); d != "" {
			t.Errorf("requests of a look at %s, by code (-among few +among many):\n%s", path, d)
		}
	}
}

// unknown are fields of a newer muster: in the Record, in its job, and in a section of the job.
var unknown = []string{`"quota":{"cpu":4,"notes":["a","b"]}`, `"priority":[3,"high"]`, `"drain":{"soft":"5s"}`}

// addUnknownFields rewrites the Record of j, and its copy, as a newer muster would.
func (f *fixture) addUnknownFields(j job.Job) {
	f.t.Helper()
	at := znode.Record(job.KindName, j.Root, j.Name)
	body, stat, err := f.session.Get(f.t.Context(), at)
	if err != nil {
		f.t.Fatal(err)
	}
	newer := strings.NewReplacer(
		`"job":{`, unknown[0]+`,"job":{`,
		`"workers":`, unknown[1]+`,"workers":`,
		`"session":`, unknown[2]+`,"session":`,
	).Replace(string(body))
	var r resource.Record
	if r, err = znode.DecodeRecord(job.Kind(), []byte(newer)); err != nil {
		f.t.Fatal(err)
	}
	r.Sign()
	ops, err := zkstate.SetRecordOps(r, stat.Version)
	if err == nil {
		_, err = f.session.Multi(f.t.Context(), ops...)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// checkUnknownFields checks that the Record and its copy have all unknown fields, and that the digest matches.
func (f *fixture) checkUnknownFields(when string, j job.Job) *resource.Observed {
	f.t.Helper()
	return f.checkUnknownField(when, j, unknown)
}

// checkUnknownField checks that they have these of the unknown fields, and no others.
func (f *fixture) checkUnknownField(when string, j job.Job, kept []string) *resource.Observed {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), j.Path())
	if err != nil || o == nil || o.Record == nil {
		f.t.Fatalf("after %s: %v, %+v", when, err, o)
	}
	at := znode.Record(job.KindName, j.Root, j.Name)
	for what, path := range map[string]string{"record": at, "copy": znode.Run(j.Root, o.Record.Generation)} {
		body, _, err := f.session.Get(f.t.Context(), path)
		if err != nil {
			f.t.Fatal(err)
		}
		for i, field := range unknown {
			if strings.Count(string(body), field) != min(1, max(0, len(kept)-i)) {
				f.t.Errorf("after %s the %s has %s, or not once:\n%s", when, what, field, body)
			}
		}
	}
	if o.Record.Edited() {
		f.t.Errorf("after %s the record counts as edited", when)
	}
	return o
}

// TestUnknownFieldsAreKept by a request to stop that is withdrawn, the last worker's reset and a repair. An update and
// a replace declare the job anew, and keep those beside it.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 2)
	f.apply(j)
	f.addUnknownFields(j)
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	m0, _ := f.join(j, "w0")
	m1, _ := f.join(j, "w1")
	stopping := func([]string) { f.checkUnknownFields("the request to stop", j) }
	err := f.store.Terminate(t.Context(), j.Path(), 100*time.Millisecond, stopping)
	if !errors.Is(err, zkstate.ErrStillLive) {
		t.Fatalf("terminate: %v", err)
	}
	if o := f.checkUnknownFields("a terminate in vain", j); o.Record.State != resource.StateOpen {
		t.Errorf("its state is %s", o.Record.State)
	}

	for _, m := range []*worker.Member{m0, m1} {
		if err := m.Complete(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	reset := f.checkUnknownFields("the last worker's reset", j)
	run := job.LastRun(reset.Record)
	if reset.Record.Generation == m0.Generation || run == nil || reset.Status() != resource.StatusReady {
		t.Errorf("it is %s, the last run is %v", reset.Status(), run)
	}
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	if err := f.session.Delete(t.Context(), znode.Record(job.KindName, j.Root, j.Name), -1); err != nil {
		t.Fatal(err)
	}
	f.expect(map[string]plan.Reason{"a": plan.IsDamaged}, j)
	f.apply(j)
	f.checkUnknownFields("a repair", j)

	j.Labels, j.Timeouts.Session = map[string]string{"team": "data"}, resource.Duration(20*time.Second)
	f.expect(map[string]plan.Reason{"a": plan.MutableDiffers}, j)
	f.apply(j)
	f.checkUnknownField("an update", j, unknown[:1])
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	j.Workers = 3
	f.expect(map[string]plan.Reason{"a": plan.ReadyDiffers}, j)
	f.apply(j)
	f.checkUnknownField("a replace", j, unknown[:1])
	f.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}
