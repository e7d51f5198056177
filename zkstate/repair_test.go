package zkstate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/znode"
)

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

// TestLostReplyOfARepair cuts the transaction of every repair before it is sent, after it was committed and before its
// reply, and after its reply. Each ends repaired, once, and the record is as it was.
func TestLostReplyOfARepair(t *testing.T) {
	t.Parallel()
	faults := map[string]func(p *zkserver.Proxy) <-chan struct{}{
		"before it is sent":         func(p *zkserver.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"committed, reply lost":     func(p *zkserver.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
		"right after its own reply": func(p *zkserver.Proxy) <-chan struct{} { return p.AfterReply(isMulti) },
	}
	for name, parts := range damages() {
		for fault, arm := range faults {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxyFixture(t)
				j := f.declare("a", 2, func(j *job.Job) { j.Labels = map[string]string{"team": "data"} })
				f.apply(j)
				before := f.bodies(j)
				row, err := f.lose(j, parts)
				if err != nil {
					t.Fatal(err)
				}
				fired := arm(proxy)
				if err := f.store.Commit(t.Context(), row); err != nil {
					t.Error(err)
				}
				select {
				case <-fired:
				case <-t.Context().Done():
					t.Fatal("the fault did not happen")
				}
				f.expect(map[string]plan.Reason{"a": plan.Equal}, j)
				if d := cmp.Diff(before, f.bodies(j)); d != "" {
					t.Errorf("record and copy (-before +after):\n%s", d)
				}
				f.noDuplicates(1)
				if err := f.store.Commit(t.Context(), row); !errors.Is(err, plan.ErrAlreadyDone) {
					t.Errorf("the same again: %v, want already done", err)
				}
			})
		}
	}
}

// bodies are the record of j and its copy.
func (f *fixture) bodies(j job.Job) []string {
	f.t.Helper()
	o, err := f.store.Find(f.t.Context(), j.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	for _, path := range []string{znode.Record(job.KindName, j.Root, j.Name), znode.Run(j.Root, o.Record.Generation)} {
		body, _, err := f.session.Get(f.t.Context(), path)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, string(body))
	}
	return all
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
