package tasks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"time"

	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// Of a batch that has not ended they wait again in it. Its manifest says so meanwhile: see batch.go.
//
// The dead tasks of a batch that has ended are moved to another batch, which is submitted like any: manifest, begin,
// then a page after the other at its offset, open, manifest. Dead tasks stay in the list of the old batch until Redis
// has moved them, in one script. Whoever retries again finds the manifest, and goes on with what is left.

// retrySuffix follows the id of a batch that has ended, in the id of the batch that gets its dead tasks.
const retrySuffix = ".retry"

// RetryID is the id of the batch that gets the dead tasks of a batch that has ended: with ".retry" at its end. If that
// is too long, the middle is eight digits of a sum of the id instead of what does not fit.
func RetryID(id string) string {
	if len(id)+len(retrySuffix) <= queue.MaxBatchID {
		return id + retrySuffix
	}
	middle := fmt.Sprintf("-%x", sha256.Sum256([]byte(id)))[:9]
	return id[:queue.MaxBatchID-len(retrySuffix)-len(middle)] + middle + retrySuffix
}

// Retried says what Retry has done.
type Retried struct {
	Batch string // where the tasks are now
	Tasks int64  // how many: after a lost reply maybe more
}

// ErrNoDead means that there is nothing to retry: the batch has no dead tasks.
var ErrNoDead = errors.New("the batch has no dead tasks")

// Retry makes the dead tasks of a batch wait again, with all their attempts. If the batch has ended they become a batch
// of their own, see RetryID. A batch that watchers have given up may also be claimed again.
func (o *Operator) Retry(ctx context.Context, id string) (r Retried, err error) {
	defer wrapf(&err, "retry %s", id)
	m, err := o.write(ctx, id, func(m *znode.BatchManifest) error {
		m.Retrying = true
		return operable(*m)
	})
	if errors.Is(err, ErrNoBatch) {
		return o.retryEnded(ctx, id)
	}
	if err != nil {
		return Retried{}, err
	}
	r, err = o.retryUnfinished(ctx, id, m)
	return r, errors.Join(err, o.retried(ctx, id, r))
}

// unsetLimit is how long a retry takes that was stopped to say that it has stopped.
const unsetLimit = 5 * time.Second

// retried takes back that the batch is retried. A batch that goes on is not completed.
func (o *Operator) retried(ctx context.Context, id string, r Retried) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsetLimit)
	defer cancel()
	_, err := o.write(ctx, id, func(m *znode.BatchManifest) error {
		if m.Retrying = false; r.Tasks > 0 {
			m.Completed = time.Time{}
		}
		return nil
	})
	if errors.Is(err, ErrNoBatch) { // cancelled
		return nil
	}
	return err
}

// retryUnfinished makes the dead tasks of a batch wait again in it.
func (o *Operator) retryUnfinished(ctx context.Context, id string, m Manifest) (Retried, error) {
	b, err := o.Books(ctx, id)
	if err != nil {
		return Retried{}, err
	}
	r := Retried{Batch: id}
	err = o.eachDead(ctx, id, func(st *store.Queue, before time.Time) (int64, error) {
		n, err := st.Retry(ctx, id, id, m.Life, 0, store.MaxItems, before)
		r.Tasks += n
		return n, err
	})
	if err == nil && b.Dead == 0 && b.Tries == 0 {
		err = ErrNoDead
	}
	return r, err
}

// Books reads the books of a batch in Redis.
func (o *Operator) Books(ctx context.Context, id string) (store.Batch, error) {
	return ask(ctx, o, func(st *store.Queue) (store.Batch, error) { return st.Batch(ctx, id) })
}

