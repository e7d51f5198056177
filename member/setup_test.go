package member_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// servers is the one ensemble of this test binary; every test has a root of its own.
var servers *zkserver.Ensemble

func TestMain(m *testing.M) {
	if args := os.Getenv(childLeader); args != "" {
		if err := runLeader(context.Background(), strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if servers, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := servers.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func dial(t testing.TB, addrs ...string) *zkconn.Session {
	t.Helper()
	if len(addrs) == 0 {
		addrs = servers.Addrs()
	}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: addrs, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fixture is a group in a root of its own.
type fixture struct {
	t     testing.TB
	group group.Group
	store *zkstate.Store
	s     *zkconn.Session // an observer's

	found string // the generation, once it was read
}

// newFixture creates a group with these leaders, which settles at once.
func newFixture(t testing.TB, leaders ...string) *fixture {
	t.Helper()
	return newFixtureAt(t, servers.Addrs(), leaders...)
}

func newFixtureAt(t testing.TB, addrs []string, leaders ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, group: group.Default(), s: dial(t, addrs...)}
	f.group.Root, f.group.Name, f.group.Settle = "/test-"+zkstate.NewID(), "shop", resource.Duration(time.Millisecond)
	for _, name := range leaders {
		f.group.Add(group.NewDuty(group.Leader, name))
	}
	var err error
	f.store, err = zkstate.NewStore(f.s, zkstate.Config{
		Home: f.group.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{zkstate.Group()},
	})
	if err == nil {
		err = f.store.Commit(t.Context(), plan.Row{Path: f.group.Path(), New: f.group, Reason: plan.NotThere})
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// change applies the group as it is now.
func (f *fixture) change(edit func(*group.Group)) {
	f.t.Helper()
	old := f.look()
	edit(&f.group)
	row := plan.Row{Path: f.group.Path(), Old: old, New: f.group, Reason: plan.MutableDiffers}
	if err := f.store.Commit(f.t.Context(), row); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) look() *resource.Observed {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), f.group.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func (f *fixture) config(identity, version string, can ...string) member.Config {
	return member.Config{
		Root: f.group.Root, Group: f.group.Name, Identity: identity, Version: version, Can: can,
		Address: "127.0.0.1:7000",
	}
}

// join joins in a session of its own.
func (f *fixture) join(identity, version string, can ...string) *member.Member {
	f.t.Helper()
	m, err := member.Join(f.t.Context(), dial(f.t), f.config(identity, version, can...))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Leave() })
	return m
}

// take takes a duty that the assigner gives to m.
func (f *fixture) take(m *member.Member, duty string) *member.Hold {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	h, err := m.Take(ctx, duty)
	if err != nil {
		f.t.Fatalf("%s: %v", m.Identity, err)
	}
	return h
}

// generation is the group's, which these tests never replace.
func (f *fixture) generation() string {
	f.t.Helper()
	if f.found == "" {
		f.found = f.look().Record.Generation
	}
	return f.found
}

// run is a path in the group's generation.
func (f *fixture) run(below string) string {
	f.t.Helper()
	return strings.TrimSuffix(resource.Join(znode.Run(f.group.Root, f.generation()), below), "/")
}

// newProxy starts a proxy to the server.
func newProxy(t testing.TB) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
