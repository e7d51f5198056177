package tasks

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/tasks/store/lua"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

var update = flag.Bool("update", false, "rewrite the dump in docs/protocol/queues.md")

// The dump of a real queue in docs/protocol/queues.md is between these lines.
const (
	protocolPage = "../docs/protocol/queues.md"
	dumpBegins   = "<!-- go test ./tasks -run Dump -update writes what follows -->\n"
	dumpEnds     = "<!-- end of the dump -->\n"
)

// TestDumpOfAQueue compares the dump in docs/protocol/queues.md with what a submitter, an executor and a watcher send
// to a real ZooKeeper and a real Redis, and with what ZooKeeper holds then.
func TestDumpOfAQueue(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, servers.Addrs()[0])
	f := &fixture{t: t, queue: queue.Default(), s: dial(t, proxy.Addr())}
	f.queue.Root, f.queue.Name, f.queue.Address = "/queues", "primes", "queue.primes"
	f.queue.Redis = "redis://redis-1:6379/0" // as declared: the digest of the record follows from it
	d := &queueDump{t: t, fixture: f, proxy: proxy, sent: rig.RecordWrites(proxy), zxids: map[string]string{}}
	d.Dump = rig.NewDump(t, f.s, d.masks(), "/.muster", "/queues")
	d.apply()
	d.sent.Take()
	d.Moment("After `apply`")

	client := d.recorded()
	x := newSubmission(f.s, f.submitConfig("b-1"), Payloads([]byte("7"), []byte("91"), []byte("x")))
	d.life = func() string { return x.out.Manifest.Life }
	x.join.client, x.join.url = client, f.queue.Redis
	if err := x.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.call("A submitter makes a batch of three tasks")
	d.Moment("Then there is")

	st := open(client, f.queue, f.generation())
	session, executor := d.seat("executor-1", queue.Executor)
	d.do(func() error { _, err := st.Hello(t.Context(), executor, queue.Executor, 2); return err })
	d.call("An executor with two commands joins")
	d.turn(st, executor, 1)
	d.call("It asks for tasks, and is granted two")
	d.turn(st, executor, 2, "7 is prime", "91 = 7 * 13")
	d.call("It reports both results, and is granted the third")
	d.turn(st, executor, 3, "")
	d.call("The third can never be done")
	d.do(func() error { _, _, err := st.Evict(t.Context(), store.Left, executor); return err })
	d.do(session.Close)
	d.call("It leaves")

	session, watcher := d.seat("watcher-1", queue.Watcher)
	d.do(func() error { _, err := st.Hello(t.Context(), watcher, queue.Watcher, 1); return err })
	d.do(func() error { _, _, err := st.Claim(t.Context(), watcher, 1); return err })
	for page := range int64(2) {
		d.do(func() error { _, err := st.Results(t.Context(), "b-1", 2*page); return err })
	}
	d.do(func() error { _, err := st.DeadTasks(t.Context(), "b-1", 0); return err })
	d.do(func() error { _, err := st.Batch(t.Context(), "b-1"); return err })
	d.do(func() error { _, err := st.Books(t.Context()); return err })
	d.call("A watcher joins, claims the batch, reads its results and dead tasks, and makes sure that it has it still")
	d.do(func() error {
		l := ledger{f.s, f.queue.Root, f.generation()}
		m, err := l.Manifest(t.Context(), "b-1")
		if err != nil {
			return err
		}
		return l.end(t.Context(), st, "b-1", m, znode.EndCollected, "watcher-1")
	})
	d.call("It ends the batch. There is no folder of the day yet, so the first multi is refused")
	d.do(func() error { _, _, err := st.Evict(t.Context(), store.Left, watcher); return err })
	d.do(session.Close)
	d.call("It leaves")
	d.do(func() error { _, err := st.Drop(t.Context(), "b-1", 100, time.Now().Add(time.Hour)); return err })
	d.call("An operator drops the dead task")
	d.Moment("At the end there is")
	d.Page(t, protocolPage, dumpBegins, dumpEnds, *update)
}

// queueDump is a dump of a queue. It records what one client of Redis sends and is answered.
type queueDump struct {
	*rig.Dump
	t       *testing.T
	fixture *fixture
	proxy   *fault.Proxy
	sent    *rig.Writes
	calls   []string
	life    func() string     // of the batch; empty: there is none yet
	zxids   map[string]string // what lives and seats are called on the page, by their names
}

// masks are times and the path of the generation.
func (d *queueDump) masks() []rig.Mask {
	return []rig.Mask{
		{What: regexp.MustCompile(`/queues/\.muster/run/[0-9a-f]{32}`), With: "R"},
		{What: regexp.MustCompile(`"(since|ended)":"[^"]*"`), With: `"$1":"2026-11-20T21:00:00Z"`},
		{What: regexp.MustCompile(`R/ended/\d{4}-\d\d-\d\d`), With: "R/ended/2026-11-20"},
	}
}

func (d *queueDump) do(f func() error) {
	d.t.Helper()
	if err := f(); err != nil {
		d.t.Fatal(err)
	}
}

