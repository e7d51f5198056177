package tasks

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ErrBatchOver means that a batch was cancelled, or has ended, while this process worked on it or on a task of it.
// Stop: nobody wants the results.
var ErrBatchOver = errors.New("the batch was cancelled or has ended")

// Completed is a batch whose tasks are all done or dead. One watcher at a time has it.
type Completed struct {
	ID         string
	Done, Dead int64 // tasks; together all of the batch
	Try        int   // of a watcher, from 1
	Manifest   Manifest

	p *Process
}

// Records reads what became of the tasks: the results, and then the dead tasks. It holds one page in memory, and waits
// while Redis is away. An error ends the sequence: ErrIncomplete, if Redis has lost something meanwhile.
func (b *Completed) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range Records(ctx, b.p.store, b.ID, b.p.pausing(ctx)) {
			if !yield(r, err) || err != nil {
				return
			}
		}
		if err := b.held(ctx); err != nil {
			yield(Record{}, err)
		}
	}
}

// Lines writes Records to a temporary file, a line of JSON for each, and returns the file to be read from its start.
// The file has no name any more. The caller closes it.
func (b *Completed) Lines(ctx context.Context) (_ *os.File, err error) {
	var all spool
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	if _, err := all.Write(nil); err != nil { // there may be no record: dead tasks can be dropped
		return nil, err
	}
	buffered := bufio.NewWriterSize(&all, 64<<10)
	encoder := json.NewEncoder(buffered)
	for r, err := range b.Records(ctx) {
		if err == nil {
			err = encoder.Encode(r)
		}
		if err != nil {
			return nil, err
		}
	}
	return all.file, buffered.Flush()
}

// held makes sure that this watcher has had the batch all the time. It has claimed it when all results were there, and
// does not claim it again: so if Redis has the claim, it has lost none of them.
func (b *Completed) held(ctx context.Context) error {
	var books store.Batch
	err := until(b.p.pausing(ctx), func() (err error) {
		books, err = b.p.store.Batch(ctx, b.ID)
		return err
	})
	switch {
	case err != nil:
		return err
	case books.Broken != "":
		return fmt.Errorf("%w: %s", store.ErrBroken, books.Broken)
	case books.Life != b.Manifest.Life || books.Holder != b.p.Seat:
		return fmt.Errorf("%w: redis has lost that this process has the batch", ErrIncomplete)
	}
	return nil
}

