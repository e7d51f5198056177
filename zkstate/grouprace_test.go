package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
