package member_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// until waits until done reports true.
func (f *fixture) until(what string, done func() bool) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(5 * time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			f.t.Fatalf("waited for %s", what)
		}
	}
}

// children are the names below a path in the group's generation.
func (f *fixture) children(below string) []string {
	f.t.Helper()
	names, _, err := f.s.Children(f.t.Context(), f.run(below))
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		f.t.Fatal(err)
	}
	return names
}

// seats are the members' seats as the assigner wrote them, by identity. A duty in two at one moment fails the test.
func (f *fixture) seats() map[string][]string {
	f.t.Helper()
	type read struct {
		path    string
		version int32
	}
	all, had := map[string][]string{}, map[string]read{}
	for _, name := range f.children("seat") {
		at := f.run("seat/" + name)
		body, stat, err := f.s.Get(f.t.Context(), at)
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			f.t.Fatal(err)
		}
		seat, err := znode.Decode[znode.Seat](body)
		if err != nil {
			f.t.Fatal(err)
		}
		all[seat.Identity] = seat.Duties
		for _, d := range seat.Duties {
			if first, ok := had[d]; ok { // was it still in the first one when the second was read?
				now, _, err := f.s.Exists(f.t.Context(), first.path)
				if err != nil {
					f.t.Fatal(err)
				}
				if now.Version == first.version {
					f.t.Errorf("%s is in %s and %s", d, first.path, at)
				}
			}
			had[d] = read{at, stat.Version}
		}
	}
	return all
}

// create makes a persistent znode in the group's generation.
func (f *fixture) create(below, body string, mode zkconn.Mode) string {
	f.t.Helper()
	path, err := f.s.Create(f.t.Context(), f.run(below), []byte(body), mode, f.acl())
	if err != nil {
		f.t.Fatal(err)
	}
	return path
}

// acl is what members give their znodes.
func (f *fixture) acl() []zkconn.ACL {
	f.t.Helper()
	acl, err := zkstate.ParseACL(f.look().Record.ACL)
	if err != nil {
		f.t.Fatal(err)
	}
	return acl
}

// TestAssignerKnowsTheMethodOfTheRecord: when the Record wants a newer method, the first seat that knows it is the
// assigner, and one that does not know it is never.
func TestAssignerKnowsTheMethodOfTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "first", "second")
	join := func(identity string, knows int, can ...string) (*member.Member, <-chan member.Event) {
		m, err := member.JoinKnowing(t.Context(), dial(t), f.config(identity, "1.0", can...), knows)
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan member.Event, 100)
		go func() {
			for e := range m.Events(t.Context()) {
				if e.Kind == member.EventAssigner || e.Kind == member.EventAssignerEnded {
					events <- e
				}
			}
		}()
		t.Cleanup(func() { m.Leave() })
		return m, events
	}
	a, _ := join("a", 1, "first")
	f.take(a, "first")
	b, bEvents := join("b", 2, "second")
	f.take(b, "second")

	f.raiseAssign(2)
	if e := receive(t, bEvents, "b to be the assigner"); e.Kind != member.EventAssigner {
		// it may have told before that it is not
		if e = receive(t, bEvents, "b to be the assigner"); e.Kind != member.EventAssigner {
			t.Errorf("event %+v", e)
		}
	}
	f.change(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "third")) })
	c, _ := join("c", 1, "third")
	f.take(c, "third") // b, the second seat, decides

	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	d, dEvents := join("d", 2, "second")
	if e := receive(t, dEvents, "d to be the assigner"); e.Kind != member.EventAssigner {
		t.Errorf("event %+v", e)
	}
	f.take(d, "second") // d is the assigner, although a and c are before it
}

// raiseAssign writes into the Record that assigners assign by method n.
func (f *fixture) raiseAssign(n int) {
	f.t.Helper()
	at := znode.Record(group.KindName, f.group.Root, f.group.Name)
	body, stat, err := f.s.Get(f.t.Context(), at)
	if err != nil {
		f.t.Fatal(err)
	}
	rec, err := znode.DecodeRecordAt(group.Kind(), f.group.Path(), body)
	if err != nil {
		f.t.Fatal(err)
	}
	rec.Extra = map[string]json.RawMessage{"assign": json.RawMessage(strconv.Itoa(n))}
	if body, err = znode.EncodeRecord(rec); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.s.Set(f.t.Context(), at, body, stat.Version); err != nil {
		f.t.Fatal(err)
	}
}

