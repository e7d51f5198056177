package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// damages are what somebody can delete of a job so that it can be put back.
func damages() map[string][]resource.Part {
	return map[string][]resource.Part{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartObject},
		"record and znode": {resource.PartRecord, resource.PartObject},
		"gate and znode":   {resource.PartGate, resource.PartObject},
	}
}

// part is the znode that is a part of j in generation g.
func part(p resource.Part, j job.Job, g string) string {
	return map[resource.Part]string{
		resource.PartRecord: znode.Record(job.KindName, j.Root, j.Name), resource.PartGate: znode.Gate(j.Root, g),
		resource.PartObject: j.Path(),
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

// whole is nil if j is there in one piece, or not at all.
func (f *fixture) whole(j job.Job) (*resource.Observed, error) {
	o, err := f.store.Find(f.t.Context(), j.Path())
	if err == nil && o != nil && (o.Record == nil || o.Problem != "" || len(o.Lost) > 0) {
		err = fmt.Errorf("%s is left in pieces: %+v", j.Name, o)
	}
	return o, err
}

// TestLostReplyOfARepair cuts the transaction of every repair before it is sent, after it was committed and before its
// reply, and after its reply. Each ends repaired, once, and the record is as it was.
func TestLostReplyOfARepair(t *testing.T) {
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

// TestLostReplyOfARepairThatWasOvertaken: while the reply is lost somebody else replaces what was repaired. Then it has
// moved, and nothing is repaired a second time.
func TestLostReplyOfARepairThatWasOvertaken(t *testing.T) {
	for name, parts := range damages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			committing, f, proxy := newProxyPair(t)
			j := f.declare("a", 2)
			f.apply(j)
			row, err := f.lose(j, parts)
			if err != nil {
				t.Fatal(err)
			}
			bigger := f.declare("a", 3)
			sent, overtaken := false, errors.New("nobody asked after the lost reply")
			proxy.BeforeSend(func(op int32, req []byte) bool {
				if sent && !isMulti(op, req) && op != zkserver.OpPing && overtaken != nil {
					overtaken = f.replace(bigger)
				}
				return false
			})
			<-dropReply(proxy, &sent, func() { err = committing.store.Commit(t.Context(), row) })
			if overtaken != nil {
				t.Fatal(overtaken)
			}
			if !errors.Is(err, plan.ErrMoved) {
				t.Errorf("commit: %v, want moved", err)
			}
			f.expect(map[string]plan.Reason{"a": plan.Equal}, bigger)
			f.noDuplicates(1)
		})
	}
}

// dropReply drops the reply of the first transaction that do sends, and notes that it was sent.
func dropReply(proxy *zkserver.Proxy, sent *bool, do func()) <-chan struct{} {
	fired := proxy.DropReply(func(op int32, req []byte) bool {
		if isMulti(op, req) {
			*sent = true
		}
		return isMulti(op, req)
	})
	do()
	return fired
}

// replace puts j into a new generation, whatever it was.
func (f *fixture) replace(j job.Job) error {
	ctx := context.Background()
	o, err := f.store.Find(ctx, j.Path())
	if err != nil {
		return err
	}
	return f.store.Commit(ctx, plan.Row{Path: j.Path(), Old: o, New: j, Reason: plan.ReadyDiffers})
}

// TestEveryPreconditionOfARepairIsInTheTransaction moves the job after a repair has checked it and before its
// transaction reaches the server. Nothing may be written.
func TestEveryPreconditionOfARepairIsInTheTransaction(t *testing.T) {
	type move = func(ctx context.Context, f *fixture, row plan.Row) error
	putBack := func(ctx context.Context, f *fixture, row plan.Row) error { return f.store.Commit(ctx, row) }
	replaced := func(ctx context.Context, f *fixture, row plan.Row) error {
		if err := f.store.Commit(ctx, row); err != nil {
			return err
		}
		return f.replace(f.declare("a", 3))
	}
	deleted := func(p resource.Part) move {
		return func(ctx context.Context, f *fixture, row plan.Row) error {
			return f.session.Delete(ctx, part(p, f.declare("a", 2), row.Old.Record.Generation), -1)
		}
	}
	setRecord := func(ctx context.Context, f *fixture, row plan.Row) error {
		rec := *row.Old.Record
		rec.State, rec.Op = resource.StateTerminating, "o2"
		ops, err := zkstate.SetRecordOps(rec, row.Old.RecordVersion)
		if err == nil {
			_, err = f.session.Multi(ctx, ops...)
		}
		return err
	}
	for name, parts := range damages() {
		moves := map[string]move{"put back": putBack, "replaced": replaced}
		if strings.Contains(name, "gate") { // then the record says that the generation is still the one
			moves["record deleted too"] = deleted(resource.PartRecord)
			moves["asked to stop"] = setRecord
		} else {
			moves["gate deleted too"] = deleted(resource.PartGate)
		}
		for what, move := range moves {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				committing, f, proxy := newProxyPair(t)
				j := f.declare("a", 2)
				f.apply(j)
				row, err := f.lose(j, parts)
				if err != nil {
					t.Fatal(err)
				}
				var moved error
				var before []string
				sent := 0
				proxy.BeforeSend(func(op int32, _ []byte) bool {
					if op == opMulti {
						if sent++; sent == 1 {
							moved = move(context.Background(), f, row)
							before = f.snapshot(f.root)
						}
					}
					return false
				})
				err = committing.store.Commit(t.Context(), row)
				if moved != nil || sent == 0 {
					t.Fatalf("the job was not moved: %v, %d transactions", moved, sent)
				}
				want := plan.ErrMoved
				if what == "put back" {
					want = plan.ErrAlreadyDone
				}
				if !errors.Is(err, want) {
					t.Errorf("commit: %v, want %v", err, want)
				}
				if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
					t.Errorf("a refused repair wrote (-before +after):\n%s", d)
				}
			})
		}
	}
}

// TestCostOfALookDoesNotDependOnOtherJobs: many workers may look for a job that is not there yet, in a root with many
// jobs. Find pays for its search, and finds what has neither Record nor znode.
func TestCostOfALookDoesNotDependOnOtherJobs(t *testing.T) {
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
