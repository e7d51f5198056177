package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// shop is a group with a leader and a cron in the fixture's root, which settles at once.
func (f *fixture) shop(edits ...func(*group.Group)) group.Group {
	g := group.Default()
	g.Root, g.Name, g.Address, g.Settle = f.root+"/jobs", "shop", "group.shop", 0
	g.Timeouts.Stale = resource.Duration(time.Second)
	g.Labels = map[string]string{"team": "data"}
	g.Add(group.NewDuty(group.Leader, "main"))
	report := group.NewDuty(group.Cron, "report")
	report.Schedule = "@daily"
	g.Add(report)
	for _, edit := range edits {
		edit(&g)
	}
	return g
}

// onlyLeader removes every duty but the leader.
func onlyLeader(g *group.Group) { g.Duties = g.Duties[:1] }

// groupRow is the row of the group; g is nil if it is not declared. What it would lose is filled in, as for a plan.
func (f *fixture) groupRow(declared ...resource.Declaration) plan.Row {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), []string{f.root + "/jobs"})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range plan.Diff(plan.Want{Stack: "tests", Home: f.root + "/home", Declared: declared}, state).Rows {
		if strings.HasSuffix(r.Path, "/shop") {
			if err := f.store.FillSaved(f.t.Context(), r); err != nil {
				f.t.Fatal(err)
			}
			return r
		}
	}
	return plan.Row{}
}

// commitGroup plans the group, and commits a row that must have this reason.
func (f *fixture) commitGroup(want plan.Reason, declared ...resource.Declaration) plan.Row {
	f.t.Helper()
	r := f.groupRow(declared...)
	if r.Reason != want {
		f.t.Fatalf("the group is %s, want %s: %+v", r.Reason, want, r.Old)
	}
	if err := f.store.Commit(f.t.Context(), r); err != nil {
		f.t.Fatal(err)
	}
	return r
}

// joinGroup joins with a session of its own, which the end of the test closes.
func (f *fixture) joinGroup(ctx context.Context, g group.Group, identity string) (*member.Member, error) {
	return f.joinGroupOr(ctx, g, identity, nil)
}

// joinGroupOr calls waits when it has to wait.
func (f *fixture) joinGroupOr(
	ctx context.Context, g group.Group, identity string, waits func(what string),
) (*member.Member, error) {
	return member.Join(ctx, f.dial(), member.Config{
		Root: g.Root, Group: g.Name, Identity: identity, Version: "1.0.0", Can: []string{"main", "report"}, Waiting: waits,
	})
}

// holder joins, and takes both duties.
func (f *fixture) holder(g group.Group, identity string) (m *member.Member, main, report *member.Hold) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	m, err := f.joinGroup(ctx, g, identity)
	if err != nil {
		f.t.Fatal(err)
	}
	if main, err = m.Take(ctx, "main"); err != nil {
		f.t.Fatal(err)
	}
	if report, err = m.Take(ctx, "report"); err != nil {
		f.t.Fatal(err)
	}
	return m, main, report
}

// groupDamages are what somebody can delete of a group whose members have left.
func groupDamages() map[string][]resource.Part {
	all := map[string][]resource.Part{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartZnode},
		"generation":        {resource.PartGeneration},
		"seat and assigner": {"seat", "assigner"},
		"gate and asks":     {resource.PartGate, "ask"},
	}
	for _, folder := range znode.GroupFolders() {
		all[folder] = []resource.Part{resource.Part(folder)}
	}
	return all
}