// TestInboxesOfThousands: thousands of requests and resignations are taken, whoever made them and however bad they are.
// Members go on.
func TestInboxesOfThousands(t *testing.T) {
	t.Parallel()
	const many = 1200
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	b := f.join("b", "1.0", "coordinator")
	ask := `{"do":"unpin","duty":"coordinator","by":"root@here"}`
	resignation := `{"seat":"s-0000000099","identity":"x","duty":"coordinator","blame":true,"because":"x"}`
	var ops []zkconn.Op
	add := func(below, body string) {
		ops = append(ops, zkconn.CreateOp(f.run(below), []byte(body), zkconn.PersistentSequential, f.acl()))
	}
	run, acl := f.run(""), f.acl()
	for range many {
		ops = append(ops,
			zkconn.CreateOp(run+"/ask/a-", []byte(ask), zkconn.PersistentSequential, acl),
			zkconn.CreateOp(run+"/resigned/r-", []byte(resignation), zkconn.PersistentSequential, acl))
	}
	add("ask/a-", `{"do":"pause","duty":"unknown","by":"root@here"}`)
	add("ask/a-", `{"do":"handover","duty":"coordinator","to":"nobody","by":"root@here"}`)
	add("ask/a-", `not JSON`)
	add("ask/x", `{}`)
	add("resigned/r-", ``)
	if _, err := f.s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	changed := f.create("ask/a-", "", zkconn.PersistentSequential)
	_, _ = f.s.Set(t.Context(), changed, []byte(ask), -1) // a request that was changed after it was made
	stuck := f.create("ask/y", ask, zkconn.Persistent)
	_, _ = f.s.Create(t.Context(), stuck+"/child", nil, zkconn.Persistent, acl)
	f.until("the assigner to take everything", func() bool {
		return len(f.children("resigned")) == 0 && len(f.children("ask")) <= 1
	})
	f.ask2(znode.AskHandover, "b")
	receive(t, h.HandOver(), "the hand-over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.take(b, "coordinator")
	if memory := f.memory(); len(memory.Paused) != 0 || len(memory.Failures) != 0 {
		t.Errorf("the assigner remembers %+v", memory)
	}
	if a.Context().Err() != nil {
		t.Errorf("the assigner ended: %v", context.Cause(a.Context()))
	}
}

// ask2 asks for the coordinator while an entry is in the inbox that nobody can delete.
func (f *fixture) ask2(do znode.AskKind, to string) {
	f.t.Helper()
	body, err := znode.Encode(znode.Ask{Do: do, Duty: "coordinator", To: to, By: "root@here"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.create("ask/a-", string(body), zkconn.PersistentSequential)
}

// memory is what the assigner has written.
func (f *fixture) memory() znode.AssignerMemory {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), f.run("assigner"))
	if err != nil {
		f.t.Fatal(err)
	}
	memory, err := znode.DecodeAssigner(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return memory
}

// TestPins: a hand-over to a member pins the duty to it, until somebody asks for another hand-over, or unpins it, or
// the member leaves. A pause takes the duty from everybody.
func TestPins(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	names := []string{"a", "b", "c"}
	members := map[string]*member.Member{}
	ctx, cancel := context.WithCancel(t.Context())
	for _, name := range names {
		m := f.join(name, "1.0", "coordinator")
		members[name] = m
		go func() {
			_ = m.Lead(ctx, "coordinator", func(ctx context.Context, _ *member.Hold) error {
				<-ctx.Done()
				return nil
			})
		}()
	}
	defer cancel()
	holder := func(want string) func() bool {
		return func() bool {
			body, _, err := f.s.Get(t.Context(), f.run("duty/coordinator/held"))
			h, decoded := znode.Decode[znode.Holder](body)
			return err == nil && decoded == nil && h.Identity == want || err != nil && want == ""
		}
	}
	f.until("a to lead", holder("a"))
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "c"})
	f.until("c to lead", holder("c"))
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator"}) // gives it to a or b
	f.until("a to lead again", holder("a"))
	if pins := f.memory().Pins; len(pins) != 0 {
		t.Errorf("a plain hand-over left the pins %v", pins)
	}
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "b"})
	f.until("b to lead", holder("b"))
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"})
	f.until("nobody to lead", holder(""))
	f.ask(znode.Ask{Do: znode.AskResume, Duty: "coordinator"})
	f.until("b to lead, which is still pinned", holder("b"))
	f.ask(znode.Ask{Do: znode.AskUnpin, Duty: "coordinator"})
	if pins := f.memory().Pins; len(pins) != 0 {
		t.Errorf("pins %v", pins)
	}
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "c"})
	f.until("c to lead", holder("c"))
	if err := members["c"].Leave(); err != nil {
		t.Fatal(err)
	}
	f.until("a to lead after c left", holder("a"))
	f.until("the pin to be over", func() bool { return len(f.memory().Pins) == 0 })
}

// TestSpoiledRecord: while nobody can read the Record, members keep what they have, and go on when it is mended.
func TestSpoiledRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	at := znode.Record(group.KindName, f.group.Root, f.group.Name)
	body, _, err := f.s.Get(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Set(t.Context(), at, []byte("spoiled"), -1); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Set(t.Context(), at, body, -1); err != nil {
		t.Fatal(err)
	}
	f.take(b, "coordinator")
}
