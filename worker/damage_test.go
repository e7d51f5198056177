package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// damaged is a job from which somebody deletes parts by hand.
type damaged struct {
	t       *testing.T
	job     job.Job
	store   *zkstate.Store
	session *zkconn.Session // of whoever deletes
	g       string
	live    []*worker.Member
	ids     map[string]int
}

// damage is one deletion.
type damage struct {
	part         string // job znode, gate, record, id, by or, if the workers bring their ids, joined
	joined, live int    // of three workers
	ids          job.IDs
}

func (d damage) String() string {
	return fmt.Sprintf("%s with %d joined and %d live, ids by %s", d.part, d.joined, d.live, d.ids)
}

// putBack reports whether apply can make the part again in the same generation.
func (d damage) putBack() bool {
	return d.part == "job znode" || d.part == "gate" || d.part == "record"
}

func newDamaged(t *testing.T, d damage) *damaged {
	t.Helper()
	j, store := newJob(t, 3, func(j *job.Job) {
		j.Timeouts.Stale, j.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(10*time.Second)
		j.IDs = d.ids
	})
	f := &damaged{t: t, job: j, store: store, session: dial(t), g: look(t, store, j).Record.Generation}
	var lost []*zkconn.Session
	for i := range d.joined {
		s := dial(t)
		m := joinIn(t, s, f.config(i))
		if i < d.live {
			f.live = append(f.live, m)
		} else {
			lost = append(lost, s)
		}
	}
	for _, s := range lost {
		s.Close()
	}
	rig.Await(t, "those that crashed are gone", func() bool { return look(t, store, j).Live == d.live })
	f.ids = ids(t, store, j)
	return f
}

// config is that of worker w-<i>.
func (f *damaged) config(i int) worker.Config {
	c := config(f.job, fmt.Sprint("w-", i))
	if f.job.IDs == job.ByIndex {
		c.Index = &i
	}
	return c
}

// delete deletes a part and all that is below it, in one transaction: members make their live znodes again at once. The
// part must be there.
func (f *damaged) delete(part string) {
	f.t.Helper()
	at := map[string]string{
		"job znode": f.job.Path(), "gate": znode.Gate(f.job.Root, f.g),
		"record": znode.Record(job.KindName, f.job.Root, f.job.Name),
		"id":     znode.IDs(f.job.Root, f.g), "by": znode.By(f.job.Root, f.g), "joined": znode.Joined(f.job.Root, f.g),
	}[part]
	if _, there, err := f.session.Exists(f.t.Context(), at); err != nil || !there {
		f.t.Fatalf("%s, to be deleted: %v", at, err)
	}
	for {
		_, err := f.session.Multi(f.t.Context(), f.deletes(at)...)
		if err == nil {
			return
		}
		if !errors.Is(err, zkconn.ErrNotEmpty) && !errors.Is(err, zkconn.ErrNoNode) {
			f.t.Fatal(err)
		}
	}
}

// deletes are the operations that delete a znode and all that is below it.
func (f *damaged) deletes(at string) []zkconn.Op {
	f.t.Helper()
	names, _, err := f.session.Children(f.t.Context(), at)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		f.t.Fatal(err)
	}
	var ops []zkconn.Op
	for _, name := range names {
		ops = append(ops, f.deletes(path.Join(at, name))...)
	}
	return append(ops, zkconn.DeleteOp(at, -1))
}

// row is that of the job in a plan made now.
func (f *damaged) row() plan.Row {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), []string{f.job.Root}, f.job.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	p := plan.Diff(plan.Want{Stack: "tests", Home: f.job.Root + "/home", Declared: []resource.Declaration{f.job}}, state)
	for _, r := range p.Rows {
		if r.Path == f.job.Path() {
			return r
		}
	}
	f.t.Fatal("the job has no row")
	return plan.Row{}
}

// apply commits what a plan says until there is nothing left, and returns the reasons.
func (f *damaged) apply() []plan.Reason {
	f.t.Helper()
	var reasons []plan.Reason
	for range 20 {
		r := f.row()
		if !r.Action().Changes() {
			return append(reasons, r.Reason)
		}
		switch err := f.store.Commit(f.t.Context(), r); {
		case err == nil:
			reasons = append(reasons, r.Reason)
		case !errors.Is(err, plan.ErrMoved) && !errors.Is(err, plan.ErrAlreadyDone):
			f.t.Fatal(err)
		}
	}
	f.t.Fatal("apply does not come to an end")
	return nil
}

// repair commits only what puts the part back. It does not go on to replace a job that nobody is live in.
func (f *damaged) repair() {
	f.t.Helper()
	for {
		r := f.row()
		if r.Reason != plan.IsDamaged {
			f.t.Fatalf("the plan says %v", r.Reason)
		}
		err := f.store.Commit(f.t.Context(), r)
		if err == nil {
			return
		}
		if !errors.Is(err, plan.ErrMoved) {
			f.t.Fatal(err)
		}
	}
}

// TestDamage deletes a part of a job by hand, at random: plan names it, apply puts it back or says why not, the workers
// go on, and no id changes. With MUSTER_SOAK=1 there are 1,000 such deletions.
func TestDamage(t *testing.T) {
	t.Parallel()
	rounds := 60
	if rig.Long() {
		rounds = 1000
	}
	for round := range rounds {
		d := damage{part: []string{"job znode", "gate", "record", "id", "by", "joined"}[rand.IntN(6)], ids: job.ByJoin}
		if d.part == "joined" || rand.IntN(2) == 0 {
			d.ids = job.ByIndex
		}
		d.joined = []int{0, 3, 3, rand.IntN(4)}[rand.IntN(4)]
		d.live = []int{0, d.joined, rand.IntN(d.joined + 1)}[rand.IntN(3)]
		if d.joined == 0 && !d.putBack() {
			d.part = "gate" // the others do not exist yet
		}
		t.Run(fmt.Sprintf("%03d_%s", round, d), func(t *testing.T) {
			t.Parallel()
			f := newDamaged(t, d)
			f.delete(d.part)
			f.check(d)
		})
	}
}

