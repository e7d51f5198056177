package member_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
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
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{})))
}

func dial(t testing.TB, addrs ...string) *zkconn.Session {
	t.Helper()
	if len(addrs) == 0 {
		addrs = servers.Addrs()
	}
	return rig.Dial(t, 10*time.Second, addrs...)
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
	f := &fixture{t: t, group: group.Default(), s: dial(t)}
	f.group.Root, f.group.Name, f.group.Settle = "/test-"+zkstate.NewID(), "shop", resource.Duration(time.Millisecond)
	for _, name := range leaders {
		f.group.Add(group.NewDuty(group.Leader, name))
	}
	f.store = rig.Store(t, f.s, f.group.Root, zkstate.Group())
	rig.Create(t, f.store, f.group)
	return f
}

// change applies the group as it is now.
func (f *fixture) change(edit func(*group.Group)) {
	f.t.Helper()
	edit(&f.group)
	rig.Update(f.t, f.store, f.group)
}

func (f *fixture) look() *resource.Observed {
	f.t.Helper()
	return rig.Look(f.t, f.store, f.group.Path())
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
	return f.joinIn(dial(f.t), f.config(identity, version, can...))
}

// joinIn joins in this session.
func (f *fixture) joinIn(s *zkconn.Session, c member.Config) *member.Member {
	f.t.Helper()
	m, err := member.Join(f.t.Context(), s, c)
	f.must(err)
	f.t.Cleanup(func() { m.Leave() })
	return m
}

// must ends the test at an error.
func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
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

// takeAfter takes a duty that somebody held before. The epoch is larger then.
func (f *fixture) takeAfter(before *member.Hold, m *member.Member) *member.Hold {
	f.t.Helper()
	h := f.take(m, before.Duty)
	f.grows(before, h)
	return h
}

// grows demands that a later hold has a larger epoch.
func (f *fixture) grows(before, h *member.Hold) {
	f.t.Helper()
	if h.Epoch <= before.Epoch {
		f.t.Errorf("epoch %d after %d", h.Epoch, before.Epoch)
	}
}

// ended waits for the end of a membership or a hold.
func (f *fixture) ended(ctx context.Context, why error) {
	f.t.Helper()
	rig.Receive(f.t, ctx.Done(), "the end")
	if cause := context.Cause(ctx); !errors.Is(cause, why) {
		f.t.Errorf("it ended with %v, want %v", cause, why)
	}
}

// requestFault is one of the proxy's, for the request that matches.
type requestFault = func(*fault.Proxy, func(op int32, req []byte) bool) <-chan struct{}

// sentOrNot are the two ways in which an answer is lost.
func sentOrNot() map[string]requestFault {
	return map[string]requestFault{"committed": (*fault.Proxy).DropReply, "not sent": (*fault.Proxy).BeforeSend}
}

// faults are all faults of one request.
func faults() map[string]requestFault {
	return map[string]requestFault{
		"before": (*fault.Proxy).BeforeSend, "reply lost": (*fault.Proxy).DropReply,
		"after": (*fault.Proxy).AfterReply,
	}
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
func newProxy(t testing.TB) *fault.Proxy { return rig.Proxy(t, servers.Addrs()[0]) }
