package tasks

import (
	"context"
	"errors"
	"slices"

	"muster/tasks/store"
)

// sync gives back what is not in hand any more.
func (e *Executor) sync() error {
	e.mu.Lock()
	keep, back := e.keep(), e.back
	e.mu.Unlock()
	var kept []store.Held
	for more := true; more; {
		err := e.p.Call(e.p.ctx, func(ctx context.Context, seq int64) (err error) {
			kept, more, err = e.p.store.Sync(ctx, e.p.Seat, seq, keep)
			return err
		})
		if err != nil {
			return err
		}
	}
	e.settle(kept, back)
	return nil
}

// recover waits until Redis answers, and learns what is still held. It returns false when the membership is over, or
// when waiting is of no use.
func (e *Executor) recover(err error) bool {
	if hopeless(err) {
		return e.fail(err)
	}
	if refused(err) && !errors.Is(err, store.ErrSeq) && !errors.Is(err, store.ErrNoSeat) {
		return e.p.Pause(e.p.ctx, err) == nil // nothing was changed: once more, later
	}
	if errors.Is(err, store.ErrReply) && e.p.Pause(e.p.ctx, err) != nil { // Sync may be answered, and that never be
		return false
	}
	for {
		e.mu.Lock()
		keep, back := e.keep(), e.back
		e.count.Recovered++
		e.mu.Unlock()
		kept, err := e.p.Recover(e.p.ctx, keep)
		if err == nil {
			e.settle(kept, back)
			return true
		}
		if hopeless(err) {
			return e.fail(err)
		}
		if e.p.Pause(e.p.ctx, err) != nil {
			return false
		}
	}
}

// fail notes why the loop ends. It returns false.
func (e *Executor) fail(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = err
	return false
}

// keep is what this executor believes to hold. The caller holds mu.
func (e *Executor) keep() []store.Held {
	var keep []store.Held
	e.each(func(t *Task) {
		keep = append(keep, store.Held{Task: store.Task{Batch: t.Batch, Index: t.Index}, Attempt: t.Attempt})
	})
	for _, r := range e.results {
		keep = append(keep, store.Held{Task: r.Task, Attempt: r.Attempt})
	}
	return keep
}

// settle forgets what is not held: Redis has the results, or other executors have the tasks. So many tasks were given
// back.
func (e *Executor) settle(kept []store.Held, back int) {
	held := make(map[store.Task]bool, len(kept))
	for _, h := range kept {
		held[h.Task] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.back -= back
	e.pace.dry = false
	lost := 0
	e.each(func(t *Task) {
		if !held[store.Task{Batch: t.Batch, Index: t.Index}] {
			t.leave(gone, ErrNotHeld)
			lost++
		}
	})
	e.results = slices.DeleteFunc(e.results, func(r store.Result) bool {
		if !held[r.Task] {
			e.bytes -= len(r.Data)
		}
		return !held[r.Task]
	})
	if lost > 0 {
		e.p.log.Warn("tasks are not held any more: others execute them", "tasks", lost)
	}
}
