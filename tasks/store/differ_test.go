package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/tasks/store/lua"
	"muster/tasks/store/storemodel"
)

// message is one call of a script.
type message struct {
	script string
	args   []string
}

// world runs random calls on Redis and on the model. It generates them from what the model has, as processes would,
// and some that no process would make.
type world struct {
	*testQueue
	model *Queue // the same, on the model
	t     *testing.T
	rng   *rand.Rand
	m     *storemodel.Queue // what the model has
	late  []message         // will arrive later
	lives int
	names int
	most  int64
	calls map[string]int      // that were not refused
	drops map[string][]string // by batch: the indexes of dead tasks that were dropped
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		testQueue: newQueue(t), t: t, rng: rand.New(rand.NewPCG(seed, 0)), most: 20_000, calls: map[string]int{},
		drops: map[string][]string{},
	}
	var server *storemodel.Server
	w.model, server = w.onModel()
	server.Look(t.Name(), func(q *storemodel.Queue) { w.m = q })
	return w
}

// deliver delivers a message to both and compares the answers.
func (w *world) deliver(c message) any {
	w.t.Helper()
	args := make([]any, len(c.args))
	for i, a := range c.args {
		args[i] = a
	}
	if c.script == "drop" {
		w.noteDrop(c)
	}
	got, err := w.call(context.Background(), c.script, args...)
	want, refused := w.model.call(context.Background(), c.script, args...)
	if fmt.Sprintf("%q, %v", got, err) != fmt.Sprintf("%q, %v", want, refused) {
		w.t.Fatalf("%s %q answers\n%q, %v\nthe model\n%q, %v", c.script, c.args, got, err, want, refused)
	}
	if err == nil {
		w.calls[c.script]++
	} else if !errors.As(err, new(*Refusal)) {
		w.t.Fatal(err)
	}
	return got
}

// noteDrop notes what a drop will drop, so that every task can be accounted for at the end.
func (w *world) noteDrop(c message) {
	for i, d := range w.m.Dead[c.args[0]] {
		if i < int(num(c.args[1])) && d.At < num(c.args[2]) {
			w.drops[c.args[0]] = append(w.drops[c.args[0]], d.Index)
		} else {
			break
		}
	}
}

// send delivers a message once, twice or never, now or later.
func (w *world) send(script string, args ...any) {
	c := message{script: script}
	for _, a := range args {
		c.args = append(c.args, fmt.Sprint(a))
	}
	switch n := w.rng.IntN(100); {
	case n < 80:
		w.deliver(c)
	case n < 85:
	case n < 90:
		w.deliver(c)
		w.deliver(c)
	case n < 95:
		w.deliver(c)
		w.late = append(w.late, c)
	default:
		w.late = append(w.late, c)
	}
}

func pick[T any](rng *rand.Rand, of []T) (v T) {
	if len(of) == 0 {
		return v
	}
	return of[rng.IntN(len(of))]
}

func (w *world) seats(role string) (all []string) {
	for _, name := range sortedKeys(w.m.Seats) {
		if s := w.m.Seats[name]; s.Role == role && s.Shut == "" {
			all = append(all, name)
		}
	}
	return all
}

// step makes one random call.
func (w *world) step() {
	if len(w.late) > 0 && w.rng.IntN(10) == 0 {
		i := w.rng.IntN(len(w.late))
		c := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.deliver(c)
		return
	}
	if w.rng.IntN(8) == 0 {
		w.pass(time.Duration(w.rng.IntN(300)) * time.Millisecond)
	}
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.turnOne()
	case n < 49:
		w.syncOne()
	case n < 64:
		w.watchOne()
	case n < 87:
		w.submitOne()
	case n < 91:
		w.comeAndGo()
	case n < 94:
		w.lookOne()
	default:
		w.operate()
	}
}

