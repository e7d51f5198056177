package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestUnlink deletes every key of a deleted generation, in pages, and none of another.
func TestUnlink(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	for i := range 3 {
		f.submit(fmt.Sprint("b", i), numbered(5))
	}
	other.submit("b0", numbered(5))
	c := f.client()
	for i := range 3 * unlinkPage {
		if err := c.Set(t.Context(), fmt.Sprint(store.Prefix(f.generation()), "b:x", i), "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rec := f.look().Record
	for range 2 {
		if err := Unlink(t.Context(), rec, Access{Getenv: noEnvironment}, []string{rediss.Addr()}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := c.Keys(t.Context(), store.Prefix(f.generation())+"*").Result()
	if err != nil || len(left) != 0 {
		t.Errorf("%d keys are left: %v", len(left), err)
	}
	if b := other.inRedis("b0"); b.Waiting != 5 {
		t.Errorf("the other queue: %+v", b)
	}
}

// TestAGenerationStaysUntilItsKeysAreGone: a process was there, the queue was deleted, and Redis did not answer.
func TestAGenerationStaysUntilItsKeysAreGone(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	p := f.join("p", queue.Executor)
	g := f.generation()
	if err := p.Leave(); err != nil {
		t.Fatal(err)
	}
	direct := redis.NewClient(&redis.Options{Addr: rediss.Addr(), Protocol: 2})
	t.Cleanup(func() { direct.Close() })
	keys := func() int {
		left, err := direct.Keys(t.Context(), store.Prefix(g)+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	if keys() == 0 {
		t.Fatal("it has no keys")
	}
	row := plan.Row{Path: f.queue.Path(), Old: f.look(), Reason: plan.Undeclared}
	if err := f.admin.Commit(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, rec *resource.Record) error {
		return Unlink(ctx, rec, Access{Getenv: noEnvironment}, []string{proxy.Addr()})
	}
	admin := rig.Store(t, f.s, f.queue.Root, kind)
	proxy.Refuse(true)
	proxy.Cut()
	if n, err := admin.Collect(t.Context(), []string{f.queue.Root}); n != 0 || !errors.Is(err, zkstate.ErrOutside) {
		t.Errorf("without Redis: %d, %v", n, err)
	}
	proxy.Refuse(false)
	if n, err := admin.Collect(t.Context(), []string{f.queue.Root}); n != 1 || err != nil {
		t.Errorf("with Redis: %d, %v", n, err)
	}
	if n := keys(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
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
	t.Parallel()
	l := newLiar(t)
	l.to("scan", endlessScan)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Unlink(ctx, recordAt(l.addr), Access{Getenv: noEnvironment}, []string{l.addr})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pages") {
		t.Errorf("unlink: %v, want an error of the number of pages", err)
	}
}

// TestUnlinkEndsWithItsContext, whatever the server does.
func TestUnlinkEndsWithItsContext(t *testing.T) {
	t.Parallel()
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
			go func() { ended <- Unlink(ctx, recordAt(l.addr), Access{Getenv: noEnvironment}, []string{l.addr}) }()
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
	t.Parallel()
	l := newLiar(t)
	host, port, _ := net.SplitHostPort(l.addr)
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
		"declared":      {environ(""), []string{l.addr}, false},
		"environment":   {environ("x, " + host), nil, false},
		"with a port":   {environ(l.addr), nil, false},
		"the host only": {environ(""), []string{host}, true},
	} {
		before := l.requests.Load()
		err := Unlink(t.Context(), recordAt(l.addr), c.access, c.declared)
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
	t.Parallel()
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
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(5))
	victim := f.look()
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, rec *resource.Record) error {
		return Unlink(ctx, rec, Access{Getenv: noEnvironment}, []string{rediss.Addr()})
	}
	admin := rig.Store(t, f.s, f.queue.Root, kind)
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

// TestTheUserOfTheDocs: the user that docs/queues.md shows may do what a queue needs, and nothing outside its keys.
func TestTheUserOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^user (muster on >)PASSWORD (.*)$`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/queues.md shows no user")
	}
	server := rig.StartRedis(t, redisserver.Options{
		Extra: append([]string{"--user"}, strings.Fields(fmt.Sprintf("%ssecret %s", shown[1], shown[2]))...),
	})
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() })
	as := login("muster", "secret")
	e, w := f.join("e", queue.Executor, as), f.join("w", queue.Watcher, as)
	c := f.submitConfig("b")
	c.Redis = e.config.Redis
	if _, err := Submit(t.Context(), f.s, c, numbered(100)); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(t.Context(), limit)
	defer end()
	if err := e.client.Set(ctx, "other", "x", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a key outside: %v", err)
	}
	go Execute(ctx, e, ExecutorConfig{Parallel: 2}, func(_ context.Context, task *Task) ([]byte, error) {
		return task.Payload, nil
	})
	err = Watch(ctx, w, func(context.Context, *Completed) error { end(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Unlink(t.Context(), f.look().Record, c.Redis, nil); err != nil {
		t.Error(err)
	}
}

// TestTheUserMayLess: Redis refuses what a process does, at once or within a script. Waiting does not cure that, so
// executors and watchers end, and say why.
func TestTheUserMayLess(t *testing.T) {
	for _, refused := range []string{"-@scripting", "-hmget"} {
		t.Run(refused, func(t *testing.T) {
			server := rig.StartRedis(t, redisserver.Options{Extra: strings.Fields("--user muster on >secret ~* +@all")})
			f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() })
			as := login("muster", "secret")
			e, w := f.join("e", queue.Executor, as), f.join("w", queue.Watcher, as)
			if err := f.client().Do(t.Context(), "ACL", "SETUSER", "muster", refused).Err(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := Execute(ctx, e, ExecutorConfig{Parallel: 2}, square); !Denied(err) {
				t.Errorf("the executor ended with %v", err)
			}
			if err := Watch(ctx, w, func(context.Context, *Completed) error { return nil }); !Denied(err) {
				t.Errorf("the watcher ended with %v", err)
			}
		})
	}
}
