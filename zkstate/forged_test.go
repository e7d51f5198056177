package zkstate_test

import (
	"strings"
	"testing"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// forger is somebody who may write in the generation of one job, and makes its copy name another resource.
type forger struct {
	*fixture
	as  *zkconn.Session
	own job.Job
}

// newForger applies the forger's job, which belongs to the worker and to the deployer.
func newForger(t *testing.T) *forger {
	t.Helper()
	f := &forger{fixture: newFixture(t)}
	f.session = f.dial(digestOf("deployer"))
	f.store = f.newStore(f.session, deployerID+":cdrwa", workerID+":cdrw", "world:anyone:r")
	f.as, f.own = f.dial(digestOf("worker")), f.declare("own", 1)
	f.apply(f.own)
	f.store = f.newStore(f.session, deployerID+":cdrwa", "world:anyone:r")
	return f
}

// forge makes its generation the copy of a record of j, and its own record name no generation any more.
func (f *forger) forge(j job.Job, edits ...func(*resource.Record)) (generation string) {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), f.own.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	rec := *o.Record
	err = rec.Declare(j)
	for _, edit := range edits {
		edit(&rec)
	}
	body, encoded := znode.EncodeRecord(rec)
	if err != nil || encoded != nil {
		f.t.Fatal(err, encoded)
	}
	for path, body := range map[string][]byte{
		znode.Run(j.Root, rec.Generation): body, znode.Record(job.KindName, j.Root, f.own.Name): []byte("{"),
	} {
		if _, err := f.as.Set(f.t.Context(), path, body, -1); err != nil {
			f.t.Fatal(err)
		}
	}
	return rec.Generation
}

// TestForgedCopyIsNoJob: a job that is declared and not there yet is created as it is declared, whatever a copy says.
// If it is not declared, the generation with that copy ends, and nothing is created.
func TestForgedCopyIsNoJob(t *testing.T) {
	t.Parallel()
	ours := func(*resource.Record) {}
	for name, c := range map[string]struct {
		declared bool
		edit     func(*resource.Record)
	}{
		"declared": {true, ours}, "undeclared": {false, ours},
		"of another stack": {true, func(r *resource.Record) { r.Stack = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForger(t)
			j, declared := f.declare("b", 2), c.declared
			forged := f.forge(f.declare("b", 7), c.edit)
			var want []job.Job
			if declared {
				want = append(want, j)
			}
			if err := f.commit(f.plan(want...))[j.Path()]; err != nil {
				t.Fatal(err)
			}
			o, err := f.store.Find(t.Context(), j.Path())
			switch {
			case err != nil:
				t.Fatal(err)
			case !declared && o != nil:
				t.Errorf("the job is there: %+v", o)
			case !declared:
			case o == nil, o.Record == nil, len(o.Lost) > 0, o.Record.Generation == forged, job.Of(o.Record).Workers != 2:
				t.Errorf("the job is %+v", o)
			case strings.Contains(strings.Join(o.Record.ACL, " "), workerID):
				t.Errorf("whoever has forged the copy may write the job: %q", o.Record.ACL)
			}
		})
	}
}

// TestForgedRecordIsNotPutBack: the record of a job was deleted by hand, and its generation is gone. A copy in a
// generation with other rights is not put in its place.
func TestForgedRecordIsNotPutBack(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	j := f.declare("b", 2)
	f.apply(j, f.own)
	o, err := f.store.Look(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	g := o.Record.Generation
	f.forge(f.declare("b", 7))
	for _, path := range []string{
		znode.Record(job.KindName, j.Root, j.Name), znode.Gate(j.Root, g), znode.Run(j.Root, g),
	} {
		if err := f.session.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	p := f.expect(map[string]plan.Reason{"b": plan.IsDamaged, "own": plan.IsUnreadable}, j, f.own)
	err = f.commit(p)[j.Path()]
	if err == nil || !strings.Contains(err.Error(), "another ACL") {
		t.Errorf("the commit ended with %v", err)
	}
	if o, err := f.store.Look(t.Context(), j.Path()); err != nil || o == nil || o.Has(resource.PartRecord) {
		t.Errorf("a record was written: %+v, %v", o, err)
	}
}
