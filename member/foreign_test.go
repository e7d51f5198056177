package member_test

import (
	"slices"
	"testing"
	"time"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// foreign is a member of other software: it has its znodes, and does what a test says.
type foreign struct {
	f       *fixture
	s       *zkconn.Session
	seat    string
	present znode.Present
}

// foreign joins with a seat of this prefix. assign 0 stands for a body without that field.
func (f *fixture) foreign(identity, prefix string, assign int, can ...string) *foreign {
	f.t.Helper()
	o := &foreign{f: f, s: dial(f.t), present: znode.Present{
		Nonce: zkstate.NewID(), Version: "1.0", Can: can, Ready: true,
	}}
	live, err := znode.Encode(o.present)
	if err != nil {
		f.t.Fatal(err)
	}
	seat := `{"identity":"` + identity + `","nonce":"` + o.present.Nonce + `"}`
	if assign > 0 {
		seat = seat[:len(seat)-1] + `,"assign":1}`
	}
	results, err := o.s.Multi(f.t.Context(), zkconn.CheckOp(f.run("gate"), 0),
		zkconn.CreateOp(f.group.Path()+"/"+identity, live, zkconn.Ephemeral, f.acl()),
		zkconn.CreateOp(f.run("seat/"+prefix), []byte(seat), zkconn.EphemeralSequential, f.acl()))
	if err != nil {
		f.t.Fatal(err)
	}
	o.seat = results[2].Path
	return o
}

// take takes a duty as docs/protocol.md says, once its seat names it.
func (o *foreign) take(duty string) {
	o.f.t.Helper()
	var version int32
	o.f.until("its seat to name the duty", func() bool {
		body, stat, err := o.s.Get(o.f.t.Context(), o.seat)
		seat, bad := znode.Decode[znode.Seat](body)
		if err != nil || bad != nil {
			o.f.t.Fatal(err, bad)
		}
		version = stat.Version
		return len(seat.Duties) == 1 && seat.Duties[0] == duty
	})
	body := []byte(`{"nonce":"n","identity":"` + seatOf(o) + `"}`)
	at := o.f.run("duty/" + duty)
	_, err := o.s.Multi(o.f.t.Context(), zkconn.CheckOp(o.f.run("gate"), 0), zkconn.CheckOp(o.seat, version),
		zkconn.CreateOp(at, nil, zkconn.Persistent, o.f.acl()), zkconn.SetOp(at, body, -1),
		zkconn.CreateOp(at+"/held", body, zkconn.Ephemeral, o.f.acl()))
	if err != nil {
		o.f.t.Fatal(err)
	}
}

// seatOf is the name of its seat.
func seatOf(o *foreign) string { return o.seat[len(o.seat)-len("s-0000000000"):] }

// session sets the session timeout that the group declares: that of the sessions of these tests stays.
func (f *fixture) session(timeout time.Duration) {
	f.t.Helper()
	f.change(func(g *group.Group) { g.Timeouts.Session = resource.Duration(timeout) })
}

// TestSeatThatHoldsAndNeverDecides: a member with a seat x-, or without a method of assignment, has duties, also if its
// seat is the first one, and another decides.
func TestSeatThatHoldsAndNeverDecides(t *testing.T) {
	t.Parallel()
	for prefix, assign := range map[string]int{"x-": 0, "s-": 0, "x": 1} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator", "other")
			f.join("first", "1.0").Leave() // makes the folders
			if prefix == "x" {
				prefix = "x-"
			}
			o := f.foreign("foreign", prefix, assign, "coordinator")
			a := f.join("a", "1.0", "other")
			o.take("coordinator")
			f.take(a, "other")
			if seats := f.seats(); len(seats["foreign"]) != 1 {
				t.Errorf("the seats are %v", seats)
			}
		})
	}
}

