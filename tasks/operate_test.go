package tasks

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

func (f *fixture) operator() *Operator {
	f.t.Helper()
	o, err := NewOperator(f.t.Context(), f.s, OperatorConfig{
		Root: f.queue.Root, Queue: f.queue.Name, By: "operator@here", Redis: Access{Getenv: noEnvironment},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(o.Close)
	return o
}

// worker executes tasks by the scripts alone.
type worker struct {
	t    testing.TB
	st   *store.Queue
	name string
	seq  int64
}

func (f *fixture) worker(name string) *worker {
	f.t.Helper()
	w := &worker{t: f.t, st: f.store(), name: name}
	if _, err := w.st.Hello(f.t.Context(), name, queue.Executor, 1); err != nil {
		f.t.Fatal(err)
	}
	return w
}

func (w *worker) turn(results []store.Result, idle int) []store.Grant {
	w.t.Helper()
	w.seq++
	out, err := w.st.Turn(w.t.Context(), w.name, w.seq, store.Turn{Results: results, Idle: idle, MaxBytes: 1 << 30})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(out.Refused) > 0 {
		w.t.Fatalf("refused: %+v", out.Refused)
	}
	return out.Granted
}

// work takes tasks one by one until there is none, and finishes each as do says. It returns the payloads it had.
func (w *worker) work(do func(payload []byte) (store.Outcome, []byte)) (had []string) {
	w.t.Helper()
	return finishAll(func(results []store.Result) []store.Grant { return w.turn(results, 1) },
		func(_ int64, payload []byte) (store.Outcome, []byte) { return do(payload) })
}

// finishAll makes turns until nothing is granted. do says how an attempt ends. It returns the payloads.
func finishAll(
	turn func([]store.Result) []store.Grant, do func(index int64, payload []byte) (store.Outcome, []byte),
) (had []string) {
	for granted := turn(nil); len(granted) > 0; {
		var results []store.Result
		for _, g := range granted {
			for i, payload := range g.Payloads {
				index := g.Index + int64(i)
				outcome, data := do(index, payload)
				had = append(had, string(payload))
				results = append(results, store.Result{
					Task: store.Task{Batch: g.Batch, Index: index}, Attempt: g.Attempt, Outcome: outcome,
					Took: time.Millisecond, Data: data,
				})
			}
		}
		granted = turn(results)
	}
	return had
}

func echo(payload []byte) (store.Outcome, []byte) { return store.Done, Answer{Body: payload}.Encode() }

// never makes a task dead.
func never([]byte) (store.Outcome, []byte) {
	exit := 65
	return store.Never, Answer{Exit: &exit, Host: "h1", Tail: []byte("tail"), Body: []byte("exit code 65")}.Encode()
}

// TestPauseAndResume: of a paused batch nothing is taken, and its weight can be changed meanwhile.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(3))
	o, w := f.operator(), f.worker("w")
	for _, want := range []bool{true, false} {
		if changed, err := o.Pause(t.Context(), "b"); err != nil || changed != want {
			t.Fatal(changed, err)
		}
	}
	if had := w.work(echo); len(had) != 0 {
		t.Errorf("executed while paused: %q", had)
	}
	if err := o.SetWeight(t.Context(), "b", 7); err != nil {
		t.Fatal(err)
	}
	if m, b := f.batch("b"), f.inRedis("b"); m.State != znode.BatchPaused || b.State != "paused" || b.Weight != 7 {
		t.Errorf("%+v, in redis %+v", m, b)
	}
	if changed, err := o.Resume(t.Context(), "b"); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if had := w.work(echo); len(had) != 3 {
		t.Errorf("executed: %q", had)
	}
	if _, err := o.Pause(t.Context(), "none"); !errors.Is(err, ErrNoBatch) {
		t.Error(err)
	}
}

// TestCancel: nothing of the batch is left in Redis, and ZooKeeper says how it ended; a second one finds nothing.
func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(3))
	o, w := f.operator(), f.worker("w")
	granted := w.turn(nil, 1)
	w.turn([]store.Result{{Task: store.Task{Batch: "b", Index: granted[0].Index}, Attempt: 1, Outcome: store.Done}}, 0)
	if err := o.Cancel(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	end, err := o.Ended(t.Context(), "b")
	if err != nil || end == nil || end.How != znode.EndCancelled || end.Done != 1 || end.EndedBy != "operator@here" {
		t.Errorf("%+v, %v", end, err)
	}
	asked, _, err := f.s.Exists(t.Context(), znode.EndedDays(f.queue.Root, f.generation()))
	if err != nil || !end.Ended.Equal(asked.Mtime) { // and not by the clock of this machine
		t.Errorf("it ended %s, and by ZooKeeper's clock it was %s, %v", end.Ended, asked.Mtime, err)
	}
	if b := f.books(); b.Batches != 0 || b.Bytes != 0 {
		t.Errorf("left in redis: %+v", b)
	}
	if err := o.Cancel(t.Context(), "b"); !errors.Is(err, ErrNoBatch) {
		t.Error(err)
	}
	if again := f.submit("b", numbered(3)); again.Ended == nil || again.Ended.How != znode.EndCancelled {
		t.Errorf("submitted again: %+v", again)
	}
	if _, err := Submit(t.Context(), f.s, f.submitConfig("b"), numbered(4)); !errors.Is(err, ErrOtherBatch) {
		t.Errorf("another batch of this id: %v", err)
	}
}

// TestRetry: dead tasks of an unfinished batch wait again in it.
func TestRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(5))
	o, w := f.operator(), f.worker("w")
	w.work(never)
	r, err := o.Retry(t.Context(), "b")
	if err != nil || r != (Retried{"b", 5}) {
		t.Fatal(r, err)
	}
	w.work(echo)
	if b := f.inRedis("b"); b.Done != 5 || b.Dead != 0 {
		t.Errorf("%+v", b)
	}
	if _, err := o.Retry(t.Context(), "b"); !errors.Is(err, ErrNoDead) {
		t.Error(err)
	}
}

