package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// TestRaceRepairOfAGroup repairs a group while somebody else does something to it. Each time the group is whole
// afterwards, in the same generation, and what was saved is there.
func TestRaceRepairOfAGroup(t *testing.T) {
	rounds := map[string]int{"a join": 1, "another repair": 5, "terminate": 5} // a join may wait for its next look
	for name, against := range map[string]func(f *fixture, g group.Group, r plan.Row) error{
		"a join": func(f *fixture, g group.Group, r plan.Row) error {
			m, err := f.joinGroup(f.t.Context(), g, "b")
			if err != nil {
				return err
			}
			defer m.Leave()
			if was := r.Old.Record.Generation; m.Generation != was {
				return fmt.Errorf("it joined %s, not %s", m.Generation, was)
			}
			return nil
		},
		"another repair": func(f *fixture, g group.Group, r plan.Row) error {
			err := f.store.Commit(f.t.Context(), r)
			if errors.Is(err, plan.ErrAlreadyDone) {
				return nil
			}
			return err
		},
		"terminate": func(f *fixture, g group.Group, r plan.Row) error {
			err := f.store.Terminate(f.t.Context(), g.Path(), time.Minute, nil)
			if errors.Is(err, zkstate.ErrNotTerminable) {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			other := &fixture{t: t, servers: f.servers, root: f.root, session: f.dial()}
			other.store = other.newStore(other.session)
			g := f.shop(func(g *group.Group) { g.Timeouts.Join = resource.Duration(2 * time.Minute) })
			f.commitGroup(plan.NotThere, g)
			m, main, _ := f.holder(g, "a")
			if err := main.Put(t.Context(), "k", []byte("v")); err != nil {
				t.Fatal(err)
			}
			if err := m.Leave(); err != nil {
				t.Fatal(err)
			}
			for damage, parts := range groupDamages() {
				if damage == "duty" || damage == "generation" || strings.Contains(damage, " and ") {
					continue // what was saved is lost; or it is damage that others are, too
				}
				for range rounds[name] {
					if err := f.loseOfGroup(g, m.Generation, parts); err != nil {
						t.Fatalf("%s: %v", damage, err)
					}
					r := f.groupRow(g)
					var repairErr, otherErr error
					var both sync.WaitGroup
					both.Go(func() { repairErr = f.store.Commit(t.Context(), r) })
					both.Go(func() { otherErr = against(other, g, r) })
					both.Wait()
					if repairErr != nil && !errors.Is(repairErr, plan.ErrAlreadyDone) && !errors.Is(repairErr, plan.ErrMoved) ||
						otherErr != nil {
						t.Fatalf("%s: the repair: %v, the other: %v", damage, repairErr, otherErr)
					}
					for after := f.groupRow(g); after.Reason != plan.Equal; after = f.groupRow(g) {
						if after.Reason != plan.IsDamaged && after.Reason != plan.TerminatedKept {
							t.Fatalf("%s: the group is %s", damage, after.Reason)
						}
						if err := f.store.Commit(t.Context(), after); err != nil {
							t.Fatal(err)
						}
					}
					if value, err := member.ReadState(t.Context(), f.session, g.Root, m.Generation, "main", "k"); err != nil ||
						string(value) != "v" {
						t.Fatalf("%s: saved: %q, %v", damage, value, err)
					}
				}
			}
		})
	}
}

// TestJoinOfADamagedGroup: somebody who joins while the folder of the seats is gone waits for its repair.
func TestJoinOfADamagedGroup(t *testing.T) {
	f := newFixture(t)
	g := f.shop()
	f.commitGroup(plan.NotThere, g)
	m, _, _ := f.holder(g, "a")
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []resource.Part{"seat", resource.PartGate, resource.PartObject} {
		if err := f.loseOfGroup(g, m.Generation, []resource.Part{lost}); err != nil {
			t.Fatal(err)
		}
		waits := make(chan string, 1)
		joined := make(chan error, 1)
		go func() {
			next, err := member.Join(t.Context(), f.dial(), member.Config{
				Root: g.Root, Group: g.Name, Identity: "b", Version: "1.0.0", Waiting: func(what string) { waits <- what },
			})
			if err == nil {
				err = next.Leave()
			}
			joined <- err
		}()
		if what := <-waits; !strings.HasPrefix(what, "muster apply to put back "+g.Root) {
			t.Errorf("without its %s a member waits for %s", lost, what)
		}
		f.commitGroup(plan.IsDamaged, g)
		if err := <-joined; err != nil {
			t.Errorf("after the repair of %s: %v", lost, err)
		}
	}
}

// TestTerminateOfAGroup: the members are asked to stop, and what they saved stays. Apply opens the group again. If one
// does not leave, the request is withdrawn.
func TestTerminateOfAGroup(t *testing.T) {
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
			if op != zkserver.OpPing {
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

// TestFirstSaveSinceThePlan: a duty for which something is saved for the first time, or an operation is opened, after
// it was checked that there is none, stays.
func TestFirstSaveSinceThePlan(t *testing.T) {
	open := func(ctx context.Context, h *member.Hold, name string) error {
		_, err := h.Open(ctx, name, "script", false)
		return err
	}
	put := func(ctx context.Context, h *member.Hold, _ string) error { return h.Put(ctx, "k", []byte("first")) }
	for name, c := range map[string]struct {
		opened bool // and closed, before the plan
		act    func(ctx context.Context, h *member.Hold, name string) error
	}{"saved": {false, put}, "opened": {false, open}, "opened another": {true, open}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			committing, f, proxy := newProxyPair(t)
			g := f.shop()
			f.commitGroup(plan.NotThere, g)
			m, _, report := f.holder(g, "a")
			defer m.Leave()
			if c.opened {
				o, err := report.Open(t.Context(), "before", "script", false)
				if err == nil {
					err = o.Close(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r := f.groupRow(f.shop(onlyLeader))
			if len(r.Loss()) != 0 {
				t.Fatalf("loses %+v", r.Loss())
			}
			acted, first := errors.New("no transaction was sent"), true
			proxy.BeforeSend(func(op int32, _ []byte) bool {
				if op == opMulti && first {
					first, acted = false, c.act(context.Background(), report, "load")
				}
				return false
			})
			err := committing.store.Commit(t.Context(), r)
			if acted != nil {
				t.Fatal(acted)
			}
			if !errors.Is(err, plan.ErrMoved) {
				t.Errorf("commit: %v, want moved", err)
			}
			if again := f.groupRow(g); again.Reason != plan.Equal {
				t.Errorf("the group is %s", again.Reason)
			}
		})
	}
}