// TestDutyThatIsNotTaken: it goes to another member, and whoever did not take it is to blame. A member that waits for
// the last holder is not.
func TestDutyThatIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "neglected", "slow")
	f.session(time.Second)
	assigner := f.join("assigner", "1.0")
	told := make(chan member.Event, 10)
	go func() {
		for e := range assigner.Events(t.Context()) {
			if e.Kind == member.EventNotTaken {
				told <- e
			}
		}
	}()
	holder := f.join("holder", "1.0", "slow")
	held := f.take(holder, "slow")
	o := f.foreign("foreign", "s-", 1, "neglected")
	next := f.join("next", "1.0", "slow")
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "slow"})
	rig.Receive(t, held.HandOver(), "the hand-over")
	failures := func(duty, seat string) znode.Failure { return f.memory().Failures[duty][seat] }
	f.until("it to be blamed twice, while nobody else can do it", func() bool {
		return failures("neglected", seatOf(o)).Count >= 2
	})
	if e := rig.Receive(t, told, "the event"); e.Duty != "neglected" || e.Text == "" {
		t.Errorf("event %+v", e)
	}
	b := f.join("b", "1.0", "neglected")
	h := f.take(b, "neglected")
	if e := f.memory().Failures["slow"]; len(e) != 0 {
		t.Errorf("who waits for the last holder is to blame: %+v", e)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.take(next, "slow")
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDutyThatIsGivenBackInSilence: a member deletes held and does not resign. The duty goes to another one.
func TestDutyThatIsGivenBackInSilence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("assigner", "1.0")
	o := f.foreign("foreign", "s-", 1, "coordinator")
	o.take("coordinator")
	a := f.join("a", "1.0", "coordinator")
	if err := o.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1); err != nil {
		t.Fatal(err)
	}
	f.take(a, "coordinator")
}

// TestAssignerThatIsSilent: a live member with the first seat decides nothing. The next one takes the office, once, and
// keeps it; status names who was passed over.
func TestAssignerThatIsSilent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("first", "1.0").Leave() // makes the folders
	o := f.foreign("foreign", "s-", 1)
	a := f.join("a", "1.0", "coordinator")
	b := f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	if passed := f.memory().Passed; !slices.Equal(passed, []string{seatOf(o)}) {
		t.Errorf("passed over: %q", passed)
	}
	s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
	if err != nil || s.Assigner != "a" || !slices.Equal(s.Passed, []string{"foreign"}) {
		t.Errorf("the assigner is %q, and %q were passed over: %v", s.Assigner, s.Passed, err)
	}
	// The next one after it, and who was passed over, have no reason to take it.
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator"})
	rig.Receive(t, h.HandOver(), "the hand-over")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.take(b, "coordinator")
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "coordinator"}) // b decides
	o.s.Close()
	f.until("what is gone to be forgotten", func() bool { return len(f.memory().Passed) == 0 })
}

// TestAssignerThatIsSilentBehindAnother: a seat before the assigner's, of a member that never decides, keeps nobody
// from passing the assigner over.
func TestAssignerThatIsSilentBehindAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.session(time.Second)
	f.join("first", "1.0").Leave() // makes the folders
	f.foreign("guest", "s-", 0)
	o := f.foreign("foreign", "s-", 1)
	f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	if passed := f.memory().Passed; !slices.Equal(passed, []string{seatOf(o)}) {
		t.Errorf("passed over: %q", passed)
	}
}

// TestSilenceIsSeen: without a member that could take the office, readers see since when nobody has decided.
func TestSilenceIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	m := f.join("first", "1.0")
	f.until("it to have decided", func() bool {
		s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
		return err == nil && s.Assigner == "first" && s.Undecided.IsZero()
	})
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	f.foreign("guest", "x-", 0, "coordinator")
	f.foreign("foreign", "s-", 1)
	s, err := f.store.GroupState(t.Context(), f.look(), time.Now())
	if err != nil || s.Assigner != "foreign" || len(s.Members) != 2 || !s.Undecided.Equal(s.Members[0].Since) {
		t.Errorf("the assigner is %q, and since %s nobody has decided: %+v, %v", s.Assigner, s.Undecided, s.Members, err)
	}
}
