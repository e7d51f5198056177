package cli

import (
	"context"
	"maps"
	"slices"

	"muster/page"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/view"
)

// Limits of what the page shows of a queue.
const (
	maxShownDead  = 20   // tasks of a batch
	maxShownHands = 1000 // executors
)

// redisLookout tells the page how far the batches of a queue are.
type redisLookout struct {
	st       *store.Queue
	close    func()
	maxBytes int64
	dead     map[string]deadOfBatch // by batch, as they were read last
}

// deadOfBatch are the newest dead tasks of a batch, and its books at that time: without a change there are no others.
type deadOfBatch struct {
	books store.Batch
	tasks []page.DeadTask
}

// openLookout connects to the Redis of a queue.
func (p *process) openLookout(ctx context.Context, rec *resource.Record) (page.Lookout, error) {
	st, done, err := tasks.Look(ctx, rec, tasks.Access{Getenv: p.environ.value})
	if err != nil {
		return nil, err
	}
	return &redisLookout{st: st, close: done, maxBytes: int64(queue.Of(rec).MaxBytes)}, nil
}

// Close closes the connection.
func (l *redisLookout) Close() { l.close() }

// Progress says how far the batches of d are.
func (l *redisLookout) Progress(ctx context.Context, d *view.Queue) (page.Progress, error) {
	var p page.Progress
	known, err := l.st.ByID(ctx)
	if err != nil {
		return p, err
	}
	held, err := l.st.Full(ctx, l.maxBytes)
	if err != nil {
		return p, err
	}
	process := map[string]string{} // by seat
	var executors []string
	for _, m := range d.Processes {
		if m.Seat == "" {
			continue
		}
		process[m.Seat] = m.Identity
		if m.Role == queue.Executor && len(executors) < maxShownHands {
			executors = append(executors, m.Seat)
		}
	}
	dead := make(map[string]deadOfBatch, len(l.dead))
	for _, b := range d.Batches {
		row := view.BatchRow{Batch: b}
		books, there := known[b.ID]
		count(&row, books, there, held > 0)
		p.Batches = append(p.Batches, page.BatchProgress{BatchRow: row, Watcher: process[books.Holder]})
		if books.Dead > 0 {
			if dead[b.ID], err = l.readDead(ctx, books); err != nil {
				return p, err
			}
			p.Dead = append(p.Dead, dead[b.ID].tasks...)
		}
	}
	l.dead = dead
	slices.SortStableFunc(p.Dead, func(a, b page.DeadTask) int { return b.Died.Compare(a.Died) })
	hands, err := l.st.Hands(ctx, executors)
	for _, seat := range executors {
		for _, batch := range slices.Sorted(maps.Keys(hands[seat])) {
			p.Hands = append(p.Hands, page.Hand{Process: process[seat], Batch: batch, Tasks: hands[seat][batch]})
		}
	}
	return p, err
}

// readDead reads the newest dead tasks of a batch if its books have changed.
func (l *redisLookout) readDead(ctx context.Context, books store.Batch) (deadOfBatch, error) {
	if last, ok := l.dead[books.ID]; ok && last.books == books {
		return last, nil
	}
	all, err := l.st.DeadTasks(ctx, books.ID, max(0, books.Dead-maxShownDead))
	if err != nil {
		return deadOfBatch{}, err
	}
	now := deadOfBatch{books: books}
	for _, d := range slices.Backward(all[max(0, len(all)-maxShownDead):]) { // more than asked for may have come
		now.tasks = append(now.tasks, page.DeadTask{
			Batch: books.ID, Index: d.Index, Attempt: d.Attempt, Deaths: d.Deaths, Died: d.Died,
			Reason:  string(tasks.DecodeAnswer([]byte(d.Reason)).Body),
			Payload: string(d.Payload[:min(len(d.Payload), maxShownTask)]),
		})
	}
	return now, nil
}
