package tasks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// What an operator changes of a batch is written into its manifest, at the version read, and then told to Redis with
// the version that it has then. Redis refuses an older one. A process that dies between the two leaves a manifest that
// is newer than what Redis knows: the smallest seat, or the same call once more, tells it.
//
// Only what makes a batch checks the Record: what is in a queue that was asked to stop can still be operated on, so
// that it can be emptied.

// OperatorConfig says who operates on which queue.
type OperatorConfig struct {
	Root, Queue string
	By          string // user@host
	Redis       Access
	// Waiting, unless nil, is called when an operation begins to wait: for what.
	Waiting func(what string)
}

// Operator operates on the batches of a queue. It needs a session, and no seat. Its methods wait for Redis until their
// context ends.
type Operator struct {
	Queue      queue.Queue // as declared when it was opened
	Generation string

	ledger // Manifest and Ended
	c      OperatorConfig
	client *redis.Client
	waits  string // what Waiting was told last
	why    error  // Redis did not answer last, before the context ended
}

// ErrSubmitting means that the tasks of the batch are still being written. Wait, or submit it again if its submitter is
// gone.
var ErrSubmitting = errors.New("the batch is still being submitted")

// NewOperator reads what is declared, and sends nothing to Redis. ErrNoQueue: there is none. Close it at the end.
func NewOperator(ctx context.Context, s *zkconn.Session, c OperatorConfig) (*Operator, error) {
	at := resource.Join(c.Root, c.Queue)
	rec, _, err := zkstate.ReadRecord(ctx, s, queue.Kind(), at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, fmt.Errorf("%s: %w", at, ErrNoQueue)
	}
	if err == nil {
		err = zkstate.CheckOwn(ctx, s, &rec)
	}
	if err != nil {
		return nil, err
	}
	return &Operator{
		Queue: queue.Of(&rec), Generation: rec.Generation, c: c, ledger: ledger{s, c.Root, rec.Generation},
	}, nil
}

// Close closes the connection to Redis.
func (o *Operator) Close() {
	if o.client != nil {
		_ = o.client.Close()
	}
}

