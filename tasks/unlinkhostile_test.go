package tasks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// strangeRedis is a server that looks like a Redis which can hold a queue, and answers SCAN as scan does: with a reply,
// or, if that is empty, never.
type strangeRedis struct {
	addr  string
	scan  string
	conns atomic.Int32
	scans chan struct{} // gets a value for each SCAN while somebody waits for it
}

func newStrangeRedis(t testing.TB, scan string) *strangeRedis {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &strangeRedis{addr: l.Addr().String(), scan: scan, scans: make(chan struct{}, 1)}
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

func (r *strangeRedis) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	const info = "# Server\r\nredis_version:7.0.0\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n" +
		"# Replication\r\nrole:master\r\n"
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		switch strings.ToUpper(command[0]) {
		case "INFO":
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		case "HGET":
			reply = "$-1\r\n"
		case "UNLINK":
			reply = ":1\r\n"
		case "SCAN":
			select {
			case r.scans <- struct{}{}:
			default:
			}
			reply = r.scan
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// readCommand reads a list of strings, as clients send them.
func readCommand(in *bufio.Reader) ([]string, error) {
	number := func(mark string) int {
		line, _ := in.ReadString('\n')
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), mark))
		if err != nil {
			return -1
		}
		return n
	}
	command := make([]string, max(0, number("*")))
	for i := range command {
		body := make([]byte, max(0, number("$"))+2)
		if _, err := io.ReadFull(in, body); err != nil {
			return nil, err
		}
		command[i] = string(body[:len(body)-2])
	}
	if len(command) == 0 {
		return nil, io.EOF
	}
	return command, nil
}

// endlessScan is a SCAN reply whose cursor never ends, without keys.
const endlessScan = "*2\r\n$1\r\n1\r\n*0\r\n"

// recordAt is the copy of a queue's record whose Redis is at addr.
func recordAt(addr string) *resource.Record {
	q := queue.Default()
	q.Root, q.Name, q.Redis = "/jobs", "q", "redis://"+addr
	return &resource.Record{Declaration: q, Generation: zkstate.NewID()}
}

// TestUnlinkOfAnEndlessScanEnds by itself.
func TestUnlinkOfAnEndlessScanEnds(t *testing.T) {
	r := newStrangeRedis(t, endlessScan)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Unlink(ctx, recordAt(r.addr), Access{Getenv: noEnvironment}, []string{r.addr})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pages") {
		t.Errorf("unlink: %v, want an error of the number of pages", err)
	}
}

// TestUnlinkEndsWithItsContext, whatever the server does.
func TestUnlinkEndsWithItsContext(t *testing.T) {
	for name, scan := range map[string]string{"endless": endlessScan, "no answer": ""} {
		t.Run(name, func(t *testing.T) {
			r := newStrangeRedis(t, scan)
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped by a signal")
			ended := make(chan error, 1)
			go func() { ended <- Unlink(ctx, recordAt(r.addr), Access{Getenv: noEnvironment}, []string{r.addr}) }()
			<-r.scans
			start := time.Now()
			cancel(stopped)
			if err := <-ended; !errors.Is(err, stopped) {
				t.Errorf("unlink: %v, want %v", err, stopped)
			}
			t.Logf("it took %s", time.Since(start))
		})
	}
}

// TestUnlinkConnectsOnlyToNamedHosts: another one sees no connection at all.
func TestUnlinkConnectsOnlyToNamedHosts(t *testing.T) {
	r := newStrangeRedis(t, "*2\r\n$1\r\n0\r\n*0\r\n")
	host, port, _ := net.SplitHostPort(r.addr)
	environ := func(hosts string) Access {
		return Access{Getenv: func(name string) string { return map[string]string{queue.EnvHosts: hosts}[name] }}
	}
	for name, c := range map[string]struct {
		access   Access
		declared []string
		refused  bool
	}{
		"nothing":       {environ(""), nil, true},
		"another":       {environ("127.0.0.2,127.0.0.1:1"), []string{"127.0.0.1:1", "x:" + port}, true},
		"declared":      {environ(""), []string{r.addr}, false},
		"environment":   {environ("x, " + host), nil, false},
		"with a port":   {environ(r.addr), nil, false},
		"the host only": {environ(""), []string{host}, true},
	} {
		before := r.conns.Load()
		err := Unlink(t.Context(), recordAt(r.addr), c.access, c.declared)
		if (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), queue.EnvHosts) {
			t.Errorf("%s: %v", name, err)
		}
		if connected := r.conns.Load() > before; connected == c.refused {
			t.Errorf("%s: connected: %v", name, connected)
		}
	}
}

// TestUnlinkLeavesTheKeysOfAnotherQueue: a copy in one root names the generation of a queue in another one, which has
// the same Redis.
func TestUnlinkLeavesTheKeysOfAnotherQueue(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(5))
	rec := *f.look().Record
	q := f.queue
	q.Root = "/elsewhere"
	rec.Declaration = q
	err := Unlink(t.Context(), &rec, Access{Getenv: noEnvironment}, []string{rediss.Addr()})
	if !errors.Is(err, store.ErrOtherQueue) {
		t.Errorf("unlink: %v, want %v", err, store.ErrOtherQueue)
	}
	if b := f.inRedis("b"); b.Waiting != 5 {
		t.Errorf("the queue has %+v", b)
	}
}

// TestKeysOfALiveQueueSurviveAForgedCopy: a worker of a job deletes its own gate and writes the record of a live queue
// into its own generation. The next apply of anybody leaves the queue as it is, in ZooKeeper and in Redis.
func TestKeysOfALiveQueueSurviveAForgedCopy(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(5))
	victim := f.look()
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, rec *resource.Record) error {
		return Unlink(ctx, rec, Access{Getenv: noEnvironment}, []string{rediss.Addr()})
	}
	admin, err := zkstate.NewStore(f.s, zkstate.Config{
		Home: f.queue.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	body, _, err := f.s.Get(t.Context(), znode.Run(f.queue.Root, f.generation()))
	if err != nil {
		t.Fatal(err)
	}
	at, acl := znode.Run(f.queue.Root, zkstate.NewID()), zkconn.World(zkconn.PermAll)
	if _, err := f.s.Multi(t.Context(), zkconn.CreateOp(at, body, zkconn.Persistent, acl),
		zkconn.CreateOp(at+"/id", nil, zkconn.Persistent, acl)); err != nil {
		t.Fatal(err)
	}
	if n, err := admin.Collect(t.Context(), []string{f.queue.Root}); n != 0 || !errors.Is(err, plan.ErrLeft) {
		t.Errorf("collect: %d, %v", n, err)
	}
	if b := f.inRedis("b"); b.Waiting != 5 {
		t.Errorf("the queue has %+v", b)
	}
	if now := f.look(); !now.Equal(*victim) {
		t.Errorf("the queue is %+v, was %+v", now, victim)
	}
}