// Watch takes completed batches and calls do for each, one after the other, until ctx or the membership ends; it
// returns why. An error of Redis that waiting does not cure ends it too.
//
// When do returns nil, the batch ends: its tasks and results are deleted. When do returns an error, the batch goes back
// with that as the reason. This or another watcher gets it again after the queue's back-off. A batch that has failed as
// often as its attempts say stays until "muster queue retry", or is cancelled. Nothing is charged if ctx or the
// membership has ended.
//
// do's context ends with ctx and the membership, and with the cause ErrBatchOver when the batch is cancelled. After the
// end of the membership another watcher has the batch: stop at once. So do may run twice for one batch; its ID tells.
func Watch(ctx context.Context, p *Process, do func(ctx context.Context, b *Completed) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(p.ctx, func() { end(context.Cause(p.ctx)) })()
	w := &watch{p: p, do: do}
	for {
		got, err := w.claim(ctx)
		if err == nil {
			err = w.handle(ctx, got)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

type watch struct {
	p  *Process
	do func(ctx context.Context, b *Completed) error
}

// claim waits for a completed batch. It takes none while ZooKeeper is silent.
func (w *watch) claim(ctx context.Context) (*store.Claimed, error) {
	for ctx.Err() == nil {
		if !w.p.Connected() {
			pause(ctx, offlineCheck, nil)
			continue
		}
		var got *store.Claimed
		var next time.Duration
		err := w.p.Call(ctx, func(ctx context.Context, seq int64) (err error) {
			got, next, err = w.p.store.Claim(ctx, w.p.Seat, seq)
			return err
		})
		switch {
		case err != nil: // a batch that was claimed without an answer goes back
			if _, err := w.recover(ctx, err, nil); err != nil {
				return nil, err
			}
		case got != nil:
			return got, nil
		default:
			if next < 0 || next > maxWait {
				next = maxWait
			}
			w.p.Wait(ctx, WakeWatcher, next)
		}
	}
	return nil, context.Cause(ctx)
}

// recover makes sure of what the seat holds after an error of Redis. It reports whether that is the batch in held.
func (w *watch) recover(ctx context.Context, err error, held []store.Held) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case hopeless(err):
		return false, err
	}
	if err := w.p.Pause(ctx, err); err != nil {
		return false, err
	}
	kept, err := w.p.Recover(ctx, held)
	return len(kept) > 0, err
}

// handle does with a batch what is to do. An error ends the Watch.
func (w *watch) handle(ctx context.Context, got *store.Claimed) error {
	m, current, err := w.look(ctx, got)
	if err != nil || !current {
		return err
	}
	err = w.call(ctx, &Completed{ID: got.Batch, Done: got.Done, Dead: got.Dead, Try: got.Try, Manifest: m, p: w.p})
	switch {
	case err == nil:
		return w.until(ctx, func(ctx context.Context) error { return w.end(ctx, got, m, znode.EndCollected) })
	case ctx.Err() != nil: // the batch goes back when the process leaves, or its seat is evicted
		return context.Cause(ctx)
	case errors.Is(err, ErrBatchOver):
		if _, current, lookErr := w.look(ctx, got); lookErr != nil || !current {
			return lookErr
		}
	}
	return w.giveBack(ctx, got, err)
}

// look reads the manifest as the leader of ZooKeeper has it. If the batch is over it sees to the end of that, and
// current is false: nobody may do anything with the results. A manifest that cannot be decoded fails this try.
func (w *watch) look(ctx context.Context, got *store.Claimed) (m Manifest, current bool, err error) {
	var damaged error
	err = w.until(ctx, func(ctx context.Context) (err error) {
		m, err = w.p.ledger.Manifest(ctx, got.Batch)
		var unanswered *zkconn.Error
		switch {
		case errors.Is(err, ErrNoBatch), err == nil && m.Life != got.Life: // nobody submits this life again
			err = removeLife(ctx, w.p.store, got.Batch, got.Life)
		case err == nil && m.State == znode.BatchCancelled:
			err = w.end(ctx, got, m, znode.EndCancelled)
		case err != nil && !errors.As(err, &unanswered):
			damaged, err = err, nil
		default:
			current = err == nil
		}
		return err
	})
	if damaged != nil {
		return m, false, w.giveBack(ctx, got, damaged)
	}
	return m, current, err
}

// call calls do. The error is ErrBatchOver if the batch was over first.
func (w *watch) call(ctx context.Context, b *Completed) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	batch, _ := w.p.followBatch(b.ID)
	defer context.AfterFunc(batch.over, func() {
		if cause := context.Cause(w.p.ctx); cause != nil { // a batch is followed no longer than that
			end(cause)
		}
		end(fmt.Errorf("batch %s: %w", b.ID, ErrBatchOver))
	})()
	err := w.do(ctx, b)
	if err != nil && errors.Is(context.Cause(ctx), ErrBatchOver) {
		return context.Cause(ctx)
	}
	return err
}

func (w *watch) end(ctx context.Context, got *store.Claimed, m Manifest, how znode.EndState) error {
	return w.p.ledger.end(ctx, w.p.store, got.Batch, m, how, w.p.Identity)
}

// until repeats what may be repeated, until it succeeds, Redis refuses for good, or the membership ends. At the end of
// ctx it goes on for as long as a process takes to leave.
func (w *watch) until(ctx context.Context, f func(context.Context) error) error {
	lingering, cancel := context.WithCancel(w.p.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveTimeout, cancel) })()
	return until(func(err error) error {
		if hopeless(err) {
			return err
		}
		return w.p.Pause(lingering, w.p.seat.Removed(err))
	}, func() error { return f(lingering) })
}

// giveBack gives a batch back, with the reason why this try has failed.
func (w *watch) giveBack(ctx context.Context, got *store.Claimed, why error) error {
	w.p.log.Error("a completed batch goes back", "batch", got.Batch, "try", got.Try, "error", why)
	held := []store.Held{{Task: store.Task{Batch: got.Batch}, Claim: true}}
	for {
		err := w.p.Call(ctx, func(ctx context.Context, seq int64) error {
			backoff := time.Duration(w.p.Queue().Backoff)
			return w.p.store.Unclaim(ctx, w.p.Seat, seq, got.Batch, cmp.Or(why.Error(), "failed"), backoff)
		})
		if err == nil {
			return nil
		}
		if kept, err := w.recover(ctx, err, held); err != nil || !kept {
			return err
		}
	}
}
