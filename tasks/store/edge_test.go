package store

import (
	"errors"
	"muster/resource/queue"
	"slices"
	"testing"
	"time"
)

// TestABrokenBatchIsLeftAlone: it is refused and named, others go on, and it can be removed.
func TestABrokenBatchIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, spoil := range map[string]func(q *testQueue) error{
		"a task is gone":      func(q *testQueue) error { return q.c.LPop(ctx, q.prefix+"b:bad:w").Err() },
		"a result is new":     func(q *testQueue) error { return q.c.RPush(ctx, q.prefix+"b:bad:r", "x").Err() },
		"another type":        func(q *testQueue) error { return q.c.Set(ctx, q.prefix+"b:bad:late", "x", 0).Err() },
		"no counts":           func(q *testQueue) error { return q.c.Del(ctx, q.prefix+"b:bad").Err() },
		"counts of that type": func(q *testQueue) error { return q.c.Set(ctx, q.prefix+"b:bad", "x", 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			q.submit("bad", 1, 3, payloads(5)...)
			e := q.seat("e", queue.Executor, 1)
			e.turn(Turn{Idle: 2})
			q.submit("good", 1, 3, payloads(5)...)
			if err := spoil(q); err != nil {
				t.Fatal(err)
			}
			out := e.turn(Turn{Idle: 10, Results: e.finish(Done, time.Millisecond)})
			if len(out.Refused) == 0 || out.Refused[0].Why != "broken" {
				t.Errorf("refused: %+v", out.Refused)
			}
			if len(out.Granted) != 1 || out.Granted[0].Batch != "good" {
				t.Errorf("granted: %+v", out.Granted)
			}
			if err := q.Set(ctx, "bad", "life-bad", 1, 1, "paused"); !errors.Is(err, ErrBroken) {
				t.Error(err)
			}
			all := must(q.Batches(ctx, 0, 10))(t)
			if all[0].Broken == "" || all[1].Broken != "" {
				t.Errorf("books: %+v", all)
			}
			for _, b := range all {
				if one := must(q.Batch(ctx, b.ID))(t); one != b {
					t.Errorf("one: %+v, of all: %+v", one, b)
				}
			}
			if _, err := q.Batch(ctx, "none"); !errors.Is(err, ErrNoBatch) {
				t.Error(err)
			}
			succeeds(t, q.Remove(ctx, "bad", ""))
			q.evict(Left, "e")
			if b := must(q.Books(ctx))(t); b.Batches != 1 || len(b.Seats) != 0 {
				t.Errorf("left: %+v", b)
			}
		})
	}
}

// TestAnOldHandDoesNotReachANewBatchOfTheSameName: nothing of it comes back, and its results do not count.
func TestAnOldHandDoesNotReachANewBatchOfTheSameName(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(2)...)
	evicted, finishing := q.seat("e1", queue.Executor, 1), q.seat("e2", queue.Executor, 1)
	keeping := q.seat("e3", queue.Executor, 1)
	evicted.turn(Turn{Idle: 1})
	finishing.turn(Turn{Idle: 1})
	succeeds(t, q.Remove(t.Context(), "b", "life-b"))
	q.submit("b", 1, 3, payloads(7)...)
	q.evict(Died, "e1")
	out := finishing.turn(Turn{Results: finishing.finish(Done, time.Millisecond)})
	if len(out.Refused) != 1 || out.Refused[0].Why != "gone" {
		t.Errorf("%+v", out)
	}
	keeping.turn(Turn{Idle: 1})
	b := must(q.Batches(t.Context(), 0, 1))(t)[0]
	if b.Waiting != 6 || b.Out != 1 || b.Returned != 0 || b.Done != 0 || b.Broken != "" {
		t.Errorf("%+v", b)
	}
}

