package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Once all N workers have completed, what on_complete says is one transaction of zkstate.Store.Finish, which does
// nothing if somebody else has done it:
//
//	reset    <job> and the gate deleted, <job> and a new generation created, the Record set
//	remove   <job>, Record and gate deleted
//
// The last worker to complete does it. A live znode that is still there refuses it: that of a process which came too
// late and has not withdrawn, or died before it could. So the last worker tries for as long as a dead session can last.
// If it dies itself, a worker that comes for the next generation does it, or one that comes back to find that it has
// completed, or the next apply.

// ErrUnfinished means that this worker has completed, but could not make sure that what on_complete says was done if
// all have completed. The next worker that comes does it, or apply.
var ErrUnfinished = errors.New("completed, but could not do what on_complete says; " +
	"a worker of the next run does, or the next apply")

// finishMargin is how much longer than the session timeout a dead session may last: servers end sessions in steps.
const finishMargin = 5 * time.Second

// finishDelay is how long a worker that comes leaves the work to the last worker.
const finishDelay = time.Second

// finish does what on_complete says if all have completed and nobody has done it yet. Its error is ErrUnfinished.
func (m *Member) finish(ctx context.Context, s *zkconn.Session) error {
	limited, cancel := context.WithTimeout(ctx, time.Duration(m.Job.Timeouts.Session)+finishMargin)
	defer cancel()
	for {
		err := finishOnce(limited, s, m.Job.Path(), m.Generation)
		if err == nil {
			return nil
		}
		if refused(err) && awaitChildren(limited, s, m.Job.Path()) {
			continue
		}
		return fmt.Errorf("%w: %v", ErrUnfinished, err)
	}
}

// finishOnce does what on_complete says, if generation g has completed.
func finishOnce(ctx context.Context, s *zkconn.Session, path, g string) error {
	store, err := zkstate.NewStore(s, zkstate.Config{At: time.Now(), Kinds: []zkstate.Kind{zkstate.Job()}})
	if err != nil {
		return err
	}
	return store.Finish(ctx, path, g)
}

// refused reports whether what on_complete says may be done later: nothing was written, because of what is there now.
func refused(err error) bool {
	for _, one := range []error{
		zkconn.ErrNotEmpty, zkconn.ErrBadVersion, zkconn.ErrNoNode, zkconn.ErrNodeExists, zkconn.ErrUnknown,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// awaitChildren waits for a change of the live workers, or a second. It is false if ctx or the session has ended.
func awaitChildren(ctx context.Context, s *zkconn.Session, path string) bool {
	_, _, changed, err := s.ChildrenW(ctx, path)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return false
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-changed: // nil if there is no job: only the timer ends it
		return s.Context().Err() == nil
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// allCompleted reports whether all workers of the generation have completed, and it is to end then. The event comes
// when they have.
func (j *join) allCompleted(ctx context.Context) (all bool, event <-chan struct{}, err error) {
	if j.job.Lifecycle.OnComplete == job.Retain {
		return false, nil, nil
	}
	last := znode.Completion(j.job.Root, j.rec.Generation, j.job.Workers-1)
	_, all, event, err = j.s.ExistsW(ctx, last)
	return all, event, err
}

// awaitNext waits for another generation. If this one has completed, and nobody does what on_complete says, it does so.
func (j *join) awaitNext(ctx context.Context, why error, what string) error {
	all, event, err := j.allCompleted(ctx)
	if err != nil {
		return err
	}
	if !all {
		return j.awaitRecord(ctx, why, what, event)
	}
	if g := j.rec.Generation; j.completed != g {
		j.completed = g
		patience := make(chan struct{})
		spread := min(startDelay*time.Duration(j.job.Workers), maxStartDelay)
		timer := time.AfterFunc(finishDelay+rand.N(spread), func() { close(patience) })
		defer timer.Stop()
		return j.awaitRecord(ctx, why, what, patience)
	}
	err = finishOnce(ctx, j.s, j.job.Path(), j.rec.Generation)
	if err == nil || !refused(err) { // done; or it is up to apply
		return j.awaitRecord(ctx, why, what, nil)
	}
	live, _, event, err := j.s.ChildrenW(ctx, j.job.Path())
	switch {
	case err != nil:
		return err
	case len(live) == 0:
		return errAgain
	}
	return j.awaitRecord(ctx, why, what, event)
}

// finishFor does what on_complete says for a worker that comes back and has completed, if all have. If it cannot, the
// next one does.
func (j *join) finishFor(ctx context.Context) {
	if all, _, err := j.allCompleted(ctx); err == nil && all {
		_ = finishOnce(ctx, j.s, j.job.Path(), j.rec.Generation)
	}
}