// Store is the queue in Redis. It connects if that was not done yet, and waits for Redis until ctx ends.
func (o *Operator) Store(ctx context.Context) (*store.Queue, error) {
	if o.client == nil {
		err := until(o.Away(ctx), func() (err error) {
			o.client, err = o.c.Redis.connect(ctx, o.Queue)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return open(o.client, o.Queue, o.Generation), nil
}

// until calls f, which can be repeated, until Redis answers. After each error away waits, or says why that is of no
// use; nil does not wait.
func until(away func(error) error, f func() error) error {
	for {
		err := f()
		if err == nil || away == nil {
			return err
		}
		if err := away(err); err != nil {
			return err
		}
	}
}

// wait says for what the operation waits, if it did not say so last.
func (o *Operator) wait(what string) {
	if o.c.Waiting != nil && o.waits != what {
		o.c.Waiting(what)
		o.waits = what
	}
}

// Away returns a function that waits after each error of Redis until ctx ends, or returns why that is of no use: for
// Records.
func (o *Operator) Away(ctx context.Context) func(error) error {
	tries := 0
	return func(err error) error {
		if refused(err) && !errors.Is(err, store.ErrMemory) || hopeless(err) || errors.As(err, new(*zkconn.Error)) {
			return err
		}
		if ctx.Err() == nil {
			o.wait("Redis: " + err.Error())
			o.why = err
		} else if o.why != nil { // the last call was cut, and tells less
			err = o.why
		}
		tries++
		if Rest(ctx, tries) != nil {
			return fmt.Errorf("%w: %w: %w", ErrRedis, err, context.Cause(ctx))
		}
		return nil
	}
}

// call makes a call of Redis that can be repeated, until it is answered.
func (o *Operator) call(ctx context.Context, f func(st *store.Queue) error) error {
	st, err := o.Store(ctx)
	if err != nil {
		return err
	}
	return until(o.Away(ctx), func() error { return f(st) })
}

// ask is call for what has an answer.
func ask[T any](ctx context.Context, o *Operator, f func(st *store.Queue) (T, error)) (answer T, err error) {
	err = o.call(ctx, func(st *store.Queue) (err error) {
		answer, err = f(st)
		return err
	})
	return answer, err
}

// Batches lists the ids of the unfinished batches, sorted.
func (o *Operator) Batches(ctx context.Context) ([]string, error) {
	ids, _, err := o.s.Children(ctx, znode.Batches(o.c.Root, o.Generation))
	if errors.Is(err, zkconn.ErrNoNode) { // nothing was submitted yet
		return nil, nil
	}
	return ids, err
}

// Pause stops new tasks of a batch from being taken; those in hand are finished. It reports whether it was not paused
// before. ErrSubmitting, ErrCancelled, ErrNoBatch: it cannot be paused.
func (o *Operator) Pause(ctx context.Context, id string) (changed bool, err error) {
	return o.setState(ctx, id, znode.BatchPaused)
}

// Resume ends a pause.
func (o *Operator) Resume(ctx context.Context, id string) (changed bool, err error) {
	return o.setState(ctx, id, znode.BatchOpen)
}

func (o *Operator) setState(ctx context.Context, id string, to znode.BatchState) (changed bool, err error) {
	err = o.change(ctx, id, func(m *znode.BatchManifest) error {
		if err := operable(*m); err != nil {
			return err
		}
		changed = changed || m.State != to // also when it is seen again after a lost reply
		m.State = to
		return nil
	})
	return changed, err
}

// operable is why a batch cannot be paused, resumed or retried.
func operable(m znode.BatchManifest) error {
	switch m.State {
	case znode.BatchSubmitting:
		return ErrSubmitting
	case znode.BatchCancelled:
		return ErrCancelled
	}
	return nil
}

// SetWeight changes the share of a batch.
func (o *Operator) SetWeight(ctx context.Context, id string, weight int) error {
	if weight < 1 || weight > queue.MaxWeight {
		return fmt.Errorf("weight: %d is not between 1 and %d", weight, queue.MaxWeight)
	}
	return o.change(ctx, id, func(m *znode.BatchManifest) error {
		m.Weight = weight
		return nil
	})
}

// change edits a manifest, and tells Redis.
func (o *Operator) change(ctx context.Context, id string, edit func(*znode.BatchManifest) error) (err error) {
	defer resource.Wrapf(&err, "batch %s", id)
	m, err := o.write(ctx, id, edit)
	if err == nil && m.State != znode.BatchSubmitting { // or else its submitter tells Redis
		err = o.call(ctx, func(st *store.Queue) error { return m.tell(ctx, st, id) })
	}
	if errors.Is(err, store.ErrNoBatch) || errors.Is(err, store.ErrLife) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// ErrLost means that Redis does not have a batch that ZooKeeper has. Submit it again with its id, or cancel it.
var ErrLost = errors.New("redis has lost the batch")

func (o *Operator) write(ctx context.Context, id string, edit func(*znode.BatchManifest) error) (Manifest, error) {
	for {
		m, err := o.Manifest(ctx, id)
		if err != nil {
			return m, err
		}
		next := m.BatchManifest
		if err := edit(&next); err != nil || next == m.BatchManifest {
			return m, err
		}
		if err := o.ledger.set(ctx, id, &m, next); !errors.Is(err, errAgain) {
			return m, err
		}
	}
}

// Cancel ends a batch. Its commands are killed, and what is done of it is removed. In ZooKeeper that is done even if
// Redis does not answer: the smallest seat does the rest then.
func (o *Operator) Cancel(ctx context.Context, id string) (err error) {
	defer resource.Wrapf(&err, "cancel %s", id)
	m, err := o.write(ctx, id, func(m *znode.BatchManifest) error {
		m.State = znode.BatchCancelled
		return nil
	})
	if err != nil {
		return err
	}
	err = o.end(ctx, id, m, znode.EndCancelled)
	resource.Wrapf(&err, "it is cancelled, and is removed when a process of the queue reaches Redis")
	return err
}

// Collected ends a batch whose results were read.
func (o *Operator) Collected(ctx context.Context, id string, m Manifest) error {
	return o.end(ctx, id, m, znode.EndCollected)
}

func (o *Operator) end(ctx context.Context, id string, m Manifest, how znode.EndState) error {
	return o.call(ctx, func(st *store.Queue) error { return o.ledger.end(ctx, st, id, m, how, o.c.By) })
}

// WithDead lists the batches that have dead tasks, also those that have ended: the first store.MaxDeadBatches of them.
func (o *Operator) WithDead(ctx context.Context) ([]string, error) {
	return ask(ctx, o, func(st *store.Queue) ([]string, error) {
		return st.DeadBatches(ctx, time.Now().AddDate(100, 0, 0), store.MaxDeadBatches)
	})
}

// DropDead deletes the dead tasks of a batch that are there when it begins. It returns how many it deleted: after a
// lost reply some more were.
func (o *Operator) DropDead(ctx context.Context, id string) (dropped int64, err error) {
	err = o.eachDead(ctx, id, func(st *store.Queue, before time.Time) (int64, error) {
		n, err := st.Drop(ctx, id, store.MaxItems, before)
		dropped += n
		return n, err
	})
	return dropped, err
}

// eachDead calls f until no dead task is left that had died when it began.
func (o *Operator) eachDead(
	ctx context.Context, id string, f func(st *store.Queue, before time.Time) (int64, error),
) (err error) {
	defer resource.Wrapf(&err, "dead tasks of %s", id)
	books, err := ask(ctx, o, func(st *store.Queue) (store.Books, error) { return st.Books(ctx) })
	before := books.Now.Add(time.Millisecond)
	for n := int64(1); n > 0 && err == nil; {
		n, err = ask(ctx, o, func(st *store.Queue) (int64, error) { return f(st, before) })
	}
	return err
}

// Nobody tells a submitter that a batch is completed, so it asks Redis: at first after firstAsk, then half as often
// each time until askEvery.
const (
	firstAsk = 20 * time.Millisecond
	askEvery = time.Second
)

// attendEvery is how often who waits for a batch writes its manifest: results that nobody waits for are removed a day
// after it was last written.
const attendEvery = time.Hour

// Await waits until all tasks of a batch are done or dead, and returns its books. each, unless nil, is called with the
// books whenever they were read. If the batch has ended, it returns how; ErrNoBatch: that is forgotten, too. ErrLost:
// Redis does not have it.
func (o *Operator) Await(
	ctx context.Context, id string, m Manifest, each func(store.Batch),
) (store.Batch, *znode.BatchEnd, error) {
	wait, attended := firstAsk, time.Now()
	for {
		b, err := o.Books(ctx, id)
		if err == nil && b.Broken != "" {
			err = fmt.Errorf("%w: %s", store.ErrBroken, b.Broken)
		}
		if errors.Is(err, store.ErrNoBatch) || err == nil && (b.Life != m.Life || b.State == string(znode.BatchCancelled)) {
			end, err := o.whyGone(ctx, id, m)
			return b, end, err
		}
		if err != nil {
			return b, nil, fmt.Errorf("batch %s: %w", id, err)
		}
		if each != nil {
			each(b)
		}
		if completed(b) {
			return b, nil, nil
		}
		if b.Out == 0 && b.Waiting+b.Returned > 0 {
			if err := o.tellFull(ctx); err != nil {
				return b, nil, err
			}
		}
		if time.Since(attended) > attendEvery {
			attended = time.Now()
			if err := o.Attend(ctx, id); err != nil {
				return b, nil, err
			}
		}
		pause(ctx, wait/2+rand.N(wait/2), o.s.Context().Done())
		switch {
		case ctx.Err() != nil:
			return b, nil, context.Cause(ctx)
		case o.s.Context().Err() != nil:
			return b, nil, context.Cause(o.s.Context())
		}
		wait = min(2*wait, askEvery)
	}
}

// tellFull says that nothing is executed, if Redis holds too much.
func (o *Operator) tellFull(ctx context.Context) error {
	held, err := o.Full(ctx)
	if err == nil && held > 0 {
		o.wait(fmt.Sprintf("room in Redis: it holds %.1f MiB, more than twice max_bytes (%s), and nothing is executed "+
			"until a batch ends; raise max_bytes and apply, or cancel a batch", float64(held)/(1<<20), o.Queue.MaxBytes))
	}
	return err
}

// Full is that of store.Books.
func (o *Operator) Full(ctx context.Context) (held int64, err error) {
	books, err := ask(ctx, o, func(st *store.Queue) (store.Books, error) { return st.Books(ctx) })
	return books.Full(int64(o.Queue.MaxBytes)), err
}

func (o *Operator) whyGone(ctx context.Context, id string, m Manifest) (*znode.BatchEnd, error) {
	now, err := o.Manifest(ctx, id)
	switch {
	case errors.Is(err, ErrNoBatch), err == nil && now.Life != m.Life:
		end, err := o.Ended(ctx, id)
		if err == nil && end == nil {
			err = ErrNoBatch
		}
		return end, err
	case err != nil:
		return nil, err
	case now.State == znode.BatchCancelled:
		return nil, ErrCancelled
	}
	return nil, ErrLost
}

// Attend writes the manifest of a batch as it is: somebody waits for its results.
func (o *Operator) Attend(ctx context.Context, id string) error {
	m, err := o.Manifest(ctx, id)
	if err != nil {
		return err
	}
	if err = o.ledger.set(ctx, id, &m, m.BatchManifest); errors.Is(err, errAgain) {
		return nil // somebody has just written it; or the next time does
	}
	return err
}

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
	defer resource.Wrapf(&err, "retry %s", id)
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

func (o *Operator) noDead(ctx context.Context, id string) error {
	e, err := o.Ended(ctx, id)
	if err == nil && e == nil {
		return ErrNoBatch
	}
	return errors.Join(err, ErrNoDead)
}

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
