package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// strangeRedis looks like a Redis that can hold a queue. Its SCAN never ends.
type strangeRedis struct {
	addr  string
	conns atomic.Int32
	scans atomic.Int32
	begun chan struct{} // gets a value at the first SCAN
}

func newStrangeRedis(t *testing.T) *strangeRedis {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &strangeRedis{addr: l.Addr().String(), begun: make(chan struct{}, 1)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.conns.Add(1)
			go r.serve(c)
		}
	}()
	return r
}

// serve answers each line that is the name of a command, and skips all others.
func (r *strangeRedis) serve(c net.Conn) {
	defer c.Close()
	const info = "# Server\r\nredis_version:7.0.0\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n" +
		"# Replication\r\nrole:master\r\n"
	replies := map[string]string{
		"HELLO": "-ERR unknown command\r\n", "CLIENT": "-ERR unknown command\r\n", "SELECT": "+OK\r\n",
		"INFO": "$" + strconv.Itoa(len(info)) + "\r\n" + info + "\r\n", "HGET": "$-1\r\n",
		"SCAN": "*2\r\n$1\r\n1\r\n*0\r\n",
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		command := strings.ToUpper(lines.Text())
		if command == "SCAN" && r.scans.Add(1) == 1 {
			r.begun <- struct{}{}
		}
		if _, err := io.WriteString(c, replies[command]); err != nil {
			return
		}
	}
}

// TestApplyOfAnEndlessRedis: a signal ends the apply while it deletes the keys of a queue that is gone, and the lock is
// free. A Redis that nothing declares is not asked.
func TestApplyOfAnEndlessRedis(t *testing.T) {
	redis := newStrangeRedis(t)
	f := newFixture(t, 0, "")
	declare := func(names ...string) {
		var blocks strings.Builder
		for _, name := range names {
			fmt.Fprintf(&blocks, "queue %q {\n  root  = %q\n  redis = \"redis://%s\"\n}\n", name, f.root, redis.addr)
		}
		f.write(t, 0, blocks.String())
	}
	declare("gone", "stays")
	expect(t, result(f.command(servers.Connect(), "apply", "--yes")), 0)
	f.occupyQueue(t, "gone")
	declare("stays")
	r := startCommand(t, f.command(servers.Connect(), "apply", "--yes"))
	r.waitFor(t, redis.begun)
	r.signal(t, syscall.SIGTERM)
	expect(t, r.wait(t), 143, "1 deleted", "some garbage is left for the next apply: ", "stopped by a signal")

	f.occupyQueue(t, "stays")
	declare()
	before := redis.conns.Load()
	again := result(f.command(servers.Connect(), "apply", "--yes", "--allow-empty", "--lock-timeout", "0s"))
	expect(t, again, 0, "1 deleted")
	for _, name := range []string{"gone", "stays"} { // each on a line of its own
		line := fmt.Sprintf("some garbage is left for the next apply: %s/%s: "+
			"what it keeps outside ZooKeeper is not deleted yet: no queue that is declared uses the redis at %s; "+
			"if keys may be deleted there, add it to MUSTER_REDIS_HOSTS and apply again\n", f.root, name, redis.addr)
		if !strings.Contains(again.stderr, line) {
			t.Errorf("got %q, want in it %q", again.stderr, line)
		}
	}
	if after := redis.conns.Load(); after != before {
		t.Errorf("%d connections were made", after-before)
	}
}

// occupyQueue leaves in a queue what a process leaves that was there.
func (f fixture) occupyQueue(t *testing.T, name string) {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
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
