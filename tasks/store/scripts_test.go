package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/tasks/store/lua"
	"muster/tasks/store/storemodel"
)

const manyBytes = 1 << 30

func payloads(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Append(nil, "task ", i)
	}
	return all
}

func (q *testQueue) submit(id string, weight, attempts int, tasks ...[]byte) {
	q.t.Helper()
	ctx := q.t.Context()
	b := NewBatch{ID: id, Life: "life-" + id, Weight: weight, Attempts: attempts, Results: "watcher"}
	for _, p := range tasks {
		b.Bytes += Cost(p)
	}
	succeeds(q.t, q.Begin(ctx, b, manyBytes))
	at := int64(0)
	for chunk := range slices.Chunk(tasks, MaxItems) {
		at = must(q.Append(ctx, id, b.Life, at, chunk))(q.t)
	}
	succeeds(q.t, q.Open(ctx, id, b.Life, at))
}

// testSeat is a seat that remembers its seq and its hand.
type testSeat struct {
	q    *testQueue
	name string
	seq  int64
	hand []Held
	data map[Task]string
}

func (q *testQueue) seat(name string, role queue.Role, slots int) *testSeat {
	q.t.Helper()
	must(q.Hello(q.t.Context(), name, role, slots))(q.t)
	return &testSeat{q: q, name: name, data: map[Task]string{}}
}

func (s *testSeat) turn(t Turn) Turned {
	s.q.t.Helper()
	if t.MaxBytes == 0 {
		t.MaxBytes = manyBytes
	}
	s.seq++
	out := must(s.q.Turn(s.q.t.Context(), s.name, s.seq, t))(s.q.t)
	sent := map[Task]bool{}
	for _, r := range t.Results {
		sent[r.Task] = true
	}
	s.hand = slices.DeleteFunc(s.hand, func(h Held) bool { return sent[h.Task] })
	for _, g := range out.Granted {
		for i, p := range g.Payloads {
			task := Task{g.Batch, g.Index + int64(i)}
			s.hand = append(s.hand, Held{Task: task, Attempt: g.Attempt})
			s.data[task] = string(p)
		}
	}
	return out
}

// finish are the results of the whole hand.
func (s *testSeat) finish(o Outcome, took time.Duration) []Result {
	var all []Result
	for _, h := range s.hand {
		all = append(all, Result{h.Task, h.Attempt, o, took, []byte("result of " + s.data[h.Task])})
	}
	return all
}

func (s *testSeat) claim() *Claimed {
	s.q.t.Helper()
	s.seq++
	got, _, err := s.q.Claim(s.q.t.Context(), s.name, s.seq)
	return must(got, err)(s.q.t)
}

// evict evicts seats, all pages.
func (q *testQueue) evict(how End, seats ...string) {
	q.t.Helper()
	for more := true; more; {
		var damaged []string
		var err error
		more, damaged, err = q.Evict(context.Background(), how, seats...)
		if err != nil || len(damaged) > 0 {
			q.t.Fatal(damaged, err)
		}
	}
}