func (w *world) comeAndGo() {
	es, ws := w.seats("e"), w.seats("w")
	w.names++
	name := strconv.FormatInt(int64(w.names), 16)
	switch {
	case len(es) < 3 || len(es) < 6 && w.rng.IntN(4) == 0:
		w.send("hello", name, "queue-1", "e", w.rng.IntN(4)+1)
	case len(ws) < 2:
		w.send("hello", name, "queue-1", "w", 0)
	default: // also a seat whose eviction was not finished
		all := sortedKeys(w.m.Seats)
		args := []any{min(w.rng.IntN(4), 1)}
		for range 1 + w.rng.IntN(3) {
			args = append(args, pick(w.rng, all))
		}
		w.send("evict", args...)
	}
}

// nextSeq is nearly always the right one.
func (w *world) nextSeq(seat string) string {
	s := w.m.Seats[seat]
	if s == nil || w.rng.IntN(40) == 0 {
		return strconv.Itoa(w.rng.IntN(5))
	}
	return str(s.Seq + 1)
}

func (w *world) turnOne() {
	seat := pick(w.rng, w.seats("e"))
	args := []any{seat, w.nextSeq(seat), w.rng.IntN(5), w.rng.IntN(40) * 1_000_000, 100, w.most}
	if s := w.m.Seats[seat]; s != nil {
		for _, f := range sortedKeys(s.Hand) {
			if len(args) > 300 || w.rng.IntN(3) == 0 {
				continue
			}
			outcome := pick(w.rng, []string{"o", "o", "o", "o", "r", "d"})
			attempt := s.Hand[f].Attempt
			if w.rng.IntN(50) == 0 {
				attempt++
			}
			ns := w.rng.IntN(20_000_000)
			data := strings.Repeat("r", w.rng.IntN(30)) + "\x00\n:\xff"
			args = append(args, f, fmt.Sprintf("%.0f:%s:%d", attempt, outcome, ns), data)
			if w.rng.IntN(50) == 0 {
				args = append(args, f, fmt.Sprintf("%.0f:%s:%d", attempt, outcome, ns), data)
			}
		}
	}
	if w.rng.IntN(30) == 0 {
		args = append(args, fmt.Sprint("b", w.rng.IntN(8), ":", w.rng.IntN(5)), "1:o:5", "made up")
	}
	w.send("turn", args...)
}

func (w *world) syncOne() {
	seat := pick(w.rng, append(w.seats("e"), w.seats("w")...))
	s := w.m.Seats[seat]
	if s == nil {
		return
	}
	args := []any{seat, str(s.Seq + float64(w.rng.IntN(5)))}
	for _, f := range sortedKeys(s.Hand) {
		if len(args) < 1000 && w.rng.IntN(4) > 0 {
			args = append(args, f, str(s.Hand[f].Attempt))
		}
	}
	args = append(args, "b1:3", w.rng.IntN(3))
	w.send("sync", args...)
}

func (w *world) watchOne() {
	seat := pick(w.rng, w.seats("w"))
	s := w.m.Seats[seat]
	if s == nil {
		return
	}
	held := sortedKeys(s.Hand)
	if len(held) == 0 || w.rng.IntN(3) == 0 {
		w.send("claim", seat, w.nextSeq(seat))
		return
	}
	id, _, _ := strings.Cut(pick(w.rng, held), ":")
	if w.rng.IntN(4) == 0 {
		w.send("unclaim", seat, w.nextSeq(seat), id, w.rng.IntN(2), 100, "because")
	} else if b := w.m.Batches[id]; b != nil {
		w.end(b)
	}
}

