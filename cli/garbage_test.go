package cli_test

import (
	"fmt"
	"path"
	"testing"

	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// session is one beside those of the members.
func (g groupTest) session() *zkconn.Session {
	g.t.Helper()
	return rig.Dial(g.t, 0, servers.Addrs()...)
}

// runOf is the folder of the generation of the group.
func (g groupTest) runOf(s *zkconn.Session) string {
	g.t.Helper()
	all, _, err := s.Children(g.t.Context(), g.root+"/.muster/run")
	if err != nil || len(all) != 1 {
		g.t.Fatalf("%v %v", all, err)
	}
	return g.root + "/.muster/run/" + all[0]
}

// TestAWrittenGateStopsNobody: a participant may set the gate, which muster never does. That it is there is what
// counts.
func TestAWrittenGateStopsNobody(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	s := g.session()
	a := g.join("a", "1.9", "main", "nightly")
	g.until("main     a", "status", "shop")
	if _, err := s.Set(t.Context(), g.runOf(s)+"/gate", []byte("garbage"), -1); err != nil {
		t.Fatal(err)
	}
	b := g.join("b", "1.9", "main")
	g.expect(0, "b", "handover", "shop/main", "--to", "b", "--timeout", "1m")
	g.expect(0, "shop/main: paused", "pause", "shop/main", "--timeout", "1m")
	g.expect(0, "shop/main: resumed", "resume", "shop/main", "--timeout", "1m")
	g.expect(0, "shop/nightly: paused", "pause", "shop/nightly", "--timeout", "1m")
	g.expect(4, "the run is written down, but the duty is paused", "run", "shop/nightly", "--timeout", "1m")
	g.write(t, 0, fmt.Sprintf("group \"shop\" {\n  root = %q\n  leader \"main\" {}\n}\n", g.root))
	g.expect(0, "1 updated", "apply", "--yes")
	a.Leave()
	b.Leave()
	g.expect(0, "is stopped", "terminate", "shop", "--yes")
}

// TestAZnodeInTheWayIsNotWaitedFor: a participant has created the znode whose number the next request gets. The command
// ends, and says so.
func TestAZnodeInTheWayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	g := newGroupTest(t)
	s := g.session()
	g.join("a", "1.9", "main", "nightly").Leave() // which made the folders
	run := g.runOf(s)
	inTheWay := func(dir, prefix string) {
		t.Helper()
		stat, _, err := s.Exists(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		at := path.Join(dir, fmt.Sprintf("%s%010d", prefix, stat.Cversion+1))
		acl := zkconn.World(zkconn.PermAll)
		if _, err := s.Create(t.Context(), at, []byte("garbage"), zkconn.Persistent, acl); err != nil {
			t.Fatal(err)
		}
	}
	inTheWay(run+"/ask", "a-")
	for _, command := range []string{"handover", "pause", "resume"} {
		g.expect(4, "znode exists already", command, "shop/main", "--timeout", "1h")
	}
	g.expect(4, "the time is up", "handover", "shop/main", "--timeout", "1ms")
	g.expect(4, "no member of the group is live", "run", "shop/nightly", "--timeout", "1h")
	inTheWay(run+"/duty/nightly/now", "n-")
	g.expect(4, "znode exists already", "run", "shop/nightly", "--timeout", "1h")
}

// TestWhatMayNotBeReadHidesNothingElse: a worker of j0 makes a znode beside the live workers, which nobody else may
// read. The table shows j0 as unreadable, and the other job as it is.
func TestWhatMayNotBeReadHidesNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "")
	expect(t, result(f.command(servers.Connect(), "apply", "--yes")), 0)
	mallory := zkconn.Auth{Scheme: "digest", Data: []byte("mallory:secret")}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Auth: []zkconn.Auth{mallory}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	only, err := zkstate.ParseACL([]string{"auth::cdrwa"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), f.root+"/j0/hidden", nil, zkconn.Persistent, only); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--json=false", "--json"} {
		expect(t, result(f.command(servers.Connect(), "status", flag)), 3, "unreadable", f.root+"/j1")
	}
}
