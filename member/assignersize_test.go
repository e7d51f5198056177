package member_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"muster/group"
	"muster/member"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	receive(t, h.HandOver(), "the hand-over")
	if err := h.Check(t.Context()); err != nil {
		t.Errorf("the holder still has it: %v", err)
	}
	if n := len(f.children("duty/coordinator/tree-2")); n != 300 {
		t.Errorf("%d of 300 znodes are left while it is held", n)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
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

// TestRosterOfManySeats: 600 seats gain a duty at once, and lose it at once, in transactions that ZooKeeper accepts.
func TestRosterOfManySeats(t *testing.T) {
	t.Parallel()
	const many = 600
	f := newFixture(t)
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("duty-%04d", i)
	}
	f.change(func(g *group.Group) {
		for _, name := range names {
			g.Add(group.NewDuty(group.Leader, name))
		}
	})
	f.join("assigner", "1.0")
	f.seatsByHand(many)
	given := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, duties := range f.seats() {
				n += len(duties)
			}
			return n == want
		}
	}
	f.until("all seats to have a duty", given(many))
	for identity, duties := range f.seats() {
		want := []string{"duty-" + strings.TrimPrefix(identity, "m-")}
		if identity != "assigner" && !slices.Equal(duties, want) {
			t.Fatalf("%s has %q", identity, duties)
		}
	}
	f.change(func(g *group.Group) { g.Duties = nil })
	f.until("all seats to be empty", given(0))
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
	proxy, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	var members []*member.Member
	for i := 2; i < many; i++ {
		m, err := member.Join(t.Context(), dial(t, proxy.Addr()), f.config(fmt.Sprintf("m-%02d", i), "1.0", names[i]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Leave() })
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
		most := 2
		switch {
		case strings.HasPrefix(path, f.run("seat/")):
			most = 3
		case path == record:
			most = many
		case strings.HasSuffix(path, "/held"):
			most = 1
		}
		if n > most {
			t.Errorf("%d sessions watch %s, want at most %d", n, path, most)
		}
	}
	if err := members[20].Leave(); err != nil {
		t.Fatal(err)
	}
	want := len(members) + 2
	f.until("the next two to look for their assigner", func() bool {
		return proxy.Requests()[zkserver.OpGetChildren2] >= want
	})
	f.take(f.join("again", "1.0", names[22]), names[22])
	if n := proxy.Requests()[zkserver.OpGetChildren2]; n != want {
		t.Errorf("members read folders %d times; want each once, and two once more after one had left: %d", n, want)
	}
}

// watches counts the sessions that watch a znode, for all of the group's znodes.
func (f *fixture) watches() map[string]int {
	f.t.Helper()
	conn, err := net.Dial("tcp", servers.Server(0).Addr())
	if err != nil {
		f.t.Fatal(err)
	}
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