func TestABatchFromSubmitToItsEnd(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(10)...)
	e, w := q.seat("e1", queue.Executor, 2), q.seat("w1", queue.Watcher, 0)
	if c := w.claim(); c != nil {
		t.Errorf("claimed before it was complete: %+v", c)
	}
	for e.turn(Turn{Idle: 2}); len(e.hand) > 0; {
		e.turn(Turn{Idle: 2, Results: e.finish(Done, time.Millisecond)})
	}
	want := &Claimed{Batch: "b", Life: "life-b", Done: 10, Try: 1}
	if d := cmp.Diff(want, w.claim()); d != "" {
		t.Errorf("claimed (-want +got):\n%s", d)
	}
	got := map[int64]string{}
	for _, r := range must(q.Results(t.Context(), "b", 0))(t) {
		got[r.Index] = string(r.Data)
	}
	for i, p := range payloads(10) {
		if got[int64(i)] != "result of "+string(p) {
			t.Errorf("result %d is %q", i, got[int64(i)])
		}
	}
	for range 2 {
		succeeds(t, q.Remove(t.Context(), "b", "life-b"))
	}
	q.evict(Died, "e1")
	q.evict(Died, "w1")
	left := q.keys()
	delete(left, "wake:e")
	delete(left, "wake:w")
	if b := must(q.Books(t.Context()))(t); b.Bytes != 0 || len(left) != 1 || !left["q"] {
		t.Errorf("left: %d bytes, keys %v", b.Bytes, left)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	ctx := t.Context()
	q.submit("b", 1, 3, payloads(3)...)
	e := q.seat("e1", queue.Executor, 1)
	e.turn(Turn{Idle: 1})
	big := make([]byte, MaxBytes+1)
	_, turnErr := q.Turn(ctx, "e1", 1, Turn{})
	_, unknown := q.Turn(ctx, "nobody", 1, Turn{})
	_, noBatch := q.Append(ctx, "x", "l", 0, payloads(1))
	_, life := q.Append(ctx, "b", "other", 0, payloads(1))
	_, offset := q.Append(ctx, "b", "life-b", 9, payloads(1))
	_, state := q.Append(ctx, "b", "life-b", 3, payloads(1))
	_, items := q.Append(ctx, "b", "life-b", 3, payloads(1001))
	_, size := q.Append(ctx, "b", "life-b", 3, [][]byte{big, big})
	large := NewBatch{ID: "c", Life: "c", Weight: 1, Attempts: 1, Results: "watcher", Bytes: manyBytes}
	full := q.Begin(ctx, large, manyBytes)
	q2 := *q.Queue
	q2.id = "queue-2"
	_, other := q2.Hello(ctx, "e9", queue.Executor, 1)
	for _, c := range []struct{ got, want error }{
		{turnErr, ErrSeq}, {unknown, ErrNoSeat}, {noBatch, ErrNoBatch}, {life, ErrLife}, {offset, ErrOffset},
		{state, ErrState}, {items, ErrLimit}, {size, ErrLimit}, {full, ErrFull}, {other, ErrOtherQueue},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// TestASuspectIsAlone: a hand that has others runs empty for it, of one executor only. Others go on with what is no
// suspect, and who has the suspect is granted nothing.
func TestASuspectIsAlone(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(5)...)
	e1, e2 := q.seat("e1", queue.Executor, 2), q.seat("e2", queue.Executor, 2)
	e1.turn(Turn{Idle: 1})
	e1.turn(Turn{Idle: 1, Results: e1.finish(Done, time.Second)}) // one is known
	e2.turn(Turn{Idle: 1})
	for _, name := range []string{"d1", "d2"} {
		q.seat(name, queue.Executor, 1).turn(Turn{Idle: 1})
		q.evict(Died, name)
	}
	if out := e1.turn(Turn{Idle: 1}); len(out.Granted) != 0 || !out.Alone {
		t.Errorf("the first one does not wait for its hand: %+v", out)
	}
	if out := e2.turn(Turn{Idle: 1}); len(out.Granted) != 1 || out.Granted[0].Index == 3 || out.Alone {
		t.Errorf("the other one does not go on: %+v", out)
	}
	out := e1.turn(Turn{Idle: 2, Room: time.Hour, Results: e1.finish(Done, time.Second)})
	if len(e1.hand) != 1 || out.Granted[0].Index != 3 {
		t.Errorf("its hand is empty: %+v", out)
	}
	if out := e1.turn(Turn{Idle: 1, Room: time.Hour}); len(out.Granted) != 0 || !out.Alone {
		t.Errorf("beside the suspect: %+v", out)
	}
	q.evict(Died, "e1", "e2")
	e3 := q.seat("e3", queue.Executor, 1)
	if out := e3.turn(Turn{Idle: 1}); out.Granted[0].Index != 3 || out.Granted[0].Attempt != 1 {
		t.Errorf("one of two had a suspect: %+v", out)
	}
	q.evict(Died, "e3")
	out = q.seat("e4", queue.Executor, 1).turn(Turn{Idle: 1})
	if out.Granted[0].Index != 3 || out.Granted[0].Attempt != 2 {
		t.Errorf("all had a suspect: %+v", out)
	}
}

func always(ms float64) func(int) float64 { return func(int) float64 { return ms } }

// deathCases are what the rule of charges has to be right in.
func deathCases() map[string]deathCase {
	four := deathCase{
		executors: 4, parallel: 2, tasks: 300, poison: 10, attempts: 3, lookahead: 100, lasts: always(50), session: 10_000,
		limit: 5 * time.Minute,
	}
	all := map[string]deathCase{"four": four}
	add := func(name string, edit func(c *deathCase)) {
		c := four
		edit(&c)
		all[name] = c
	}
	add("lines", func(c *deathCase) { c.lasts, c.lookahead = always(1), 200 })
	add("parallel 1", func(c *deathCase) { c.parallel = 1 })
	add("parallel 8", func(c *deathCase) { c.parallel = 8 })
	add("one", func(c *deathCase) { c.executors, c.limit = 1, 15*time.Minute })
	add("two", func(c *deathCase) { c.executors, c.limit = 2, 10*time.Minute })
	add("their own names", func(c *deathCase) { c.waits, c.limit = true, 10*time.Minute })
	add("30 percent", func(c *deathCase) { c.poison, c.limit = 90, 30*time.Minute })
	add("many", func(c *deathCase) { c.executors, c.tasks, c.parallel = 100, 1000, 8 })

	add("poison to the end", func(c *deathCase) {
		c.executors, c.parallel, c.tasks, c.poison, c.limit = 8, 8, 4000, 40, time.Hour
		c.lasts = func(i int) float64 { return float64(400 + i*37%10*150) }
	})

	// Ten minutes each, and one attempt: who is charged is dead.
	long := four
	long.executors, long.parallel, long.attempts, long.lasts = 20, 4, 1, always(600_000)
	long.tasks, long.poison, long.limit = 80, 0, 4*time.Hour
	strikes := func(share float64, n int) (all []outage) {
		for i := range n {
			all = append(all, outage{100_000 * float64(i+1), share, 20_000})
		}
		return all
	}
	once, often, rack := long, long, long
	once.outages, once.limit = strikes(1, 1), 15*time.Minute
	often.outages = strikes(1, 6)
	rack.outages, rack.limit = strikes(0.5, 2), 3*time.Hour
	all["outage"], all["outages"], all["rack, twice"] = once, often, rack
	slow := long
	slow.tasks, slow.outages = 2000, strikes(1, 9)
	slow.lasts = func(i int) float64 {
		if i == 40 {
			return 600_000
		}
		return 10_000
	}
	all["one slow"] = slow
	return all
}

// TestDeathsOnTheModel: each case, with many seeds.
func TestDeathsOnTheModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(1)
	if os.Getenv("MUSTER_SOAK") == "1" {
		seeds = 100
	}
	for name, c := range deathCases() {
		t.Run(name, func(t *testing.T) {
			longest, deaths := time.Duration(0), 0
			for seed := range seeds {
				q := &testQueue{Queue: New(nil, t.Name(), "queue-1"), t: t, now: time.UnixMilli(1_000_000)}
				q.scripts = loadScripts(testClock)
				q.Queue, _ = q.onModel()
				w, err := c.run(q, func(now time.Time) { q.now = now }, seed)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				longest, deaths = max(longest, millis(w.took)), deaths+w.deaths
			}
			t.Logf("after %s at most; %d deaths in %d schedules", longest.Round(time.Second), deaths, seeds)
		})
	}
}

