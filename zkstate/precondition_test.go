package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// snapshot lists every znode below path with the transaction that last wrote it.
func (f *fixture) snapshot(path string) []string {
	f.t.Helper()
	var all []string
	for _, name := range f.tree(path) {
		stat, _, err := f.session.Exists(f.t.Context(), path+"/"+name)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s written by %x", name, stat.Mzxid))
	}
	return all
}

// TestEveryPreconditionIsInTheTransaction moves the job after a commit has checked it and before its transaction
// reaches the server, in every way that an operation of the transaction guards against. Nothing may be written.
func TestEveryPreconditionIsInTheTransaction(t *testing.T) {
	type move = func(ctx context.Context, f *fixture, o *resource.Observed) error
	setRecord := func(ctx context.Context, f *fixture, o *resource.Observed) error {
		rec := *o.Record
		rec.Op = "edited"
		body, err := znode.EncodeRecord(rec)
		if err == nil {
			_, err = f.session.Set(ctx, znode.Record(job.KindName, f.root+"/jobs", "a"), body, -1)
		}
		return err
	}
	writeRoll := func(ctx context.Context, f *fixture, o *resource.Observed) error {
		_, err := f.session.Set(ctx, job.Of(o.Record).Path(), []byte("\n10.0.0.1,1,0;null,null,null"), -1)
		return err
	}
	closeGate := func(ctx context.Context, f *fixture, o *resource.Observed) error {
		return f.session.Delete(ctx, znode.Gate(job.Of(o.Record).Root, o.Record.Generation), -1)
	}
	join := func(ctx context.Context, f *fixture, o *resource.Observed) error {
		j := job.Of(o.Record)
		_, err := worker.Join(ctx, f.session, worker.Config{
			Root: j.Root, Job: j.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
		})
		if err != nil {
			return err
		}
		return awaitID(ctx, f.session, j, "w")
	}
	comeAndGo := func(ctx context.Context, f *fixture, o *resource.Observed) error {
		m, err := worker.Join(ctx, f.session, worker.Config{
			Root: job.Of(o.Record).Root, Job: "a", Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
		})
		if err == nil {
			err = m.Leave(ctx, worker.End{})
		}
		return err
	}
	makeJob := func(ctx context.Context, f *fixture, _ *resource.Observed) error {
		_, err := f.session.Create(ctx, f.root+"/jobs/a", nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	}
	makeRecord := func(ctx context.Context, f *fixture, _ *resource.Observed) error {
		at := znode.Record(job.KindName, f.root+"/jobs", "a")
		_, err := f.session.Create(ctx, at, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	}
	for _, c := range []struct {
		change string
		reason plan.Reason
		moves  map[string]move
	}{
		{"create", plan.NotThere, map[string]move{"job made": makeJob, "record made": makeRecord}},
		{"update", plan.MutableDiffers, map[string]move{"record set": setRecord, "gate closed": closeGate}},
		{"replace", plan.ReadyDiffers, map[string]move{
			"record set": setRecord, "gate closed": closeGate, "roll written": writeRoll, "worker joined": join,
			"worker came and went": comeAndGo,
		}},
		{"delete", plan.Undeclared, map[string]move{
			"record set": setRecord, "gate closed": closeGate, "roll written": writeRoll, "worker joined": join,
			"worker came and went": comeAndGo,
		}},
	} {
		for name, move := range c.moves {
			t.Run(c.change+"/"+name, func(t *testing.T) {
				t.Parallel()
				committing, f, proxy := newProxyPair(t)
				f.apply(f.declare("other", 1), f.declare("a", 2))
				var declared []job.Job
				switch c.change {
				case "create":
					f.apply(f.declare("other", 1))
					declared = []job.Job{f.declare("a", 2)}
				case "update":
					declared = []job.Job{f.declare("a", 2, func(j *job.Job) { j.Lifecycle.Protect = true })}
				case "replace":
					declared = []job.Job{f.declare("a", 3)}
				}
				row := f.row("a", append(declared, f.declare("other", 1)))
				if row.Reason != c.reason {
					t.Fatalf("the row is %s, want %s", row.Reason, c.reason)
				}
				var moved error
				var before []string
				at := 0
				proxy.BeforeSend(func(op int32, _ []byte) bool {
					if op == opMulti {
						if at++; at == 1 {
							moved = move(context.Background(), f, row.Old)
							before = f.snapshot(f.root)
						}
					}
					return false
				})
				err := committing.store.Commit(t.Context(), row)
				if moved != nil || at == 0 {
					t.Fatalf("the job was not moved: %v, %d transactions", moved, at)
				}
				if !errors.Is(err, plan.ErrMoved) {
					t.Errorf("commit: %v, want moved", err)
				}
				if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
					t.Errorf("a refused commit wrote (-before +after):\n%s", d)
				}
			})
		}
	}
}

// TestCompletedRunIsNotForgotten: a job that all had joined and left is not replaced if its run completes right before
// the transaction, after the commit has checked it. The next apply knows the run.
func TestCompletedRunIsNotForgotten(t *testing.T) {
	committing, f, proxy := newProxyPair(t)
	retain := func(j *job.Job) { j.Lifecycle.OnComplete = job.Retain }
	a := f.declare("a", 1, retain)
	f.apply(a)
	m, _ := f.join(a, "w")
	_, err := m.Roll(t.Context()) // which is written then
	if err == nil {
		err = m.Leave(t.Context(), worker.End{})
	}
	if err != nil {
		t.Fatal(err)
	}
	row := f.row("a", []job.Job{a})
	if row.Reason != plan.StaleLeftover {
		t.Fatalf("the row is %s", row.Reason)
	}
	completed, first := errors.New("no transaction was sent"), true
	proxy.BeforeSend(func(op int32, _ []byte) bool {
		if op == opMulti && first {
			m, err := worker.Join(context.Background(), f.session, worker.Config{
				Root: a.Root, Job: a.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
			})
			if first, completed = false, err; err == nil {
				completed = m.Complete(context.Background(), 0)
			}
		}
		return false
	})
	err = committing.store.Commit(t.Context(), row)
	if completed != nil {
		t.Fatal(completed)
	}
	if !errors.Is(err, plan.ErrMoved) {
		t.Errorf("commit: %v, want moved", err)
	}
	a.Workers = 2
	f.apply(a)
	o, err := f.store.Look(t.Context(), a.Path())
	if err != nil || job.LastRun(o.Record) == nil {
		t.Errorf("the record forgot the run that completed: %v, %+v", err, o.Record)
	}
}

// row is the row of one job in a plan.
func (f *fixture) row(name string, declared []job.Job) plan.Row {
	f.t.Helper()
	for _, r := range f.plan(declared...).Rows {
		if strings.HasSuffix(r.Path, "/"+name) {
			return r
		}
	}
	f.t.Fatalf("no row for %s", name)
	return plan.Row{}
}

// TestRowWithTwoPathsIsRefused: a row that observed one job and declares another changes neither.
func TestRowWithTwoPathsIsRefused(t *testing.T) {
	f := newFixture(t)
	f.apply(f.declare("a", 2), f.declare("other", 2))
	row := f.row("a", []job.Job{f.declare("a", 3)})
	row.New = f.declare("other", 3)
	before := f.snapshot(f.root)
	if err := f.store.Commit(t.Context(), row); err == nil {
		t.Error("it was committed")
	}
	if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
		t.Errorf("it wrote (-before +after):\n%s", d)
	}
}

// TestRowChangesOnlyItsPath: a Record of another job in a row, as in an edited plan file, does not change that job.
func TestRowChangesOnlyItsPath(t *testing.T) {
	f := newFixture(t)
	other := f.declare("other", 2)
	f.apply(f.declare("a", 2), other)
	row := f.row("a", nil)
	if err := row.Old.Record.Declare(other); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Commit(t.Context(), row); err != nil {
		t.Error(err)
	}
	f.expect(map[string]plan.Reason{"other": plan.Equal}, other)
}
