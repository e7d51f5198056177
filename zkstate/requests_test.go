package zkstate_test

import (
	"fmt"
	"testing"

	"muster/apply"
	"muster/dev/fault"
	"muster/plan"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// readAndPlan is plan, but reads only what the plan needs.
func (f *fixture) readAndPlan(jobs []job.Job) plan.Plan {
	f.t.Helper()
	want := plan.Want{Stack: "tests", Home: f.root + "/home", Declared: declared(jobs...)}
	p, err := apply.Compare(f.t.Context(), f.store, want, []string{f.root + "/jobs"})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// planFor is readAndPlan, and how many requests it took.
func (f *fixture) planFor(proxy *fault.Proxy, jobs ...job.Job) (p plan.Plan, requests int) {
	f.t.Helper()
	before := count(proxy)
	p = f.readAndPlan(jobs)
	return p, count(proxy) - before
}

// count is how many requests went through the proxy, except pings.
func count(proxy *fault.Proxy) int {
	n := 0
	for op, times := range proxy.Requests() {
		if op != fault.OpPing {
			n += times
		}
	}
	return n
}

// TestRequestsOfAPlan: a plan needs two requests for each job that is unchanged and that nobody has joined, none for
// one that is not there, and a few for the root.
func TestRequestsOfAPlan(t *testing.T) {
	const n, more = 100, 10
	f, proxy := newProxyFixture(t)
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, f.declare(fmt.Sprint("j", i), 2))
	}
	p, created := f.planFor(proxy, jobs...)
	if created > more {
		t.Errorf("a plan of %d jobs that are not there takes %d requests, want at most %d", n, created, more)
	}
	for path, err := range f.commit(p) {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	p, unchanged := f.planFor(proxy, jobs...)
	if unchanged > 2*n+more {
		t.Errorf("a plan of %d unchanged jobs takes %d requests, want at most %d", n, unchanged, 2*n+more)
	}
	if changes := p.Changes(); len(changes) > 0 || len(p.Rows) != n {
		t.Errorf("%d rows, %d changes", len(p.Rows), len(changes))
	}
	full := f.plan(jobs...)
	for i, r := range p.Rows {
		if !r.Old.Equal(*full.Rows[i].Old) {
			t.Errorf("%s: observed %+v, want %+v", r.Path, r.Old, full.Rows[i].Old)
		}
	}
}

// TestPlanReadsWhatMatters: a plan that reads less still finds everything of which a row depends.
func TestPlanReadsWhatMatters(t *testing.T) {
	f, proxy := newProxyFixture(t)
	fails := func(j *job.Job) { j.Lifecycle.OnRunning = job.Fail }
	names := []string{"same", "lost", "bigger", "joined", "stranger", "undeclared", "gate"}
	var jobs []job.Job
	for _, name := range names {
		j := f.declare(name, 2)
		if name == "stranger" {
			fails(&j)
		}
		jobs = append(jobs, j)
	}
	f.apply(jobs...)
	_, leave := f.join(jobs[3], "w")
	defer leave()
	g := f.row("gate", jobs).Old.Record.Generation
	for _, err := range []error{
		f.session.Delete(t.Context(), f.root+"/jobs/lost", -1),
		f.session.Delete(t.Context(), znode.Gate(f.root+"/jobs", g), -1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	child := f.root + "/jobs/stranger/x"
	if _, err := f.session.Create(t.Context(), child, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
		t.Fatal(err)
	}
	want := append([]job.Job{f.declare("bigger", 3)}, jobs[0], jobs[1], jobs[3], jobs[4], jobs[6])
	full := f.plan(want...)
	brief, _ := f.planFor(proxy, want...)
	if len(brief.Rows) != len(names) {
		t.Errorf("%d rows, want %d", len(brief.Rows), len(names))
	}
	for i, r := range brief.Rows {
		o := full.Rows[i]
		if r.Name() == "stranger" { // whose children are read only by Compare
			o.Reason = plan.StrangerChildren
		}
		if r.Path != o.Path || r.Reason != o.Reason || !r.Old.Equal(*o.Old) {
			t.Errorf("%s is %s, want %s, which is %s:\n%+v\n%+v", r.Path, r.Reason, o.Path, o.Reason, r.Old, o.Old)
		}
	}
}