// loseOfGroup deletes parts, each with all that is below it.
func (f *fixture) loseOfGroup(g group.Group, generation string, parts []resource.Part) error {
	for _, p := range parts {
		at := resource.Join(znode.Run(g.Root, generation), string(p))
		switch p {
		case resource.PartRecord:
			at = znode.Record(group.KindName, g.Root, g.Name)
		case resource.PartZnode:
			at = g.Path()
		case resource.PartGeneration:
			at = znode.Run(g.Root, generation)
		}
		if err := f.deleteTree(at); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

func (f *fixture) deleteTree(at string) error {
	var ops []zkconn.Op
	below := f.tree(at)
	for i := range below { // parents come before their children
		ops = append(ops, zkconn.DeleteOp(at+"/"+below[len(below)-1-i], -1))
	}
	_, err := f.session.Multi(f.t.Context(), append(ops, zkconn.DeleteOp(at, -1))...)
	return err
}

// TestDamagedGroup: whatever somebody deletes by hand is put back in the same generation, also if the reply to the
// repair is lost. What was saved is still there, unless its own folder was deleted.
func TestDamagedGroup(t *testing.T) {
	t.Parallel()
	faults := map[string]func(p *fault.Proxy) <-chan struct{}{
		"before it is sent":     func(p *fault.Proxy) <-chan struct{} { return p.BeforeSend(isMulti) },
		"committed, reply lost": func(p *fault.Proxy) <-chan struct{} { return p.DropReply(isMulti) },
	}
	for name, parts := range groupDamages() {
		for fault, arm := range faults {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				repairing, f, proxy := newProxyPair(t)
				g := f.shop()
				f.commitGroup(plan.NotThere, g)
				m, main, _ := f.holder(g, "a")
				if err := main.Put(t.Context(), "step", []byte("7")); err != nil {
					t.Fatal(err)
				}
				if err := m.Leave(); err != nil {
					t.Fatal(err)
				}
				before := f.groupRow(g)
				if before.Reason != plan.Equal {
					t.Fatalf("before: %s", before.Reason)
				}
				if err := f.loseOfGroup(g, m.Generation, parts); err != nil {
					t.Fatal(err)
				}
				r := f.groupRow(g)
				if r.Reason != plan.IsDamaged || r.Action() != plan.Update || !cmp.Equal(r.Old.Lost, parts) {
					t.Fatalf("%s, lost %v: %+v", r.Reason, r.Old.Lost, r.Old)
				}
				fired := arm(proxy)
				if err := repairing.store.Commit(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				<-fired
				after := f.groupRow(g)
				if after.Reason != plan.Equal || !cmp.Equal(before.Old.Record.Body, after.Old.Record.Body) ||
					after.Old.Record.Generation != m.Generation || after.Old.Record.Edited() {
					t.Errorf("after: %s, %+v", after.Reason, after.Old.Record)
				}
				if err := f.store.Commit(t.Context(), r); !errors.Is(err, plan.ErrAlreadyDone) {
					t.Errorf("the same again: %v, want already done", err)
				}
				next, main, _ := f.holder(g, "b")
				defer next.Leave()
				value, err := next.Get(t.Context(), "main", "step")
				switch lost := name == "duty" || name == "generation"; {
				case !lost && (err != nil || string(value) != "7"):
					t.Errorf("saved: %q, %v", value, err)
				case lost && !errors.Is(err, member.ErrNoKey):
					t.Errorf("saved: %q, %v, want no key", value, err)
				}
				if err := main.Put(t.Context(), "step", []byte("8")); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestWhatAGroupSaves: what a row would delete is named, and only that.
func TestWhatAGroupSaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g, smaller := f.shop(), f.shop(onlyLeader)
	f.commitGroup(plan.NotThere, g)
	if r := f.groupRow(smaller); len(r.Old.Saved) > 0 || r.Deletes() {
		t.Errorf("nothing was saved: %+v", r.Old.Saved)
	}
	m, main, report := f.holder(g, "a")
	for key, value := range map[string]string{"a": "123", "b": ""} {
		if err := report.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := main.Put(t.Context(), "k", make([]byte, 300<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Open(t.Context(), "load", "script", false); err != nil {
		t.Fatal(err)
	}
	done, err := report.Open(t.Context(), "done", "script", false)
	if err == nil {
		err = done.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	saved := []resource.Saved{
		{Section: "cron.report", Keys: 2, Bytes: 3, Open: []string{"load"}},
		{Section: "leader.main", Keys: 1, Bytes: 300 << 10},
	}
	if d := cmp.Diff(saved[:1], f.groupRow(smaller).Old.Saved); d != "" {
		t.Errorf("a duty is removed (-want +got):\n%s", d)
	}
	if r := f.groupRow(f.shop(func(g *group.Group) { g.Settle = 1 })); r.Reason != plan.MutableDiffers || r.Deletes() {
		t.Errorf("nothing is removed: %s, %+v", r.Reason, r.Old.Saved)
	}
	if err := report.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	saved[0].Keys, saved[0].Bytes = 1, 0
	r := f.groupRow()
	if d := cmp.Diff(saved, r.Old.Saved); d != "" || r.Reason != plan.Undeclared {
		t.Errorf("%s (-want +got):\n%s", r.Reason, d)
	}
	if err := f.store.Commit(t.Context(), r); err != nil {
		t.Error(err)
	}
	if _, err := f.store.Collect(t.Context(), []string{g.Root}); err != nil || len(f.tree(g.Root+"/.muster/run")) > 0 {
		t.Errorf("%v: %s", err, f.tree(g.Root+"/.muster/run"))
	}
}

// TestSavedSinceThePlan: whatever was saved after the plan was made, or after it was checked, is not deleted.
func TestSavedSinceThePlan(t *testing.T) {
	t.Parallel()
	put := func(f *fixture, h *member.Hold) error {
		if err := h.Remove(context.Background(), "k"); err != nil {
			return err
		}
		return h.Put(context.Background(), "k", []byte("other, and longer"))
	}
	for name, inTransaction := range map[string]bool{"before the check": false, "after the check": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			committing, f, proxy := newProxyPair(t)
			g := f.shop()
			f.commitGroup(plan.NotThere, g)
			m, _, report := f.holder(g, "a")
			defer m.Leave()
			if err := report.Put(t.Context(), "k", []byte("first")); err != nil {
				t.Fatal(err)
			}
			r := f.groupRow(f.shop(onlyLeader))
			if len(r.Loss()) != 1 {
				t.Fatalf("loses %+v", r.Loss())
			}
			saved := errors.New("no transaction was sent")
			if inTransaction {
				first := true
				proxy.BeforeSend(func(op int32, _ []byte) bool {
					if op == opMulti && first {
						first, saved = false, put(f, report)
					}
					return false
				})
			} else {
				saved = put(f, report)
			}
			err := committing.store.Commit(t.Context(), r)
			if saved != nil {
				t.Fatal(saved)
			}
			if !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), "(1 key, 5 bytes) -> cron.report (1 key, 17") {
				t.Errorf("commit: %v, want moved", err)
			}
			if again := f.groupRow(g); again.Reason != plan.Equal {
				t.Errorf("the group is %s", again.Reason)
			}
			f.commitGroup(plan.MutableDiffers, f.shop(onlyLeader))
		})
	}
}

// TestJoinOfADamagedGroup: somebody who joins while a part of the group is gone waits for its repair.
func TestJoinOfADamagedGroup(t *testing.T) {
	t.Parallel()
	for _, lost := range []resource.Part{"seat", resource.PartGate, resource.PartZnode} {
		t.Run(string(lost), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			g := f.shop()
			f.commitGroup(plan.NotThere, g)
			m, _, _ := f.holder(g, "a")
			if err := m.Leave(); err != nil {
				t.Fatal(err)
			}
			if err := f.loseOfGroup(g, m.Generation, []resource.Part{lost}); err != nil {
				t.Fatal(err)
			}
			waits, joined := make(chan string, 1), make(chan error, 1)
			go func() {
				next, err := f.joinGroupOr(t.Context(), g, "b", func(what string) { waits <- what })
				if err == nil {
					err = next.Leave()
				}
				joined <- err
			}()
			if what := <-waits; !strings.HasPrefix(what, "muster apply to put back "+g.Root) {
				t.Errorf("a member waits for %s", what)
			}
			f.commitGroup(plan.IsDamaged, g)
			if err := <-joined; err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
}

// TestTerminateOfAGroup: the members are asked to stop, and what they saved stays. Apply opens the group again. If one
// does not leave, the request is withdrawn.
func TestTerminateOfAGroup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := f.shop()
	f.commitGroup(plan.NotThere, g)
	m, main, _ := f.holder(g, "a")
	if err := main.Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	err := f.store.Terminate(t.Context(), g.Path(), time.Second, nil)
	if !errors.Is(err, zkstate.ErrStillLive) || !strings.Contains(err.Error(), "still live: a") {
		t.Errorf("a member that does not leave: %v", err)
	}
	if r := f.groupRow(g); r.Reason != plan.Equal {
		t.Fatalf("the request was not withdrawn: %s", r.Reason)
	}
	waits := make(chan struct{})
	go func() {
		if m.StopRequested(context.Background()) == nil {
			<-waits
			_ = m.Leave()
		}
	}()
	var told []string
	err = f.store.Terminate(t.Context(), g.Path(), time.Minute, func(live []string) {
		if told = append(told, live...); len(told) == 1 {
			close(waits)
		}
	})
	if err != nil || !slices.Contains(told, "a") {
		t.Fatalf("terminate: %v; it waited for %q", err, told)
	}
	if err := f.store.Terminate(t.Context(), g.Path(), time.Minute, nil); err != nil {
		t.Errorf("the same again: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := f.joinGroupOr(ctx, g, "b", func(string) { cancel() }); !errors.Is(err, member.ErrNotOpen) {
		t.Errorf("a join: %v, want not open", err)
	}
	f.commitGroup(plan.TerminatedKept, f.shop(func(g *group.Group) { g.Settle = 1 }))
	next, err := f.joinGroup(t.Context(), g, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Leave()
	value, err := next.Get(t.Context(), "main", "k")
	if err != nil || string(value) != "v" || next.Generation != m.Generation {
		t.Errorf("saved: %q, %v, in generation %s, was %s", value, err, next.Generation, m.Generation)
	}
}

// TestCreateOfAGroupThatIsThere: a create that finds the group as declared is done, whoever is live. A job with its
// name is no such group.
func TestCreateOfAGroupThatIsThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := f.shop()
	create := plan.Row{Path: g.Path(), New: g, Reason: plan.NotThere}
	f.commitGroup(plan.NotThere, g)
	m, _, _ := f.holder(g, "a")
	if err := f.store.Commit(t.Context(), create); !errors.Is(err, plan.ErrAlreadyDone) {
		t.Errorf("with a live member: %v, want already done", err)
	}
	create.New = f.shop(onlyLeader)
	if err := f.store.Commit(t.Context(), create); !errors.Is(err, plan.ErrMoved) ||
		!strings.Contains(err.Error(), "the group exists now (running)") {
		t.Errorf("as another one: %v, want moved", err)
	}
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	f.commitGroup(plan.Undeclared)
	f.apply(f.declare("shop", 2, func(j *job.Job) { j.Root = g.Root }))
	if err := f.store.Commit(t.Context(), create); !errors.Is(err, plan.ErrMoved) ||
		!strings.Contains(err.Error(), "the job exists now (ready)") {
		t.Errorf("a job of that name: %v, want moved", err)
	}
}

// TestCostOfReadingAGroup: a read of a group that nobody is live in costs the same however many duties it has, and what
// was saved is not read for a plan that deletes none of it.
func TestCostOfReadingAGroup(t *testing.T) {
	t.Parallel()
	f, proxy := newProxyFixture(t)
	big := f.shop(func(g *group.Group) {
		for i := range 300 {
			g.Add(group.NewDuty(group.Leader, fmt.Sprint("duty-", i)))
		}
	})
	f.commitGroup(plan.NotThere, big)
	read := func() int {
		before := proxy.Requests()
		if r := f.groupRow(big); r.Reason != plan.Equal {
			t.Fatalf("it is %s", r.Reason)
		}
		n := 0
		for op, count := range sent(before, proxy.Requests()) {
			if op != fault.OpPing {
				n += count
			}
		}
		return n
	}
	fresh := read()
	m, main, _ := f.holder(big, "a")
	for i := range 20 {
		if err := main.Put(t.Context(), fmt.Sprint("key-", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	live := read()
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	idle := read()
	const most = 25 // with the listing of the root, and everything twice, since nobody is live
	if fresh > most || live > most || idle > most {
		t.Errorf("%d requests for a new one, %d while two of its duties are held, %d later; want at most %d",
			fresh, live, idle, most)
	}
	if at := znode.Duties(big.Root, m.Generation); len(f.tree(at)) < 20 {
		t.Errorf("nothing was saved: %v", f.tree(at))
	}
}