// apply creates the queue as stack etl.
func (d *queueDump) apply() {
	d.t.Helper()
	admin, err := zkstate.NewStore(d.fixture.s, zkstate.Config{
		Stack: "etl", By: "ann@deploy-1", At: time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC),
		Kinds: []zkstate.Kind{zkstate.Queue()},
	})
	if err == nil {
		d.fixture.admin = admin
		err = admin.Commit(d.t.Context(), plan.Row{
			Path: d.fixture.queue.Path(), New: d.fixture.queue, Reason: plan.NotThere,
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// recorded is a client whose calls of scripts are recorded.
func (d *queueDump) recorded() *redis.Client {
	scripts := map[string]string{} // names by digest
	for name, text := range lua.Scripts(lua.Clock()) {
		scripts[redis.NewScript(text).Hash()], scripts[text] = name, name
	}
	q := d.fixture.queue
	q.Redis = "redis://" + rediss.Addr() + "/0"
	client, err := Access{Getenv: noEnvironment}.connect(d.t.Context(), q)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { client.Close() })
	client.AddHook(hook(func(cmd redis.Cmder, send func() error) error {
		err := send()
		c, ok := cmd.(*redis.Cmd)
		if !ok || len(cmd.Args()) < 4 || err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			return err // after NOSCRIPT it is sent again
		}
		if life := d.life(); life != "" {
			d.zxids[life] = "100000030"
		}
		words := []string{"redis", scripts[fmt.Sprint(cmd.Args()[1])]}
		for _, a := range cmd.Args()[4:] { // after the key
			words = append(words, d.argument(a))
		}
		d.calls = append(d.calls, d.sent.Take()...) // what was sent to ZooKeeper before
		answer := d.answer(c.Val())
		if err != nil && !errors.Is(err, redis.Nil) {
			answer = err.Error()
		}
		d.calls = append(d.calls, strings.Join(words, " ")+"\n= "+answer)
		return err
	}))
	return client
}

// argument is an argument as text. Numbers are no strings here.
func (d *queueDump) argument(a any) string {
	switch a := a.(type) {
	case []byte:
		return strconv.Quote(string(a))
	case string:
		a = cmp.Or(d.zxids[a], a)
		if a == "" || strings.ContainsAny(a, " \n") {
			return strconv.Quote(a)
		}
		return a
	case int64:
		if a > 1e12 { // the time
			return "1795208400000"
		}
	}
	return fmt.Sprint(a)
}

// answer is an answer of Redis as text. Where a life or a seat stands, it gets the name that it has on the page.
func (d *queueDump) answer(v any) string {
	switch v := v.(type) {
	case []any:
		named := len(v) == 2 || len(v) > 5 && (v[0] == "b-1" || v[1] == "b-1")
		all := make([]string, len(v))
		for i, item := range v {
			if text, ok := item.(string); ok && named && d.zxids[text] != "" && (i == 2 || i == 5 || i == 0) {
				item = d.zxids[text]
			}
			all[i] = d.answer(item)
		}
		return "[" + strings.Join(all, ", ") + "]"
	case string:
		return strconv.Quote(timeInRedis.ReplaceAllString(v, "1795208400000"))
	}
	return fmt.Sprint(v)
}

var timeInRedis = regexp.MustCompile(`\b\d{13}\b`)

// call writes down what was sent since the last time.
func (d *queueDump) call(title string) {
	d.Calls(title, append(d.calls, d.sent.Take()...))
	d.calls = nil
}

// seat joins as a process of another language does, in a session of its own, and returns the name of its seat in Redis.
func (d *queueDump) seat(identity string, role queue.Role) (*zkconn.Session, string) {
	d.t.Helper()
	f, nonce := d.fixture, zkstate.NewID()
	run := znode.Run(f.queue.Root, f.generation())
	live := fmt.Sprintf(`{"nonce":"%s","role":"%s","host":"node-7","parallel":2}`, nonce, role)
	seat := fmt.Sprintf(`{"identity":"%s","nonce":"%s","role":"%s"}`, identity, nonce, role)
	world := zkconn.World(zkconn.PermAll)
	s := dial(d.t, d.proxy.Addr())
	results, err := s.Multi(d.t.Context(), zkconn.CheckOp(run+"/gate", -1),
		zkconn.CheckOp(znode.Record(queue.KindName, f.queue.Root, f.queue.Name), 0),
		zkconn.CreateOp(f.queue.Path()+"/"+identity, []byte(live), zkconn.Ephemeral, world),
		zkconn.CreateOp(run+"/seat/x-", []byte(seat), zkconn.EphemeralSequential, world))
	if err != nil {
		d.t.Fatal(err)
	}
	stat, _, err := f.s.Exists(d.t.Context(), results[3].Path)
	if err != nil {
		d.t.Fatal(err)
	}
	name := strconv.FormatInt(stat.Czxid, 16)
	d.zxids[name] = fmt.Sprintf("10000002%d", len(d.zxids))
	return s, name
}

// turn asks for as many tasks as there are commands, and reports results: an empty one is a failure that is final.
func (d *queueDump) turn(st *store.Queue, seat string, seq int64, results ...string) {
	d.t.Helper()
	turn := store.Turn{Idle: 2, Room: 0, Backoff: time.Second, MaxBytes: int64(d.fixture.queue.MaxBytes)}
	for i, r := range results {
		outcome, index := store.Done, int64(i)
		if r == "" {
			outcome, index, r = store.Never, 2, "exit code 65"
		}
		turn.Results = append(turn.Results, store.Result{
			Task: store.Task{Batch: "b-1", Index: index}, Attempt: 1, Outcome: outcome, Took: 2 * time.Millisecond,
			Data: []byte(r),
		})
	}
	d.do(func() error { _, err := st.Turn(d.t.Context(), seat, seq, turn); return err })
}
