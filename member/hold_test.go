package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestSmallestSeatLeads: a lone leader goes to the first member. When that leaves, the next one takes over, with a
// larger epoch.
func TestSmallestSeatLeads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b, c := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator"), f.join("c", "1.0", "coordinator")
	first := f.take(a, "coordinator")
	f.must(first.Check(t.Context()))
	if got := f.look(); got.Status() != group.Running || got.Live != 3 || group.Held(got) != 1 {
		t.Errorf("the group is %s: %+v", got.Status(), got)
	}
	f.must(a.Leave())
	f.ended(first.Context(), context.Canceled)
	second := f.take(b, "coordinator")
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	f.must(b.Leave())
	f.takeAfter(second, c)
}

// TestLoneMemberGetsItsDutyBackAfterAPause: nobody else can do it.
func TestLoneMemberGetsItsDutyBackAfterAPause(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	resigned := time.Now()
	f.must(h.Resign(t.Context(), true, "exit code 3"))
	f.take(a, "coordinator")
	if pause := time.Since(resigned); pause < 900*time.Millisecond { // by ZooKeeper's clock, in ms
		t.Errorf("it was given back after %s", pause)
	}
}

// TestDutyThatMayNotBeTaken: a member that ZooKeeper refuses a duty tells the assigner, and keeps its other ones.
func TestDutyThatMayNotBeTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "closed", "open")
	f.join("first", "1.0") // makes the folders
	acl := zkconn.World(zkconn.PermRead)
	if _, err := f.s.Create(t.Context(), f.run("duty/closed"), nil, zkconn.Persistent, acl); err != nil {
		t.Fatal(err)
	}
	a := f.join("a", "1.0", "closed", "open")
	taken := make(chan error, 1)
	go func() {
		_, err := a.Take(t.Context(), "closed")
		taken <- err
	}()
	h := f.take(a, "open")
	f.until("the assigner to know why", func() bool {
		for _, failure := range f.memory().Failures["closed"] {
			if failure.Count > 1 && strings.Contains(failure.Because, "duty/closed") {
				return true
			}
		}
		return false
	})
	if a.Context().Err() != nil || h.Context().Err() != nil {
		t.Errorf("the membership ended with %v", context.Cause(a.Context()))
	}
	f.must(f.s.Delete(t.Context(), f.run("duty/closed"), -1))
	if err := rig.Receive(t, taken, "the duty to be taken"); err != nil {
		t.Error(err)
	}
}

// TestZnodesChangedByHand: a member whose seat, live znode or held somebody wrote to, or whose seat is gone, is no
// member any more: it joins again.
func TestZnodesChangedByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	set := func(path string) error {
		_, err := f.s.Set(t.Context(), path, []byte("garbage"), -1)
		return err
	}
	remove := func(path string) error { return f.s.Delete(t.Context(), path, -1) }
	for _, c := range []struct {
		path   string
		change func(path string) error
	}{
		{f.run("seat/s-0000000000"), remove}, {f.run("seat/s-0000000001"), set},
		{f.run("duty/coordinator/held"), set}, {f.group.Path() + "/a", set},
	} {
		a := f.join("a", "1.0", "coordinator")
		h := f.take(a, "coordinator")
		f.must(c.change(c.path))
		f.ended(h.Context(), member.ErrRemoved)
		f.ended(a.Context(), member.ErrRemoved)
		f.must(a.Leave())
	}
}

// TestChangesOfTheGroupDoNotRepeatATake: while another member holds the duty, a try cannot succeed, and each would set
// a watch.
func TestChangesOfTheGroupDoNotRepeatATake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.join("assigner", "1.0")
	h := f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	b, proxy := f.joinBehind("b", "coordinator")
	var tries atomic.Int32
	held := []byte(f.run("duty/coordinator/held"))
	proxy.BeforeSend(func(op int32, req []byte) bool { // never happens: it only looks
		if op == fault.OpMulti && bytes.Contains(req, held) {
			tries.Add(1)
		}
		return false
	})
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "coordinator", To: "b"})
	rig.Receive(t, h.HandOver(), "the hand-over")
	took := make(chan *member.Hold, 1)
	go func() {
		next, err := b.Take(t.Context(), "coordinator")
		if err != nil {
			t.Error(err)
		}
		took <- next
	}()
	f.until("the first try", func() bool { return tries.Load() > 0 })
	for range 8 {
		f.change(func(g *group.Group) { g.Settle += resource.Duration(time.Millisecond) })
		f.until("b to know", func() bool { return b.Group().Settle == f.group.Settle })
	}
	f.must(h.Release(t.Context()))
	f.grows(h, rig.Receive(t, took, "b to take it"))
	if n := tries.Load(); n > 4 { // two, and more if the assigner writes at the same time
		t.Errorf("%d tries to take the duty", n)
	}
}