// retryEnded submits the dead tasks of a batch that has ended.
func (o *Operator) retryEnded(ctx context.Context, id string) (Retried, error) {
	st, err := o.Store(ctx)
	if err != nil {
		return Retried{}, err
	}
	c := SubmitConfig{
		Root: o.c.Root, Queue: o.c.Queue, ID: RetryID(id), By: o.c.By, Redis: o.c.Redis,
		Waiting: o.c.Waiting,
	}
	if err := o.asBefore(ctx, id, &c); err != nil {
		return Retried{}, err
	}
	x := newSubmission(o.s, c, o.deadPayloads(st, id))
	defer x.join.disconnect()
	x.from = id
	begun, err := o.Manifest(ctx, c.ID)
	switch {
	case err == nil && begun.State == znode.BatchSubmitting:
		x.content = content{begun.Tasks, begun.Bytes, begun.Bytes + begun.Tasks*store.Cost(nil), begun.SHA256}
	case err == nil:
		return Retried{}, fmt.Errorf("%w: %s has not ended", ErrOtherBatch, c.ID)
	case !errors.Is(err, ErrNoBatch):
		return Retried{}, err
	}
	err = x.run(ctx)
	if errors.Is(err, ErrNoTasks) {
		err = o.noDead(ctx, id)
	}
	if err == nil && x.out.Ended != nil {
		err = fmt.Errorf("%w: %s has ended before", ErrOtherBatch, c.ID)
	}
	return Retried{c.ID, x.out.Manifest.Tasks}, err
}

// asBefore makes a retry like the batch that has ended, if that is still known. Nobody waits for the results who waited
// for those of that one, so they are kept.
func (o *Operator) asBefore(ctx context.Context, id string, c *SubmitConfig) error {
	e, err := o.Ended(ctx, id)
	if err != nil || e == nil {
		return err
	}
	c.Weight, c.Results, c.Attempts, c.TaskTimeout = e.Weight, e.Results, e.Attempts, time.Duration(e.TaskTimeout)
	if c.Results == queue.ResultsSubmitter {
		c.Results = queue.KeepResults + "24h"
	}
	return nil
}

// noDead says why there is nothing to retry.
func (o *Operator) noDead(ctx context.Context, id string) error {
	e, err := o.Ended(ctx, id)
	if err == nil && e == nil {
		return ErrNoBatch
	}
	return errors.Join(err, ErrNoDead)
}

// deadPayloads is the source of a retry.
func (o *Operator) deadPayloads(st *store.Queue, id string) Source {
	return func(ctx context.Context, _ queue.Queue) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			for r, err := range DeadTasks(ctx, st, id, o.Away(ctx)) {
				if !yield(r.Task, err) || err != nil {
					return
				}
			}
		}
	}
}

// move moves the dead tasks of another batch to this one.
func (x *submission) move(ctx context.Context) error {
	length, before := int64(-1), int64(-1)
	for length < x.content.tasks {
		err := x.call(ctx, func(st *store.Queue) (err error) {
			length, err = st.Append(ctx, x.c.ID, x.out.Manifest.Life, 0, nil) // which tells how many there are
			return err
		})
		switch {
		case err != nil || length == x.content.tasks:
			return err
		case length == before: // the call before moved nothing
			return x.shorten(ctx, length)
		}
		before = length
		err = x.call(ctx, func(st *store.Queue) error {
			n := int(min(x.content.tasks-length, store.MaxItems))
			_, err := st.Retry(ctx, x.from, x.c.ID, x.out.Manifest.Life, length, n, time.Now().AddDate(100, 0, 0))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shorten makes the batch end with the tasks that it has: somebody has dropped others meanwhile.
func (x *submission) shorten(ctx context.Context, length int64) error {
	m := x.out.Manifest
	if length == 0 {
		return errors.Join(ErrNoDead, x.cancel(ctx))
	}
	next := m.BatchManifest
	next.Tasks = length // the sum is that of all: no other content is taken for this one
	err := x.ledger().set(ctx, x.c.ID, &m, next)
	if err == nil {
		x.content.tasks = length
		err = errAgain
	}
	return err
}
