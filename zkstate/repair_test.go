package zkstate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

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