// term is one call of a function that leads.
type term struct {
	ctx  context.Context
	hold *member.Hold
	end  chan error // what the function returns
}

// lead leads in the background. The terms come in order; the channel of Lead's result comes with them.
func lead(ctx context.Context, m *member.Member, duty string) (terms <-chan term, result <-chan error) {
	t, r := make(chan term), make(chan error, 1)
	go func() {
		r <- m.Lead(ctx, duty, func(ctx context.Context, h *member.Hold) error {
			now := term{ctx, h, make(chan error)}
			t <- now
			return <-now.end
		})
	}()
	return t, r
}

// TestLeadHandsOver: a leader that is to hand over is told so, can still write, and is followed once it has returned.
// It leads again when the other one leaves.
func TestLeadHandsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Leader, "coordinator")
		d.Prefer = group.Newest
		g.Add(d)
	})
	a := f.join("a", "1.9", "coordinator")
	aTerms, _ := lead(t.Context(), a, "coordinator")
	first := rig.Receive(t, aTerms, "a to lead")
	b := f.join("b", "2.0", "coordinator")
	bTerms, _ := lead(t.Context(), b, "coordinator")
	f.ended(first.ctx, member.ErrHandOver)
	if err := first.hold.Check(t.Context()); err != nil {
		t.Errorf("the duty is held until the function returns: %v", err)
	}
	first.end <- nil
	second := rig.Receive(t, bTerms, "b to lead")
	f.grows(first.hold, second.hold)
	f.must(b.Leave())
	f.ended(second.ctx, context.Canceled)
	f.grows(second.hold, rig.Receive(t, aTerms, "a to lead again").hold)
}

// TestLeaderThatFailsIsReplaced: with an error the other member leads. When that one gives the duty up too, somebody
// leads again after a pause.
func TestLeaderThatFailsIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	aTerms, _ := lead(t.Context(), a, "coordinator")
	bTerms, _ := lead(t.Context(), b, "coordinator")
	rig.Receive(t, aTerms, "a to lead").end <- errors.New("exit code 3")
	rig.Receive(t, bTerms, "b to lead").end <- nil
	// a may have it first again, and b has failed less often: which pause the assigner sees over first depends on the
	// load.
	select {
	case <-aTerms:
	case <-bTerms:
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody leads again")
	}
	failed := 0
	for _, failure := range f.memory().Failures["coordinator"] {
		failed += failure.Count
	}
	if failed != 1 {
		t.Errorf("the assigner remembers %d failures of two members that gave up, one of them failed", failed)
	}
}

// TestLeadEndsWithItsContext: what ended the context decides whether another member gets the duty at once.
func TestLeadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	other := errors.New("the process has something else to do")
	for _, cause := range []error{other, member.ErrLeaving} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
			ctx, cancel := context.WithCancelCause(t.Context())
			aTerms, result := lead(ctx, a, "coordinator")
			first := rig.Receive(t, aTerms, "a to lead")
			cancel(cause)
			f.ended(first.ctx, cause)
			first.end <- nil
			if err := rig.Receive(t, result, "Lead"); !errors.Is(err, cause) {
				t.Errorf("Lead returned %v", err)
			}
			if held := first.hold.Context().Err() == nil; held != (errors.Is(cause, member.ErrLeaving)) {
				t.Errorf("held: %t", held)
			}
			if errors.Is(cause, member.ErrLeaving) {
				f.must(a.Leave())
			}
			f.take(b, "coordinator")
		})
	}
}

