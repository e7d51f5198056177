package cli_test

import (
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"muster/resource"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestWhatMayNotBeReadHidesNothingElse: a worker of j0 makes a znode beside the live workers, which nobody else may
// read. The table shows j0 as unreadable, and the other job as it is.
func TestWhatMayNotBeReadHidesNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "")
	f.mustApply(t)
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

// TestApplyOfAnEndlessRedis: a signal ends the apply while it deletes the keys of a queue that is gone, and the lock is
// free. A Redis that nothing declares is not asked.
func TestApplyOfAnEndlessRedis(t *testing.T) {
	var requests atomic.Int32
	begun := make(chan struct{}, 1)
	redis := rig.Liar(t, sharedRedis(t).Addr(), func(request []string) io.Reader {
		requests.Add(1)
		if !strings.EqualFold(request[0], "scan") {
			return nil
		}
		select {
		case begun <- struct{}{}:
		default:
		}
		return strings.NewReader("*2\r\n$1\r\n1\r\n*0\r\n") // there is always more
	})
	f := newFixture(t, 0, "")
	declare := func(names ...string) {
		var blocks strings.Builder
		for _, name := range names {
			fmt.Fprintf(&blocks, "queue %q {\n  root = %q\n  redis = \"redis://%s\"\n  timeouts {\n    stale = \"1s\"\n  }\n}\n",
				name, f.root, redis)
		}
		f.write(t, 0, blocks.String())
	}
	declare("gone", "stays")
	f.mustApply(t)
	f.occupyQueue(t, "gone")
	declare("stays")
	apply := f.command(servers.Connect(), "apply", "--yes")
	apply.Env = append(apply.Env, redisEnviron()...)
	r := startCommand(t, apply)
	r.waitFor(t, begun)
	sendSignal(t, r.cmd, syscall.SIGTERM)
	expect(t, r.wait(t), 143, "1 deleted", "some garbage is left for the next apply: ", "stopped by a signal")

	f.occupyQueue(t, "stays")
	declare()
	before := requests.Load()
	again := result(f.command(servers.Connect(), "apply", "--yes", "--allow-empty", "--lock-timeout", "0s"))
	expect(t, again, 0, "1 deleted")
	for _, name := range []string{"gone", "stays"} { // each on a line of its own
		line := fmt.Sprintf("some garbage is left for the next apply: %s/%s: "+
			"what it keeps outside ZooKeeper is not deleted yet: no queue that is declared uses the redis at %s; "+
			"if keys may be deleted there, add it to MUSTER_REDIS_HOSTS and apply again\n", f.root, name, redis)
		if !strings.Contains(again.stderr, line) {
			t.Errorf("got %q, want in it %q", again.stderr, line)
		}
	}
	if after := requests.Load(); after != before {
		t.Errorf("%d requests were made", after-before)
	}
}

// occupyQueue leaves in a queue what a process leaves that was there.
func (f fixture) occupyQueue(t *testing.T, name string) {
	t.Helper()
	s := rig.Dial(t, 0, servers.Addrs()...)
	at := path.Join(f.root, name)
	o, err := zkstate.NewReader(s, "", zkstate.Queue()).Look(t.Context(), at)
	if err != nil || o == nil || o.Record == nil {
		t.Fatalf("%s: %+v, %v", at, o, err)
	}
	for _, folder := range znode.QueueFolders() {
		at := resource.Join(znode.Run(f.root, o.Record.Generation), folder)
		if _, err := s.Create(t.Context(), at, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
}
