package zkstate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/view"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// groupFixture is a group that settles at once, in a root of its own.
type groupFixture struct {
	*fixture
	group group.Group
	store *zkstate.Store
}

func newGroup(t *testing.T, leaders ...string) *groupFixture {
	t.Helper()
	f := &groupFixture{fixture: newFixture(t), group: group.Default()}
	f.group.Root, f.group.Name, f.group.Settle = f.root, "shop", resource.Duration(time.Millisecond)
	for _, name := range leaders {
		f.group.Add(group.NewDuty(group.Leader, name))
	}
	f.store = rig.Store(t, f.session, f.root, zkstate.Group())
	rig.Create(t, f.store, f.group)
	return f
}

func (f *groupFixture) join(identity, version string, can ...string) *member.Member {
	f.t.Helper()
	m, err := member.Join(f.t.Context(), f.dial(), member.Config{
		Root: f.root, Group: "shop", Identity: identity, Version: version, Can: can, Address: identity + ":7000",
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Leave() })
	return m
}

func (f *groupFixture) state() *view.Group {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), f.group.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.store.GroupState(f.t.Context(), o, time.Now())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// until reads the state until a condition holds.
func (f *groupFixture) until(what string, ok func(*view.Group) bool) *view.Group {
	f.t.Helper()
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		if s := f.state(); ok(s) {
			return s
		}
	}
	f.t.Fatalf("never: %s; the last state is %+v", what, f.state())
	return nil
}

func (f *groupFixture) ask(a znode.Ask) {
	f.t.Helper()
	if _, err := member.SendAsk(f.t.Context(), f.session, f.root, "shop", a); err != nil {
		f.t.Fatal(err)
	}
}

// TestGroupStateOfAGroupThatNobodyJoined has its duties and the requests that wait.
func TestGroupStateOfAGroupThatNobodyJoined(t *testing.T) {
	t.Parallel()
	f := newGroup(t, "a", "b")
	if s := f.state(); len(s.Members) != 0 || len(s.Duties) != 2 || s.Assigner != "" || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "a", By: "ops@host"})
	s := f.state()
	if s.Waiting != 1 || len(s.Requests) != 1 || s.Requests[0].Duty != "a" || s.Requests[0].By != "ops@host" ||
		time.Since(s.Requests[0].Since).Abs() > time.Hour {
		t.Errorf("%+v", s)
	}
}

