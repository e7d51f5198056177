package tasks

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
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
	l := newLiar(t)
	l.to("scan", endlessScan)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Unlink(ctx, recordAt(l.Addr()), Access{Getenv: noEnvironment}, []string{l.Addr()})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pages") {
		t.Errorf("unlink: %v, want an error of the number of pages", err)
	}
}

// TestUnlinkEndsWithItsContext, whatever the server does.
func TestUnlinkEndsWithItsContext(t *testing.T) {
	for name, scan := range map[string]func() io.Reader{
		"endless":   func() io.Reader { return strings.NewReader(endlessScan) },
		"no answer": func() io.Reader { return strings.NewReader("") },
	} {
		t.Run(name, func(t *testing.T) {
			l, scans := newLiar(t), make(chan struct{}, 1)
			lie := func(request []string) io.Reader {
				if !strings.EqualFold(request[0], "scan") {
					return nil
				}
				select {
				case scans <- struct{}{}:
				default:
				}
				return scan()
			}
			l.lie.Store(&lie)
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped by a signal")
			ended := make(chan error, 1)
			go func() { ended <- Unlink(ctx, recordAt(l.Addr()), Access{Getenv: noEnvironment}, []string{l.Addr()}) }()
			<-scans
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
	l := newLiar(t)
	host, port, _ := net.SplitHostPort(l.Addr())
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
		"declared":      {environ(""), []string{l.Addr()}, false},
		"environment":   {environ("x, " + host), nil, false},
		"with a port":   {environ(l.Addr()), nil, false},
		"the host only": {environ(""), []string{host}, true},
	} {
		before := l.requests.Load()
		err := Unlink(t.Context(), recordAt(l.Addr()), c.access, c.declared)
		if (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), queue.EnvHosts) {
			t.Errorf("%s: %v", name, err)
		}
		if connected := l.requests.Load() > before; connected == c.refused {
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