// TestARetryThatDied: a batch that nobody wants the results of is ended in the end.
func TestARetryThatDied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.submitConfig("b")
	c.Results = queue.ResultsDiscard
	if _, err := Submit(t.Context(), f.s, c, numbered(1)); err != nil {
		t.Fatal(err)
	}
	f.worker("w").work(never)
	f.edit("b", func(b *znode.BatchManifest) { b.Retrying = true })
	f.joinKeeper("k", quick(func(l *keepLimits) { l.ahead = 2 * time.Hour }))
	rig.Await(t, "it is ended", func() bool { return f.how("b") == znode.EndDiscarded })
}

// TestRetryOfAnEndedBatch: its dead tasks become a batch of their own, which is like it.
func TestRetryOfAnEndedBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := strings.Repeat("x", queue.MaxBatchID)
	c := f.submitConfig(id)
	c.Weight, c.Results = 5, queue.ResultsSubmitter
	got, err := Submit(t.Context(), f.s, c, numbered(2500))
	if err != nil {
		t.Fatal(err)
	}
	o, w := f.operator(), f.worker("w")
	w.work(func(payload []byte) (store.Outcome, []byte) {
		if len(payload) == 4 {
			return never(payload)
		}
		return echo(payload)
	})
	if err := o.Collected(t.Context(), id, got.Manifest); err != nil {
		t.Fatal(err)
	}
	if ids, err := o.WithDead(t.Context()); err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("with dead tasks: %q, %v", ids, err)
	}
	r, err := o.Retry(t.Context(), id)
	if err != nil || r.Tasks != 1500 || len(r.Batch) > queue.MaxBatchID || !strings.HasSuffix(r.Batch, ".retry") {
		t.Fatal(r, err)
	}
	m := f.batch(r.Batch)
	if m.Weight != 5 || m.Results != "keep:24h" || m.State != znode.BatchOpen {
		t.Errorf("%+v", m)
	}
	had := w.work(echo)
	if len(had) != 1500 || had[0] != "1000" || had[1499] != "2499" {
		t.Errorf("%d tasks, from %s to %s", len(had), had[0], had[len(had)-1])
	}
	if _, err := o.Retry(t.Context(), id); !errors.Is(err, ErrOtherBatch) {
		t.Error(err)
	}
	if err := o.Collected(t.Context(), r.Batch, m); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Retry(t.Context(), id); !errors.Is(err, ErrNoDead) {
		t.Error(err)
	}
	if b := f.books(); b.Batches != 0 || b.Bytes != 0 || b.WithDead != 0 {
		t.Errorf("left: %+v", b)
	}
}

// TestRetryGoesOn: a retry that stopped in the middle is finished by the next one, in a queue that is full of dead
// tasks. However late that is, the tasks that were moved are kept.
func TestRetryGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(q *queue.Queue) { q.MaxBytes, q.MaxTask = resource.Size(1<<20), 1<<10 })
	f.half("sign", "manifest")
	payloads := make([][]byte, 900)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, "%01000d", i)
	}
	got := f.submit("b", Payloads(payloads...))
	o, w := f.operator(), f.worker("w")
	w.work(never)
	if err := o.Collected(t.Context(), "b", got.Manifest); err != nil {
		t.Fatal(err)
	}
	c := f.submitConfig("b.retry")
	x := newSubmission(f.s, c, o.deadPayloads(f.store(), "b"))
	x.from = "b"
	x.c.Progress = nil
	if err := x.check(); err != nil {
		t.Fatal(err)
	}
	x.content, _ = measure(t.Context(), x.source, f.queue)
	for range 2 { // makes and reads the manifest
		if err := x.join.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := x.join.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.out.Generation, x.out.Queue = f.generation(), f.queue
		_ = x.manifest(t.Context())
	}
	if err := x.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := f.store()
	later := time.Now().Add(time.Hour)
	if n, err := st.Retry(t.Context(), "b", "b.retry", x.out.Manifest.Life, 0, 100, later); err != nil || n != 100 {
		t.Fatal(n, err)
	}
	if n, err := st.Drop(t.Context(), "b", 50, time.Now().Add(time.Hour)); err != nil || n != 50 {
		t.Fatal(n, err)
	}
	k := f.joinKeeper("k", quick(func(l *keepLimits) { l.ahead = l.giveUp }))
	rig.Await(t, "the end of another batch", func() bool { return f.gone("sign") })
	if err := k.Leave(); err != nil {
		t.Fatal(err)
	}
	r, err := o.Retry(t.Context(), "b")
	if err != nil || r != (Retried{"b.retry", 850}) {
		t.Fatal(r, err)
	}
	had := f.worker("w2").work(echo) // the keeper has evicted the other one: it has no znode
	if len(had) != 850 || had[99] != string(payloads[99]) || had[100] != string(payloads[150]) {
		t.Errorf("executed %d", len(had))
	}
}

// TestDropDead: they are gone, and so are their bytes.
func TestDropDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.submit("b", numbered(1500))
	o := f.operator()
	f.worker("w").work(never)
	if err := o.Collected(t.Context(), "b", got.Manifest); err != nil {
		t.Fatal(err)
	}
	if n, err := o.DropDead(t.Context(), "b"); err != nil || n != 1500 {
		t.Fatal(n, err)
	}
	if b := f.books(); b.WithDead != 0 || b.Bytes != 0 {
		t.Errorf("left: %+v", b)
	}
}