// submitOne makes the next step of some batch's submission.
func (w *world) submitOne() {
	id := fmt.Sprint("b", w.rng.IntN(8))
	for _, other := range sortedKeys(w.m.Batches) { // those that were begun are likelier
		if w.m.Batches[other].State == "submitting" && w.rng.IntN(2) == 0 {
			id = other
		}
	}
	b := w.m.Batches[id]
	if b == nil {
		w.lives++
		results := pick(w.rng, []string{
			"watcher", "watcher", "watcher", "watcher", "watcher", "submitter", "discard", "keep:24h", "nonsense",
		})
		bytes := w.rng.IntN(3000)
		life := fmt.Sprint("life", w.lives)
		w.send("begin", id, "queue-1", life, pick(w.rng, []int{1, 2, 7, 1000}), w.rng.IntN(3)+1, results, bytes, w.most)
		return
	}
	if b.State != "submitting" {
		return
	}
	if w.rng.IntN(4) == 0 {
		w.send("open", id, b.Life, str(b.Tasks()))
		return
	}
	at := b.Tasks() + float64(pick(w.rng, []int{0, 0, 0, 0, 0, 1, -1}))
	args := []any{id, b.Life, str(max(0, at))}
	for range w.rng.IntN(40) {
		args = append(args, fmt.Sprint("\x00:", w.rng.IntN(1000), "\n"))
	}
	w.send("append", args...)
}

// operate is what operators and the smallest seat do.
func (w *world) operate() {
	id := fmt.Sprint("b", w.rng.IntN(8))
	b := w.m.Batches[id]
	before := w.now.UnixMilli() - int64(w.rng.IntN(300))
	switch n := w.rng.IntN(10); {
	case n < 3:
		w.send("drop", pick(w.rng, append(sortedKeys(w.m.Dead), id)), w.rng.IntN(30), before)
	case b == nil:
	case n < 6:
		state := pick(w.rng, []string{"open", "open", "open", "paused", "paused", "cancelled"})
		w.send("set", id, b.Life, str(b.Version+float64(w.rng.IntN(3))), w.rng.IntN(10)+1, state)
	case n < 8:
		w.send("retry", id, w.rng.IntN(20), before, id, b.Life, 0)
	case n < 9:
		from := pick(w.rng, append(sortedKeys(w.m.Dead), "b0"))
		w.send("retry", from, w.rng.IntN(20), before, id, b.Life, str(b.Tasks()))
	case b.State == "cancelled" || w.rng.IntN(20) == 0 || b.Complete() && b.Results == "submitter":
		w.end(b)
	}
}

// end checks a complete batch's results, and removes it.
func (w *world) end(b *storemodel.Batch) {
	if b.Complete() {
		w.account(b)
	}
	w.send("remove", b.ID, b.Life)
}

// compare compares all that Redis holds with the model.
func (w *world) compare() {
	w.t.Helper()
	if d := cmp.Diff(w.m.Keys(), w.render()); d != "" {
		w.t.Fatalf("keys (-model +redis):\n%s", d)
	}
}

