package zkstate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/job"
	"muster/plan"
	"muster/resource"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// unknown are fields of a Record as a newer muster may write them: at the top, in the job, and in a section of it.
var unknown = []string{`"quota":{"cpu":4,"notes":["a","b"]}`, `"priority":[3,"high"]`, `"drain":{"soft":"5s"}`}

// newer rewrites the Record of j, and its copy, as a newer muster would.
func (b *bed) newer(j job.Job) {
	b.t.Helper()
	at := znode.Record(job.KindName, j.Root, j.Name)
	body, stat, err := b.session.Get(b.t.Context(), at)
	if err != nil {
		b.t.Fatal(err)
	}
	newer := strings.NewReplacer(
		`"job":{`, unknown[0]+`,"job":{`, `"workers":`, unknown[1]+`,"workers":`, `"session":`, unknown[2]+`,"session":`,
	).Replace(string(body))
	var r resource.Record
	if r, err = znode.DecodeRecord(job.Kind(), []byte(newer)); err != nil {
		b.t.Fatal(err)
	}
	r.Sign()
	ops, err := zkstate.SetRecordOps(r, stat.Version)
	if err == nil {
		_, err = b.session.Multi(b.t.Context(), ops...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// stillNewer: nothing that only a newer muster knows is lost, and the Record verifies.
func (b *bed) stillNewer(when string, j job.Job) *resource.Observed {
	b.t.Helper()
	o, err := b.store.Look(b.t.Context(), j.Path())
	if err != nil || o == nil || o.Record == nil {
		b.t.Fatalf("after %s: %v, %+v", when, err, o)
	}
	at := znode.Record(job.KindName, j.Root, j.Name)
	for what, path := range map[string]string{"record": at, "copy": znode.Run(j.Root, o.Record.Generation)} {
		body, _, err := b.session.Get(b.t.Context(), path)
		if err != nil {
			b.t.Fatal(err)
		}
		var inside struct {
			Job struct{ Timeouts json.RawMessage }
		}
		if err := json.Unmarshal(body, &inside); err != nil {
			b.t.Fatal(err)
		}
		for _, field := range unknown {
			if strings.Count(string(body), field) != 1 {
				b.t.Errorf("after %s the %s has not %s once:\n%s", when, what, field, body)
			}
		}
		if !strings.Contains(string(inside.Job.Timeouts), unknown[2]) {
			b.t.Errorf("after %s the timeouts of the %s lack %s:\n%s", when, what, unknown[2], body)
		}
	}
	if o.Record.Edited() {
		b.t.Errorf("after %s the record counts as edited", when)
	}
	return o
}

// TestWhatANewerMusterWroteStays, whoever rewrites the Record: an update, a request to stop that is taken back, the
// last worker's reset, a repair and a replace.
func TestWhatANewerMusterWroteStays(t *testing.T) {
	b := newBed(t)
	j := b.declare("a", 2)
	b.apply(j)
	b.newer(j)
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	j.Labels, j.Timeouts.Session = map[string]string{"team": "data"}, resource.Duration(20*time.Second)
	b.expect(map[string]plan.Reason{"a": plan.MutableDiffers}, j)
	b.apply(j)
	b.stillNewer("an update", j)
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	m0, _ := b.join(j, "w0")
	m1, _ := b.join(j, "w1")
	stopping := func([]string) { b.stillNewer("the request to stop", j) }
	err := b.store.Terminate(t.Context(), j.Path(), 100*time.Millisecond, stopping)
	if !errors.Is(err, zkstate.ErrStillLive) {
		t.Fatalf("terminate: %v", err)
	}
	if o := b.stillNewer("a terminate in vain", j); o.Record.State != resource.StateOpen {
		t.Errorf("its state is %s", o.Record.State)
	}

	for _, m := range []*worker.Member{m0, m1} {
		if err := m.Complete(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	reset := b.stillNewer("the last worker's reset", j)
	run := job.LastRun(reset.Record)
	if reset.Record.Generation == m0.Generation || run == nil || reset.Status() != resource.StatusReady {
		t.Errorf("it is %s, the last run is %v", reset.Status(), run)
	}
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)

	if err := b.session.Delete(t.Context(), znode.Record(job.KindName, j.Root, j.Name), -1); err != nil {
		t.Fatal(err)
	}
	b.expect(map[string]plan.Reason{"a": plan.IsDamaged}, j)
	b.apply(j)
	b.stillNewer("a repair", j)

	j.Workers = 3
	b.expect(map[string]plan.Reason{"a": plan.ReadyDiffers}, j)
	b.apply(j)
	b.stillNewer("a replace", j)
	b.expect(map[string]plan.Reason{"a": plan.Equal}, j)
}
