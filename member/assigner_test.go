package member_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/dev/fault"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// until waits until done reports true.
func (f *fixture) until(what string, done func() bool) { rig.Await(f.t, what, done) }

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
		f.must(err)
		seat, err := znode.Decode[znode.Seat](body)
		f.must(err)
		all[seat.Identity] = seat.Duties
		for _, d := range seat.Duties {
			if first, ok := had[d]; ok { // was it still in the first one when the second was read?
				now, _, err := f.s.Exists(f.t.Context(), first.path)
				f.must(err)
				if now.Version == first.version {
					f.t.Errorf("%s is in %s and %s", d, first.path, at)
				}
			}
			had[d] = read{at, stat.Version}
		}
	}
	return all
}

// given is how many duties the seats name.
func (f *fixture) given() (n int) {
	f.t.Helper()
	for _, duties := range f.seats() {
		n += len(duties)
	}
	return n
}

// create makes a persistent znode in the group's generation.
func (f *fixture) create(below, body string, mode zkconn.Mode) string {
	f.t.Helper()
	path, err := f.s.Create(f.t.Context(), f.run(below), []byte(body), mode, f.acl())
	f.must(err)
	return path
}

// acl is what members give their znodes.
func (f *fixture) acl() []zkconn.ACL {
	f.t.Helper()
	acl, err := zkstate.ParseACL(f.look().Record.ACL)
	f.must(err)
	return acl
}

// TestAssignerKnowsTheMethodOfTheRecord: when the Record wants a newer method, the first seat that knows it is the
// assigner, and one that does not know it is never.
func TestAssignerKnowsTheMethodOfTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "first", "second")
	join := func(identity string, knows int, can ...string) (*member.Member, <-chan member.Event) {
		m, err := member.JoinKnowing(t.Context(), dial(t), f.config(identity, "1.0", can...), knows)
		f.must(err)
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
	if e := rig.Receive(t, bEvents, "b to be the assigner"); e.Kind != member.EventAssigner {
		// it may have told before that it is not
		if e = rig.Receive(t, bEvents, "b to be the assigner"); e.Kind != member.EventAssigner {
			t.Errorf("event %+v", e)
		}
	}
	f.change(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "third")) })
	c, _ := join("c", 1, "third")
	f.take(c, "third") // b, the second seat, decides

	f.must(b.Leave())
	d, dEvents := join("d", 2, "second")
	if e := rig.Receive(t, dEvents, "d to be the assigner"); e.Kind != member.EventAssigner {
		t.Errorf("event %+v", e)
	}
	f.take(d, "second") // d is the assigner, although a and c are before it
}

// raiseAssign writes into the Record that assigners assign by method n.
func (f *fixture) raiseAssign(n int) {
	f.t.Helper()
	at := znode.Record(group.KindName, f.group.Root, f.group.Name)
	body, stat, err := f.s.Get(f.t.Context(), at)
	f.must(err)
	rec, err := znode.DecodeRecordAt(group.Kind(), f.group.Path(), body)
	f.must(err)
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
	rig.Receive(t, h.HandOver(), "the hand-over")
	f.must(h.Release(t.Context()))
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
	f.must(err)
	f.create("ask/a-", string(body), zkconn.PersistentSequential)
}

// memory is what the assigner has written.
func (f *fixture) memory() znode.AssignerMemory {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), f.run("assigner"))
	f.must(err)
	memory, err := znode.DecodeOrZero[znode.AssignerMemory](body)
	f.must(err)
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
	f.must(members["c"].Leave())
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
	f.must(err)
	if _, err := f.s.Set(t.Context(), at, []byte("spoiled"), -1); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
	f.must(a.Leave())
	if _, err := f.s.Set(t.Context(), at, body, -1); err != nil {
		t.Fatal(err)
	}
	f.take(b, "coordinator")
}