func TestScriptsAreTheModel(t *testing.T) {
	steps, seed := 8_000, uint64(1)
	if os.Getenv("MUSTER_SOAK") == "1" {
		steps, seed = 1_000_000, uint64(time.Now().UnixNano())
	}
	if s, err := strconv.ParseUint(os.Getenv("MUSTER_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("MUSTER_SEED=%d", seed)
	w := newWorld(t, seed)
	for i := range steps {
		w.step()
		if i%50 == 0 {
			w.compare()
		}
	}
	w.compare()
	w.finishAll()
	t.Log("calls that were not refused:", w.calls)
	for _, script := range strings.Fields("hello evict begin append open turn sync claim unclaim set retry drop remove") {
		if w.calls[script] < steps/2000 {
			t.Errorf("%s was only called %d times", script, w.calls[script])
		}
	}
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
func num(s string) float64                       { n, _ := strconv.ParseFloat(s, 64); return n }
func str(n float64) string                       { return strconv.FormatFloat(n, 'f', -1, 64) }

// onModel is the same queue on a model, which has the same time.
func (q *testQueue) onModel() (*Queue, *storemodel.Server) {
	server := storemodel.NewServer(storemodel.Options{
		Scripts: lua.Scripts(testClock), Now: func() time.Time { return q.now },
	})
	client := redis.NewClient(&redis.Options{
		Protocol: 2, MaxRetries: -1, DisableIdentity: true, Dialer: dialModel(server),
	})
	q.t.Cleanup(func() { client.Close() })
	on := *q.Queue
	on.client = client
	return &on, server
}

// dialModel makes connections that a model answers until they end.
func dialModel(s *storemodel.Server) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		replies := make(chan []byte, 1<<10)
		go func() {
			for r := range replies {
				_, _ = far.Write(r)
			}
		}()
		go func() {
			defer close(replies)
			c := s.Open(func(reply []byte) { replies <- reply })
			defer c.Lost()
			for _, words := range storemodel.Requests(far) {
				c.Handle(words)
				if next := s.Due(time.Now()); !next.IsZero() {
					time.AfterFunc(time.Until(next), func() { s.Due(time.Now()) })
				}
			}
		}()
		return near, nil
	}
}

// both compares what two queues answer to a call.
func both[T any](w *world, what string, call func(q *Queue) (T, error)) {
	w.t.Helper()
	got, err := call(w.Queue)
	want, refused := call(w.model)
	if d := cmp.Diff(want, got); d != "" || message0(err) != message0(refused) {
		w.t.Fatalf("%s: %v, the model: %v (-model +redis):\n%s", what, err, refused, d)
	}
	w.calls[what]++
}

func message0(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lookOne reads something, and takes a token if there is one.
func (w *world) lookOne() {
	ctx := context.Background()
	id, skip := "b"+strconv.Itoa(w.rng.IntN(8)), int64(w.rng.IntN(30))
	switch w.rng.IntN(7) {
	case 0:
		both(w, "books", func(q *Queue) (Books, error) { return q.Books(ctx) })
	case 1:
		n := 1 + w.rng.IntN(10)
		both(w, "batches", func(q *Queue) ([]Batch, error) { return q.Batches(ctx, int(skip%5), n) })
	case 2:
		both(w, "batch", func(q *Queue) (Batch, error) { return q.Batch(ctx, id) })
	case 3:
		both(w, "results", func(q *Queue) ([]Finished, error) { return q.Results(ctx, id, skip) })
	case 4:
		both(w, "dead", func(q *Queue) ([]DeadTask, error) { return q.DeadTasks(ctx, id, skip) })
	case 5:
		before, n := w.now.Add(-time.Duration(w.rng.IntN(3000))*time.Millisecond), 1+w.rng.IntN(5)
		if dead := w.m.Dead[id]; len(dead) > 0 && n > 2 { // exactly when one died
			before = time.UnixMilli(int64(dead[0].At))
		}
		both(w, "dead batches", func(q *Queue) ([]string, error) { return q.DeadBatches(ctx, before, n) })
	default:
		list := w.prefix + pick(w.rng, []string{"wake:e", "wake:w"})
		if there, err := w.c.LLen(ctx, list).Result(); err != nil || there == 0 {
			return
		}
		both(w, "token", func(q *Queue) ([]string, error) { return q.client.BLPop(ctx, time.Second, list).Result() })
	}
}

func joined(parts []string) string { return strings.Join(parts, " | ") }

func score(n float64) string {
	if math.IsInf(n, 1) {
		return "inf"
	}
	return str(n)
}

// render is what is in Redis, by key. Sorted sets are member@score, in order; hashes are field=value, sorted.
func (q *testQueue) render() map[string]string {
	q.t.Helper()
	ctx, all := context.Background(), map[string]string{}
	for key := range q.keys() {
		name := q.prefix + key
		switch kind := must(q.c.Type(ctx, name).Result())(q.t); kind {
		case "hash":
			var parts []string
			for f, v := range must(q.c.HGetAll(ctx, name).Result())(q.t) {
				parts = append(parts, f+"="+v)
			}
			slices.Sort(parts)
			all[key] = joined(parts)
		case "list":
			all[key] = joined(must(q.c.LRange(ctx, name, 0, -1).Result())(q.t))
		case "zset":
			var parts []string
			for _, z := range must(q.c.ZRangeWithScores(ctx, name, 0, -1).Result())(q.t) {
				parts = append(parts, z.Member.(string)+"@"+score(z.Score))
			}
			all[key] = joined(parts)
		}
	}
	return all
}
