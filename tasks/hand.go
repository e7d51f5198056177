package tasks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"muster/tasks/store"
	"muster/zkstate/znode"
)

// batchHand is what an executor knows of a batch that it has tasks of, or had. It is kept until the batch has ended.
// The mutex of the executor guards it.
type batchHand struct {
	id      string
	timeout time.Duration // of an attempt
	read    bool          // its manifest is; before that nothing of it is worked on
	over    bool          // it was cancelled, or has ended
	usable  bool          // it is worked on: it is neither paused nor cancelled, as far as is known
	mean    time.Duration // of an attempt here; 0: unknown
	short   int           // of its tasks in hand: those that count in the work of the executor
}

// guess is what a task of the batch is thought to take. One of which nothing is known is thought to be long.
func (b *batchHand) guess() time.Duration { return cmp.Or(b.mean, lookahead) }

// learned notes how long an attempt took. The caller holds mu.
func (e *Executor) learned(b *batchHand, took time.Duration) {
	before := b.guess()
	b.mean, e.mean = blend(b.mean, took), blend(e.mean, took)
	e.work += time.Duration(b.short) * (b.guess() - before)
}

// blend moves a mean towards a new value. 0 is no mean. It forgets slowly: a batch of which one task of a thousand is
// long must not seem to have short ones only.
func blend(mean, value time.Duration) time.Duration {
	if mean == 0 {
		return max(value, 1)
	}
	return max(mean+(value-mean)/64, 1)
}

// granted puts what Redis granted into the hand. The caller holds mu.
func (e *Executor) granted(grants []store.Grant) {
	e.grants = slices.DeleteFunc(e.grants, func(g *grant) bool { return g.open == 0 })
	for _, from := range grants {
		b := e.batches[from.Batch]
		if b == nil {
			b = &batchHand{id: from.Batch}
			e.batches[b.id] = b
			go e.follow(b)
		}
		e.add(b, from)
	}
	if len(grants) > 0 {
		e.announce()
	}
}

// add puts a grant into the hand. The caller holds mu.
func (e *Executor) add(b *batchHand, from store.Grant) {
	g := &grant{e: e, batch: b, tasks: make([]Task, len(from.Payloads)), open: len(from.Payloads)}
	for i, payload := range from.Payloads {
		g.tasks[i] = Task{
			Batch: b.id, Index: from.Index + int64(i), Attempt: from.Attempt, Payload: payload, Timeout: b.timeout,
			grant: g,
		}
	}
	e.grants = append(e.grants, g)
	e.open += g.open
	b.short += g.open
	e.work += b.guess() * time.Duration(g.open)
	if b.read {
		e.offer(g)
	}
}

// offer lets consumers take what is in a grant, unless its batch is not to be worked on. The caller holds mu.
func (e *Executor) offer(g *grant) {
	if !g.batch.usable {
		e.pace.rest = time.Now().Add(restTime)
	}
	for i := range g.tasks {
		t := &g.tasks[i]
		switch {
		case t.state != inHand:
		case !g.batch.usable, e.closing, e.paused:
			t.giveBack(context.Canceled)
		default:
			e.ready = append(e.ready, t)
		}
	}
}

// follow follows the manifest of a batch until the batch has ended.
func (e *Executor) follow(b *batchHand) {
	f := e.p.followBatch(b.id)
	for {
		changed := f.next()
		m, err := e.p.Manifest(e.p.ctx, b.id)
		if e.p.ctx.Err() != nil {
			return
		}
		over := err != nil || m.State == znode.BatchCancelled
		e.learn(b, m, over)
		if err == nil && !works(m) {
			// Redis granted something of it, so it may not know yet. The version makes a late call harmless.
			_, _ = e.p.store.Set(e.p.ctx, b.id, m.Life, int64(m.Version), m.Weight, string(m.State))
		}
		if over {
			return
		}
		select {
		case <-changed:
		case <-f.over:
		case <-e.done:
			return
		}
	}
}

// works reports whether a batch with this manifest is worked on. Redis granted something of it, so all of its tasks are
// there, also if its submitter has not said so yet.
func works(m Manifest) bool {
	return m.State == znode.BatchOpen || m.State == znode.BatchSubmitting
}

// learn notes what the manifest of a batch says. The caller does not hold mu.
func (e *Executor) learn(b *batchHand, m Manifest, over bool) {
	timeout := time.Duration(m.TaskTimeout)
	if timeout == 0 {
		timeout = time.Duration(e.p.Queue().TaskTimeout)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !b.read
	b.read, b.over, b.usable, b.timeout = true, over, !over && works(m), timeout
	if over && e.batches[b.id] == b {
		delete(e.batches, b.id)
	}
	for _, g := range e.grants {
		if g.batch != b || b.usable && !first {
			continue
		}
		for i := range g.tasks {
			t := &g.tasks[i]
			if first {
				t.Timeout = timeout
			}
			if over && t.state == taken && t.end != nil {
				t.end(ErrBatchOver)
			}
		}
		e.offer(g)
	}
	if b.usable {
		e.announce()
	}
}

// over ends everything with the loop.
func (e *Executor) over() {
	e.mu.Lock()
	defer e.mu.Unlock()
	why := context.Cause(e.p.ctx)
	if why == nil {
		why = cmp.Or(e.ended, ErrDrained)
	}
	e.closing = true
	e.each(func(t *Task) { t.leave(gone, why) })
	if e.ended == nil || e.p.ctx.Err() != nil {
		e.ended = why
	}
	e.announce()
}

// drainReport is how long Drain waits for Redis to hear of the last results.
const drainReport = 5 * time.Second

// Drain takes nothing more, and gives back what was not taken. It waits until consumers have finished what they took,
// or until ctx ends; what is left then goes back, too, its contexts end, and nobody is charged. It returns when Redis
// knows all results. An error says that it does not know some: their tasks run again. Then Leave.
func (e *Executor) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.close(ErrDrained)
	e.mu.Unlock()
	select {
	case <-e.done:
	case <-ctx.Done():
		e.mu.Lock()
		e.each(func(t *Task) { t.giveBack(ErrDrained) })
		e.mu.Unlock()
		timer := time.NewTimer(drainReport)
		defer timer.Stop()
		select {
		case <-e.done:
		case <-timer.C:
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.results); n > 0 {
		return fmt.Errorf("redis does not know %d results: their tasks run again", n)
	}
	return nil
}