// TestVacantAfterAnOutage: all members were lost and have come back, so all are young. Their duties are given at once.
func TestVacantAfterAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "first", "second")
	var sessions []*zkconn.Session
	come := func() (a, b *member.Member) {
		var ms []*member.Member
		for _, id := range []string{"a", "b"} {
			s := dial(t)
			m := f.joinIn(s, f.config(id, "1.0", "first", "second"))
			ms, sessions = append(ms, m), append(sessions, s)
		}
		return ms[0], ms[1]
	}
	a, b := come()
	f.take(a, "first")
	f.until("both to be members", func() bool { return f.memory().Size == 2 })
	f.change(func(g *group.Group) { g.Settle = resource.Duration(time.Hour) })
	f.until("both to read that", func() bool {
		return time.Duration(a.Group().Settle) == time.Hour && time.Duration(b.Group().Settle) == time.Hour
	})
	for _, s := range sessions {
		s.Close()
	}
	a, _ = come()
	f.take(a, "first")
}

// TestTreesOfFormerDuties: what is left of a duty that is no longer declared is deleted in batches, after its holder
// has let it go. If it is declared again meanwhile, its next holder finds nothing of it.
func TestTreesOfFormerDuties(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "stays")
	a := f.join("a", "1.0", "coordinator", "stays")
	h := f.take(a, "coordinator")
	f.take(a, "stays")
	run, acl := f.run("duty/coordinator"), f.acl()
	for i := range 3 {
		dir := fmt.Sprintf("%s/tree-%d", run, i)
		ops := []zkconn.Op{zkconn.CreateOp(dir, nil, zkconn.Persistent, acl)}
		for n := range 300 {
			ops = append(ops, zkconn.CreateOp(fmt.Sprintf("%s/%d", dir, n), nil, zkconn.Persistent, acl))
		}
		if _, err := f.s.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	without := func(g *group.Group) { g.Duties = slices.DeleteFunc(g.Duties, named("coordinator")) }
	f.change(without)
	rig.Receive(t, h.HandOver(), "the hand-over")
	if err := h.Check(t.Context()); err != nil {
		t.Errorf("the holder still has it: %v", err)
	}
	if n := len(f.children("duty/coordinator/tree-2")); n != 300 {
		t.Errorf("%d of 300 znodes are left while it is held", n)
	}
	f.must(h.Release(t.Context()))
	f.change(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "coordinator")) })
	f.change(without)
	f.until("the tree to be deleted", func() bool { return !slices.Contains(f.children("duty"), "coordinator") })
	f.until("the assigner to be done", func() bool { return len(f.memory().Purge) == 0 })
	f.change(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "coordinator")) })
	f.take(a, "coordinator")
	if names := f.children("duty/coordinator"); !slices.Equal(names, []string{"held"}) {
		t.Errorf("the new holder finds %q", names)
	}
	if got := f.children("duty/stays"); !slices.Equal(got, []string{"held"}) {
		t.Errorf("the other duty has %q", got)
	}
}

// TestThousandsOfTrees: so many duties are no longer declared that the assigner's memory cannot hold their names.
func TestThousandsOfTrees(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	acl := f.acl()
	var ops []zkconn.Op
	for n := range 1100 {
		at := f.run(fmt.Sprintf("duty/%s-%04d", strings.Repeat("x", 59), n))
		ops = append(ops, zkconn.CreateOp(at, nil, zkconn.Persistent, acl))
	}
	if _, err := f.s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	f.change(func(g *group.Group) { g.Settle *= 2 }) // the assigner looks
	f.until("the trees to be deleted", func() bool { return len(f.children("duty")) == 1 })
	f.until("the assigner to be done", func() bool { return len(f.memory().Purge) == 0 })
}