// TestLeadAfterALoss: a duty whose znode somebody deleted by hand is led again.
func TestLeadAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	terms, _ := lead(t.Context(), a, "coordinator")
	first := rig.Receive(t, terms, "a to lead")
	f.must(f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1))
	f.ended(first.ctx, member.ErrNotHeld)
	first.end <- errors.New("stopped")
	f.grows(first.hold, rig.Receive(t, terms, "a to lead again").hold)
}

// TestResignAfterALoss: a leader that fails tells the assigner so, although somebody has deleted what it held by hand.
// So the duty gets a leader again.
func TestResignAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	first := f.take(a, "coordinator")
	f.must(f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1))
	f.must(first.Resign(t.Context(), true, "it fails"))
	f.takeAfter(first, a)
}

// TestResignFromAGroupThatIsGone: a leader whose group has no gate any more is no member when it tells the assigner.
func TestResignFromAGroupThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	for _, part := range []string{"gate", "duty/coordinator/held"} {
		f.must(f.s.Delete(t.Context(), f.run(part), -1))
	}
	<-h.Context().Done()
	if err := h.Resign(t.Context(), true, "it fails"); err != nil {
		t.Error(err)
	}
	f.ended(a.Context(), member.ErrRemoved)
}

// TestPartsDeletedByHand: whoever finds a part of the group gone is no member any more.
func TestPartsDeletedByHand(t *testing.T) {
	t.Parallel()
	for part, write := range map[string]func(f *fixture, h *member.Hold) error{
		"gate":     func(f *fixture, h *member.Hold) error { return h.Put(f.t.Context(), "k", nil) },
		"resigned": func(f *fixture, h *member.Hold) error { return h.Resign(f.t.Context(), true, "it fails") },
		"ask":      func(*fixture, *member.Hold) error { return nil }, // the assigner watches it
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "coordinator")
			a := f.join("a", "1.0", "coordinator")
			h := f.take(a, "coordinator")
			f.must(f.s.Delete(t.Context(), f.run(part), -1))
			if err := write(f, h); err != nil && !errors.Is(err, member.ErrRemoved) {
				t.Error(err)
			}
			f.ended(a.Context(), member.ErrRemoved)
		})
	}
}

// TestEventsOfALeader: each thing that happens is one event, also the end of the membership.
func TestEventsOfALeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	a := f.join("a", "1.0")
	told := func(m *member.Member) <-chan []string { // when they have ended
		events, done := m.Events(t.Context()), make(chan []string, 1)
		go func() {
			var all []string
			for e := range events {
				all = append(all, fmt.Sprintf("%s %s %t", e.Kind, e.Duty, e.Epoch > 0))
			}
			done <- all
		}()
		return done
	}
	events := told(a)
	_ = a.Leave()
	if got := rig.Receive(t, events, "the end of the events"); slices.Contains(got, "given coordinator false") {
		t.Errorf("a member that can do nothing has events %q", got)
	}

	b := f.join("b", "1.0", "coordinator", "other")
	events = told(b)
	h := f.take(b, "coordinator")
	f.must(h.Resign(t.Context(), true, "exit code 3"))
	h = f.take(b, "coordinator")
	f.must(f.s.Delete(t.Context(), f.run("duty/coordinator/held"), -1))
	f.ended(h.Context(), member.ErrNotHeld)
	h = f.take(b, "coordinator")
	f.change(func(g *group.Group) { g.Duties = slices.DeleteFunc(g.Duties, named("coordinator")) })
	rig.Receive(t, h.HandOver(), "a hand-over")
	f.must(h.Release(t.Context()))
	f.take(b, "other")
	f.must(b.Leave())
	var about []string
	for _, e := range rig.Receive(t, events, "the end of the events") {
		if e != "given other false" && e != "given coordinator false" && e != "assigner  false" {
			about = append(about, e)
		}
	}
	want := []string{
		"taken coordinator true", "resigned coordinator true", "taken coordinator true", "lost coordinator true",
		"taken coordinator true", "hand-over coordinator true", "released coordinator true",
		"taken other true", "released other true", "assigner-ended  false",
	}
	if !slices.Equal(about, want) {
		t.Errorf("events %q, want %q", about, want)
	}
}

// named finds a duty.
func named(name string) func(group.Duty) bool {
	return func(d group.Duty) bool { return d.Name == name }
}

func TestReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m := f.joinIn(dial(t), c)
	for range 2 {
		f.must(m.Ready(t.Context()))
	}
	f.take(m, "coordinator")
}

// TestReadyWritesNoOtherMember: a frozen member's live znode is deleted by hand, and another process has its identity.
func TestReadyWritesNoOtherMember(t *testing.T) {
	t.Parallel()
	f, p := newFixture(t, "coordinator"), newProxy(t)
	c := f.config("a", "1.0", "coordinator")
	c.NotReady = true
	m := f.joinIn(dial(t, p.Addr()), c)
	live := znode.Live(f.group.Root, f.group.Name, "a")
	f.until("it to know its seat", func() bool { return len(f.seats()) == 1 })
	p.Hang(true)
	asked := func() int { return p.Requests()[fault.OpGetData] + p.Requests()[fault.OpSetData] }
	before, ready := asked(), make(chan error, 1)
	go func() { ready <- m.Ready(t.Context()) }()
	f.until("its request", func() bool { return asked() > before })
	f.must(f.s.Delete(t.Context(), live, -1))
	if _, err := f.s.Create(t.Context(), live, []byte("another process"), zkconn.Ephemeral, f.acl()); err != nil {
		t.Fatal(err)
	}
	p.Hang(false)
	if err := rig.Receive(t, ready, "Ready"); err == nil {
		t.Error("it is ready")
	}
	if body, _, err := f.s.Get(t.Context(), live); err != nil || string(body) != "another process" {
		t.Errorf("the other process's znode is %q, %v", body, err)
	}
}

// TestFollowersSeeEachLeader: who holds a duty, with the epoch that its holder has, and nobody in between.
func TestFollowersSeeEachLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var members []*member.Member
	var holds []*member.Hold
	var seen []member.Leader
	for l, err := range member.Follow(ctx, dial(t), f.group.Root, f.group.Name, "coordinator") {
		f.must(err)
		seen = append(seen, l)
		if len(seen) == 5 {
			break
		}
		switch {
		case l == member.Leader{} && len(holds) < 2:
			m := f.join([]string{"a", "b"}[len(holds)], "1.2.0", "coordinator")
			members, holds = append(members, m), append(holds, f.take(m, "coordinator"))
		case l != member.Leader{}:
			h := holds[len(holds)-1]
			if l.Epoch != h.Epoch || l.Address != "127.0.0.1:7000" || l.Version != "1.2.0" || l.Since.IsZero() {
				t.Errorf("leader %+v of a hold with epoch %d", l, h.Epoch)
			}
			f.must(members[len(members)-1].Leave())
		}
	}
	var who []string
	for _, l := range seen {
		who = append(who, l.Identity)
	}
	t.Logf("leaders: %q", who)
	if !slices.Equal(who, []string{"", "a", "", "b", ""}) {
		t.Errorf("leaders: %q, want nobody before, between and after a and b", who)
	}
}

// TestFollowerKeepsItsWatchOfTheRecord: a watch cannot be removed, so a new one for each change of leader would be kept
// for ever.
func TestFollowerKeepsItsWatchOfTheRecord(t *testing.T) {
	t.Parallel()
	f, proxy := newFixture(t, "coordinator"), newProxy(t)
	record := []byte(znode.Record(group.KindName, f.group.Root, f.group.Name) + "\x01") // with a watch
	var watched atomic.Int32
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == fault.OpGetData && bytes.HasSuffix(req, record) {
			watched.Add(1)
		}
		return false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := f.join("a", "1.2.0", "coordinator")
	var hold *member.Hold
	changes := 0
	for l, err := range member.Follow(ctx, dial(t, proxy.Addr()), f.group.Root, f.group.Name, "coordinator") {
		f.must(err)
		if changes++; changes > 8 {
			break
		}
		if l == (member.Leader{}) {
			hold = f.take(m, "coordinator")
		} else if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := watched.Load(); n != 1 {
		t.Errorf("%d watches of the Record, which has not changed", n)
	}
}

func TestFollowOfNoGroup(t *testing.T) {
	t.Parallel()
	for _, err := range member.Follow(t.Context(), dial(t), "/nowhere", "g", "d") {
		if !errors.Is(err, member.ErrNoGroup) {
			t.Errorf("error = %v", err)
		}
	}
}
