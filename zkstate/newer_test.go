package zkstate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

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