// check checks what the comment of TestDamage says.
func (f *damaged) check(d damage) {
	t := f.t
	t.Helper()
	r := f.row()
	drift := plan.Plan{Stack: "tests", Home: f.job.Root + "/home", Rows: []plan.Row{r}}.Drift(nil)
	if len(drift.Of(plan.DriftDamaged)) != 1 || r.Old.Class() != resource.Damaged {
		t.Fatalf("%s: drift finds %v, and the job is %s", d, drift.Findings, r.Old.Status())
	}
	reasons := f.apply()
	last := reasons[len(reasons)-1]
	switch {
	case d.putBack():
		if reasons[0] != plan.IsDamaged {
			t.Errorf("%s: apply did %v", d, reasons)
		}
		g := look(t, f.store, f.job).Record.Generation
		if g != f.g && slices.Contains(reasons, plan.IsDamaged) && d.live > 0 {
			t.Errorf("%s: the job has another generation", d)
		}
	case d.live > 0 && last != plan.DamagedLive:
		t.Errorf("%s: apply did %v, want it to be blocked", d, reasons)
	case d.live == 0 && last != plan.Equal:
		t.Errorf("%s: apply did %v", d, reasons)
	}
	for _, m := range f.live {
		if m.Context().Err() != nil {
			t.Errorf("%s: worker %d did not go on: %v", d, m.ID, context.Cause(m.Context()))
		}
	}
	if d.putBack() && d.live > 0 {
		f.goOn(d)
	}
}

// goOn checks that the workers are live under their ids again, and can write.
func (f *damaged) goOn(d damage) {
	t := f.t
	t.Helper()
	rig.Await(t, "all are live again", func() bool { return look(t, f.store, f.job).Live == d.live })
	if diff := cmp.Diff(f.ids, ids(t, f.store, f.job)); diff != "" {
		t.Errorf("%s: ids (-before +after):\n%s", d, diff)
	}
	for i := d.live; i < 3; i++ { // who crashed comes back as who it was
		f.live = append(f.live, joinIn(t, dial(t), f.config(i)))
	}
	got := map[string]int{}
	for _, m := range f.live {
		got[m.Identity] = m.ID
	}
	for name, id := range f.ids {
		if got[name] != id {
			t.Errorf("%s: %s has id %d and had %d", d, name, got[name], id)
		}
	}
	if seen := slices.Sorted(maps.Values(got)); !slices.Equal(seen, []int{0, 1, 2}) {
		t.Errorf("%s: the ids are %v", d, seen)
	}
	for _, m := range f.live {
		if err := m.Complete(t.Context(), 0); err != nil {
			t.Errorf("%s: worker %d cannot complete: %v", d, m.ID, err)
		}
	}
}

// TestABarrierWaitsForRepair: a worker that arrives while the gate is missing waits for it, and then passes.
func TestABarrierWaitsForRepair(t *testing.T) {
	t.Parallel()
	f := newDamaged(t, damage{"gate", 3, 3, job.ByJoin})
	f.delete("gate")
	passed := make(chan error, 3)
	for _, m := range f.live {
		go func() { passed <- m.Barrier(t.Context(), worker.Barrier{Name: "b"}) }()
	}
	if reasons := f.apply(); reasons[0] != plan.IsDamaged {
		t.Fatalf("apply did %v", reasons)
	}
	for range f.live {
		if err := <-passed; err != nil {
			t.Error(err)
		}
	}
}

// TestALossWhileDamaged: a session that is lost while a part is missing is followed by another when it is back.
func TestALossWhileDamaged(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"gate", "job znode", "record"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := newDamaged(t, damage{part, 0, 0, job.ByJoin})
			s := dial(t)
			m := joinIn(t, s, config(f.job, "w-0"))
			f.delete(part)
			s.Close()
			<-m.Context().Done()
			back := make(chan error, 1)
			go func() {
				next, err := m.Rejoin(t.Context(), dial(t))
				if err == nil && next.ID != m.ID {
					err = fmt.Errorf("it has id %d and had %d", next.ID, m.ID)
				}
				back <- err
			}()
			f.repair()
			if err := <-back; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAJoinWaitsForRepair: who joins a job without its gate or its znode waits until that is there, also if nobody has
// joined before.
func TestAJoinWaitsForRepair(t *testing.T) {
	t.Parallel()
	for _, d := range []damage{{"gate", 2, 1, job.ByJoin}, {"gate", 0, 0, job.ByJoin}, {"job znode", 0, 0, job.ByJoin}} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			f := newDamaged(t, d)
			f.delete(d.part)
			if _, err := tryJoin(t, config(f.job, "w-2")); !errors.Is(err, worker.ErrNotOpen) {
				t.Fatalf("error = %v, want ErrNotOpen", err)
			}
			waits, joined := make(chan struct{}, 1), make(chan error, 1)
			c := config(f.job, "w-2")
			c.Waiting = func(string) {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
			go func() {
				m, err := worker.Join(t.Context(), dial(t), c)
				if err == nil && m.Generation != f.g {
					err = fmt.Errorf("it joined generation %s, not %s", m.Generation, f.g)
				}
				joined <- err
			}()
			<-waits
			f.apply()
			if err := <-joined; err != nil {
				t.Error(err)
			}
		})
	}
}
