package store

import (
	"context"
	"time"

	"muster/tasks/store/storemodel"
)

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