// TestMutantsOfTheRule: with each part of the rule left out of the scripts, a case goes wrong.
func TestMutantsOfTheRule(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		in, was, is string
		seed        uint64 // the first that shows it
	}{
		"":                             {"four", "", "", 0},
		"a suspect beside others":      {"poison to the end", "hand.held + #hand.put == 0", "true", 2},
		"others beside a suspect":      {"poison to the end", "not hand.suspect then take_all", "true then take_all", 2},
		"no suspicion in an outage":    {"four", "how ~= '0' and deaths <", "how == '2' and deaths <", 0},
		"all executors have a suspect": {"outages", "2 * trying < executors", "true", 0},
		"charged beside many":          {"outages", "how == '2' and f == suspect", "how ~= '0' and f == suspect", 0},
		"charged beside none":          {"outages", "with > 2 * without", "with > 0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			q.scripts = map[string]*redis.Script{}
			for script, text := range lua.Scripts(testClock) {
				q.scripts[script] = redis.NewScript(strings.ReplaceAll(text, m.was, m.is))
			}
			q.at(q.now)
			_, wrong := deathCases()[m.in].run(q, q.at, m.seed)
			if (wrong != nil) != (name != "") {
				t.Errorf("wrong: %v", wrong)
			}
			t.Log(wrong)
		})
	}
}