// TestGroupStateTellsWhoHasWhat and why: two members, a duty that is held, one that nobody can do, one that is paused,
// and one that was given up.
func TestGroupStateTellsWhoHasWhat(t *testing.T) {
	t.Parallel()
	f := newGroup(t, "held", "impossible", "stopped", "pinned", "given-up")
	a := f.join("a", "1.0", "held", "stopped", "given-up")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := a.Take(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	up, err := a.Take(ctx, "given-up")
	if err == nil {
		err = up.Resign(ctx, true, "exit code 3")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.join("b", "2.0", "pinned")
	f.ask(znode.Ask{Do: znode.AskPause, Duty: "stopped", By: "ops@host"})
	f.ask(znode.Ask{Do: znode.AskHandover, Duty: "pinned", To: "b", By: "ops@host"})
	s := f.until("all is decided", func(s *view.Group) bool {
		return s.Waiting == 0 && len(s.Duties[0].Failures) == 1 && s.Duties[4].PausedBy != "" && s.Duties[3].Pinned != ""
	})
	if len(s.Members) != 2 || s.Assigner != "a" || s.Members[1].Identity != "b" || s.Members[1].Version != "2.0" ||
		s.Members[1].Address != "b:7000" || !s.Members[1].Ready || s.Members[1].Seat != "s-0000000001" ||
		!cmp.Equal(s.Members[1].Duties, []string{"pinned"}) || !cmp.Equal(s.Members[1].Can, []string{"pinned"}) ||
		time.Since(s.Members[1].Since).Abs() > time.Hour {
		t.Errorf("members: %+v", s.Members)
	}
	var names []string
	for _, d := range s.Duties {
		names = append(names, d.Name)
	}
	if d := cmp.Diff([]string{"given-up", "held", "impossible", "pinned", "stopped"}, names); d != "" {
		t.Fatal(d)
	}
	given, held, impossible, pinned, stopped := s.Duties[0], s.Duties[1], s.Duties[2], s.Duties[3], s.Duties[4]
	if held.Holder != "a" || held.Epoch != h.Epoch || held.Given != "a" || held.Why == "" {
		t.Errorf("held: %+v", held)
	}
	if impossible.Holder != "" || impossible.Given != "" || !strings.Contains(impossible.Why, "no member can do it") {
		t.Errorf("impossible: %+v", impossible)
	}
	if stopped.PausedBy != "ops@host" || stopped.Given != "" {
		t.Errorf("stopped: %+v", stopped)
	}
	if pinned.Pinned != "b" || pinned.Given != "b" || pinned.Holder != "" { // b does not take it
		t.Errorf("pinned: %+v", pinned)
	}
	if fs := given.Failures; len(fs) != 1 || fs[0].Identity != "a" || fs[0].Count != 1 || fs[0].Because != "exit code 3" {
		t.Errorf("given up: %+v", given)
	}
}

// TestGroupStateTellsWhoIsTheAssigner: the first member that knows the method of assignment which the Record wants.
func TestGroupStateTellsWhoIsTheAssigner(t *testing.T) {
	t.Parallel()
	f := newGroup(t, "main")
	f.join("old", "1.0")
	f.join("new", "2.0")
	o, err := f.store.Look(t.Context(), f.group.Path())
	if err != nil {
		t.Fatal(err)
	}
	at := znode.SeatAt(f.root, o.Record.Generation, "s-0000000001")
	body, stat, err := f.session.Get(t.Context(), at)
	if err == nil {
		var seat znode.Seat
		if seat, err = znode.Decode[znode.Seat](body); err == nil {
			seat.Assign = 2
			body, err = znode.Encode(seat)
		}
	}
	if err == nil {
		_, err = f.session.Set(t.Context(), at, body, stat.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]string{"1": "old", "2": "new", "3": ""} {
		o.Record.Extra = map[string]json.RawMessage{"assign": json.RawMessage(method)}
		if s, err := f.store.GroupState(t.Context(), o, time.Now()); err != nil || s.Assigner != want {
			t.Errorf("method %s: the assigner is %q, %v; want %q", method, s.Assigner, err, want)
		}
	}
}

// TestGroupStateOfBrokenZnodes: what cannot be read is named, and the rest is shown.
func TestGroupStateOfBrokenZnodes(t *testing.T) {
	t.Parallel()
	f := newGroup(t, "main")
	f.join("a", "1.0")
	o, err := f.store.Look(t.Context(), f.group.Path())
	if err != nil {
		t.Fatal(err)
	}
	generation := o.Record.Generation
	for _, path := range []string{
		znode.SeatAt(f.root, generation, "s-0000000007"), znode.SeatAt(f.root, generation, "odd"),
		znode.Live(f.root, "shop", "ghost"), znode.NewAsk(f.root, generation), znode.Duty(f.root, generation, "main"),
		znode.Held(f.root, generation, "main"),
	} {
		mode := zkconn.Persistent
		if strings.HasSuffix(path, "ghost") {
			mode = zkconn.Ephemeral
		}
		if _, err := f.session.Create(t.Context(), path, []byte("{"), mode, zkconn.World(zkconn.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	s := f.state()
	if len(s.Members) != 1 || len(s.Unread) != 2 || s.Duties[0].Holder != "?" || s.Duties[0].Epoch != 0 {
		t.Errorf("%+v", s)
	}
}

// TestGroupStateOfALargeGroup: 1,000 duties and as many members are read in parallel.
func TestGroupStateOfALargeGroup(t *testing.T) {
	t.Parallel()
	const n = 1000
	var leaders []string
	for i := range n {
		leaders = append(leaders, fmt.Sprintf("duty-%03d", i))
	}
	f := newGroup(t, leaders...)
	a := f.join("a", "1.0")
	for i := 0; i < n; i += 100 {
		var ops []zkconn.Op
		for j := i; j < i+100; j++ {
			id := fmt.Sprintf("m%03d", j)
			live, err := znode.Encode(znode.Present{Nonce: id, Version: "1.0"})
			if err != nil {
				t.Fatal(err)
			}
			seat, err := znode.Encode(znode.Seat{Identity: id, Nonce: id, Assign: 1})
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops,
				zkconn.CreateOp(znode.Live(f.root, "shop", id), live, zkconn.Ephemeral, zkconn.World(zkconn.PermAll)),
				zkconn.CreateOp(znode.NewSeat(f.root, a.Generation), seat, zkconn.EphemeralSequential,
					zkconn.World(zkconn.PermAll)))
		}
		if _, err := f.session.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	s := f.state()
	t.Logf("%d members and %d duties in %s", len(s.Members), len(s.Duties), time.Since(start))
	if len(s.Members) != n+1 || len(s.Duties) != n || s.Members[0].Identity != "a" || s.Members[n].Identity != "m999" {
		t.Errorf("%d members, %d duties", len(s.Members), len(s.Duties))
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestTheReasonOfAVacancyIsFresh: the assigner writes it again when it has changed, though nothing moves.
func TestTheReasonOfAVacancyIsFresh(t *testing.T) {
	t.Parallel()
	f := newGroup(t, "impossible")
	for i, id := range []string{"a", "b", "c"} {
		f.join(id, "1.0")
		want := fmt.Sprintf("no member can do it (not listed: %d)", i+1)
		f.until(want, func(s *view.Group) bool { return s.Duties[0].Why == want })
	}
}

// rounds are the barriers under way in a job, without their times, which have to be near the present.
func (f *fixture) rounds(j job.Job) []view.Barrier {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), j.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	rounds, err := f.store.Rounds(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rounds {
		if time.Since(r.Since).Abs() > time.Hour {
			f.t.Errorf("%s: since %s", r.Name, r.Since)
		}
	}
	return rounds
}

func (f *fixture) untilRounds(j job.Job, want ...view.Barrier) {
	f.t.Helper()
	var d string
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		d = cmp.Diff(want, f.rounds(j), cmpopts.IgnoreFields(view.Barrier{}, "Since"), cmpopts.EquateEmpty())
		if d == "" {
			return
		}
	}
	f.t.Fatalf("rounds under way (-want +got):\n%s", d)
}

// TestRoundsTellWhoIsMissing at durable and live rounds and the start barrier, and name no round that nobody waits at.
func TestRoundsTellWhoIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("etl", 3)
	f.apply(j)
	f.untilRounds(j)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ms []*worker.Member
	for i := range 3 {
		m, _ := f.join(j, fmt.Sprint("w-", i))
		ms = append(ms, m)
	}
	f.untilRounds(j)
	start := func(b worker.Barrier, who ...int) (calls []chan error) {
		for _, i := range who {
			done := make(chan error, 1)
			calls = append(calls, done)
			go func() { done <- ms[i].Barrier(ctx, b) }()
		}
		return calls
	}
	first := start(worker.Barrier{Name: "load"}, 0, 2)
	start(worker.Barrier{Name: "live", Live: true}, 1)
	load := view.Barrier{
		Name: "load", Attempt: 1, Mode: string(znode.Durable), Workers: 3, Arrived: []int{0, 2}, Missing: []int{1},
	}
	live := view.Barrier{
		Name: "live", Attempt: 1, Mode: string(znode.LiveRound), Workers: 3, Arrived: []int{1}, Missing: []int{0, 2},
	}
	f.untilRounds(j, live, load)

	for _, done := range append(first, start(worker.Barrier{Name: "load"}, 1)...) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
	early := start(worker.Barrier{Name: "load", Timeout: time.Millisecond}, 1)
	if err := <-early[0]; !errors.As(err, new(*worker.AbortedError)) {
		t.Fatal(err)
	}
	f.untilRounds(j, live)

	again := worker.Barrier{Name: "again", Retry: true, Timeout: time.Millisecond}
	for range 2 {
		if err := <-start(again, 2)[0]; !errors.As(err, new(*worker.AbortedError)) {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
	again.Timeout = 0
	third := start(again, 0)
	f.untilRounds(j, view.Barrier{
		Name: "again", Attempt: 3, Mode: string(znode.DurableRetry), Workers: 3, Arrived: []int{0}, Missing: []int{1, 2},
	}, live)
	for _, done := range append(third, start(again, 1, 2)...) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
}

// TestRoundOfWhichNobodyIsCountedYet: an arrival may be gone when its time is read, as that of a live round whose
// worker has just left. The round is then as old as its state. What is no arrival of a worker counts as none.
func TestRoundOfWhichNobodyIsCountedYet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("etl", 2)
	f.apply(j)
	m, _ := f.join(j, "w-0")
	round := func(name, arrival string) {
		dir := znode.Attempt(j.Root, m.Generation, name, 0, 1)
		st, err := znode.Encode(znode.Round{Workers: 2, Mode: znode.Durable})
		if err != nil {
			t.Fatal(err)
		}
		f.write(znode.BarrierFloor(j.Root, m.Generation, name), znode.EncodeFloor(0), zkconn.Persistent)
		f.write(dir, nil, zkconn.Persistent)
		f.write(znode.RoundState(dir), st, zkconn.Persistent)
		f.write(znode.Count(dir), nil, zkconn.Persistent)
		f.write(znode.Arrivals(dir), nil, zkconn.Persistent)
		f.write(znode.Arrivals(dir)+"/"+arrival, nil, zkconn.Persistent)
	}
	round("load", "1")
	round("strange", "::x")
	f.untilRounds(j, view.Barrier{
		Name: "load", Attempt: 1, Mode: string(znode.Durable), Workers: 2, Arrived: []int{1}, Missing: []int{0},
	})
}