// TestSyncKeepsAnAttempt: what the seat holds at another attempt than it believes goes back, uncharged; a late turn of
// before then is refused.
func TestSyncKeepsAnAttempt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 3, payloads(8)...)
	e := q.seat("e", queue.Executor, 8)
	e.turn(Turn{Idle: 4})
	believed := slices.Clone(e.hand)
	believed[1].Attempt = 2
	kept, more, err := q.Sync(t.Context(), "e", 10, append(believed[:3], Held{Task: Task{"b", 7}, Attempt: 1}))
	if err != nil || more || len(kept) != 2 || kept[0].Index != 0 || kept[1].Index != 2 {
		t.Errorf("kept %+v, %v, %v", kept, more, err)
	}
	if _, err := q.Turn(t.Context(), "e", 2, Turn{Idle: 4}); !errors.Is(err, ErrSeq) {
		t.Errorf("a late turn: %v", err)
	}
	if b := must(q.Batches(t.Context(), 0, 1))(t)[0]; b.Out != 2 || b.Returned != 2 || b.Waiting != 4 {
		t.Errorf("%+v", b)
	}
	again := must(q.Turn(t.Context(), "e", 11, Turn{Idle: 2, MaxBytes: manyBytes}))(t)
	for _, g := range again.Granted {
		if g.Attempt != 1 {
			t.Errorf("charged: %+v", g)
		}
	}
}

// TestABatchThatKillsItsWatchers: two deaths are accidents; each one after them is a try.
func TestABatchThatKillsItsWatchers(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 2)
	var tries []int
	for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
		w := q.seat(name, queue.Watcher, 0)
		if c := w.claim(); c != nil {
			tries = append(tries, c.Try)
		}
		q.evict(Died, name)
	}
	if !slices.Equal(tries, []int{1, 1, 1, 2}) {
		t.Errorf("tries: %v", tries)
	}
	w := q.seat("w6", queue.Watcher, 0)
	must(q.Retry(t.Context(), "b", "b", "life-b", 0, 0, q.now))(t)
	if c := w.claim(); c == nil || c.Try != 1 {
		t.Errorf("after a retry: %+v", c)
	}
}

// TestBeginChecksItsArguments: what no batch may be leaves nothing behind.
func TestBeginChecksItsArguments(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	good := NewBatch{ID: "b", Life: "life", Weight: 1, Attempts: 1, Results: "keep:1.5h", Bytes: 33}
	for what, edit := range map[string]func(b *NewBatch){
		"results":       func(b *NewBatch) { b.Results = "nonsense" },
		"no results":    func(b *NewBatch) { b.Results = "" },
		"kept how long": func(b *NewBatch) { b.Results = "keep:" },
		"weight":        func(b *NewBatch) { b.Weight = 0 },
		"large weight":  func(b *NewBatch) { b.Weight = 1001 },
		"attempts":      func(b *NewBatch) { b.Attempts = 0 },
		"bytes":         func(b *NewBatch) { b.Bytes = -1 },
	} {
		bad := good
		edit(&bad)
		if err := q.Begin(t.Context(), bad, manyBytes); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b := must(q.Batches(t.Context(), 0, 9))(t); len(b) > 0 {
		t.Errorf("it has begun: %+v", b)
	}
	for _, results := range []string{"watcher", "submitter", "discard", "keep:24h", "keep:1.5h"} {
		good.ID, good.Results = "b-"+results[:4], results
		succeeds(t, q.Begin(t.Context(), good, manyBytes))
	}
}

// TestNobodyIsWokenForWhatNobodyCanTake: as many executors as may have a suspect, and only suspects wait. The token
// would go round for ever.
func TestNobodyIsWokenForWhatNobodyCanTake(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("b", 1, 9, payloads(4)...)
	for _, name := range []string{"d1", "d2"} {
		q.seat(name, queue.Executor, 9).turn(Turn{Idle: 9, Room: time.Hour})
		q.evict(Died, name)
	}
	woken := func() bool { return q.keys()["wake:e"] }
	e1, e2, e3 := q.seat("e1", queue.Executor, 9), q.seat("e2", queue.Executor, 9), q.seat("e3", queue.Executor, 9)
	if e1.turn(Turn{Idle: 9, Room: time.Hour}); len(e1.hand) != 1 || !woken() {
		t.Errorf("e1 has %+v; woken: %t, and e2 could take one", e1.hand, woken())
	}
	if e2.turn(Turn{Idle: 9, Room: time.Hour}); len(e2.hand) != 1 || woken() {
		t.Errorf("e2 has %+v; woken: %t", e2.hand, woken())
	}
	if e3.turn(Turn{Idle: 9, Room: time.Hour}); len(e3.hand) != 0 || woken() {
		t.Errorf("e3 has %+v; woken: %t", e3.hand, woken())
	}
	if e1.turn(Turn{Results: e1.finish(Done, time.Millisecond)}); !woken() {
		t.Error("e1 could take one, and is not woken")
	}
}