// account checks that each task of a complete batch has one result, or is dead, or was dropped: in Redis.
func (w *world) account(b *storemodel.Batch) {
	w.t.Helper()
	if b.Results == "discard" { // the model says which are done; Redis has no results
		if page := must(w.Results(context.Background(), b.ID, 0))(w.t); len(page) > 0 {
			w.t.Fatalf("batch %s: %d results of a batch that keeps none", b.ID, len(page))
		}
		return
	}
	seen := make([]int, int(b.Tasks()))
	for skip := int64(0); ; {
		page := must(w.Results(context.Background(), b.ID, skip))(w.t)
		for _, r := range page {
			seen[r.Index]++
		}
		if skip += int64(len(page)); len(page) == 0 {
			break
		}
	}
	dead := b.Dead
	for i, n := range seen {
		if n > 1 {
			w.t.Fatalf("batch %s: task %d has %d results", b.ID, i, n)
		} else if n == 0 {
			dead--
		}
	}
	if dead != 0 {
		w.t.Fatalf("batch %s: %v dead tasks are not the ones without a result (%v)", b.ID, b.Dead, dead)
	}
}

// finishAll lets everything end, and checks that nothing is left.
func (w *world) finishAll() {
	for _, c := range w.late {
		w.deliver(c)
	}
	w.late = nil
	deliver := func(script string, args ...string) any { return w.deliver(message{script, args}) }
	for _, id := range sortedKeys(w.m.Batches) {
		b := w.m.Batches[id]
		if b.State == "submitting" {
			deliver("open", id, b.Life, str(b.Tasks()))
		}
		deliver("set", id, b.Life, str(b.Version+1), "1", "open")
	}
	for len(w.m.Seats) > 0 {
		deliver("evict", "0", sortedKeys(w.m.Seats)[0])
	}
	deliver("hello", "last", "queue-1", "e", "9")
	for range 10_000 {
		w.pass(time.Second)
		s := w.m.Seats["last"]
		args := []string{"last", str(s.Seq + 1), "50", "0", "1", "1000000000"}
		for _, f := range sortedKeys(s.Hand) {
			args = append(args, f, str(s.Hand[f].Attempt)+":o:1", "result")
		}
		if turned, ok := deliver("turn", args...).([]any); !ok {
			w.t.Fatal("the last seat is refused")
		} else if len(s.Hand) == 0 && turned[0] == int64(-1) {
			break
		}
	}
	for _, id := range sortedKeys(w.m.Batches) {
		b := w.m.Batches[id]
		if b.State != "cancelled" {
			if !b.Complete() {
				w.t.Errorf("batch %s did not end", id)
			}
			w.account(b)
		}
		deliver("remove", id, b.Life)
	}
	deliver("evict", "0", "last")
	for _, id := range sortedKeys(w.m.Dead) {
		for len(w.m.Dead[id]) > 0 {
			deliver("drop", id, "1000", "9999999999999")
		}
	}
	w.compare()
	left := w.keys()
	delete(left, "wake:e")
	delete(left, "wake:w")
	if w.m.Bytes != 0 || len(left) != 1 || !left["q"] {
		w.t.Errorf("left: %v bytes, keys %v", w.m.Bytes, left)
	}
}