// TestNoHerd: only the assigner and the next one read folders again. Each seat is watched by its member and the next
// two.
func TestNoHerd(t *testing.T) {
	t.Parallel()
	const many = 40
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("duty-%02d", i))
	}
	f := newFixture(t, names...)
	for i := range 2 { // the assigner, and the next one, which reads what the assigner has to decide upon
		f.take(f.join(fmt.Sprintf("m-%02d", i), "1.0", names[i]), names[i])
	}
	proxy := newProxy(t)
	var members []*member.Member
	for i := 2; i < many; i++ {
		m := f.joinIn(dial(t, proxy.Addr()), f.config(fmt.Sprintf("m-%02d", i), "1.0", names[i]))
		f.take(m, names[i])
		members = append(members, m)
	}
	const before = 2*many - 3 // the second watches the seat before, and all after it two seats
	var watches map[string]int
	f.until("each member to watch the seats before it", func() bool {
		watches = f.watches()
		n := 0
		for i := range many {
			n += watches[f.run(fmt.Sprintf("seat/s-%010d", i))]
		}
		return n >= many+before
	})
	record := znode.Record(group.KindName, f.group.Root, f.group.Name)
	for path, n := range watches {
		most := 2 // the assigner, and the next one while something is undecided
		switch {
		case strings.HasPrefix(path, f.run("seat/")):
			most = 3
		case path == record:
			most = many
		}
		if n > most {
			t.Errorf("%d sessions watch %s, want at most %d", n, path, most)
		}
	}
	f.must(members[20].Leave())
	want := 2*len(members) + 2
	f.until("the next two to look for their assigner", func() bool {
		return proxy.Requests()[fault.OpGetChildren2] >= want
	})
	f.take(f.join("again", "1.0", names[22]), names[22])
	if n := proxy.Requests()[fault.OpGetChildren2]; n != want {
		t.Errorf("members read folders %d times; want each twice, and two once more after one had left: %d", n, want)
	}
}

// watches counts the sessions that watch a znode, for all of the group's znodes.
func (f *fixture) watches() map[string]int {
	f.t.Helper()
	conn, err := net.Dial("tcp", servers.Server(0).Addr())
	f.must(err)
	defer conn.Close()
	if _, err := io.WriteString(conn, "wchp"); err != nil {
		f.t.Fatal(err)
	}
	all, path := map[string]int{}, ""
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "/"):
			path = line
		case line != "" && strings.HasPrefix(path, f.group.Root+"/"):
			all[path]++
		}
	}
	return all
}

// BenchmarkThousandDuties gives 1,000 duties to 100 members, all in this process. It measures the time from the end of
// settle until the assigner has written all seats, and until all duties are held; then the leader of some is killed.
// moved-ratio is how many duties changed their seat over those that the dead member had: 1 is the least.
func BenchmarkThousandDuties(b *testing.B) {
	const members, duties, settle = 100, 1000, 10 * time.Second
	for range b.N {
		var names []string
		for i := range duties {
			names = append(names, fmt.Sprintf("duty-%04d", i))
		}
		f := newFixture(b)
		f.change(func(g *group.Group) {
			g.Settle = resource.Duration(settle) // so that all have joined before anything is given
			for _, name := range names {
				d := group.NewDuty(group.Cron, name)
				d.Schedule = "@daily"
				g.Add(d)
			}
		})
		all := make([]*member.Member, members)
		first := time.Now()
		var joining errgroup.Group
		joining.SetLimit(10)
		for i := range all {
			s := dial(b)
			joining.Go(func() (err error) {
				all[i], err = member.Join(b.Context(), s, f.config(fmt.Sprintf("m-%03d", i), "1.0", names...))
				return err
			})
		}
		f.must(joining.Wait())
		joined := time.Since(first)
		b.ReportMetric(joined.Seconds(), "join-s")
		for _, m := range all {
			b.Cleanup(func() { m.Leave() })
			for _, name := range names {
				go func() {
					for {
						if _, err := m.Take(b.Context(), name); err != nil {
							return
						}
					}
				}()
			}
		}
		f.until("the roster to begin", func() bool { return f.given() > 0 })
		begun := time.Now()
		f.until("all to be given", func() bool { return f.given() == duties })
		b.ReportMetric(time.Since(begun).Seconds(), "given-s")
		f.until("all to be held", func() bool { return group.Held(f.look()) == duties })
		b.ReportMetric(time.Since(begun).Seconds(), "held-s")

		before := f.seats()
		dead := all[members/2]
		f.must(dead.Leave())
		f.until("all to be given again", func() bool { return f.given() == duties })
		moved := 0
		for identity, has := range f.seats() {
			had := map[string]bool{}
			for _, d := range before[identity] {
				had[d] = true
			}
			for _, d := range has {
				if !had[d] {
					moved++
				}
			}
		}
		b.ReportMetric(float64(moved)/float64(len(before[dead.Identity])), "moved-ratio")
	}
}
