package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Leaving is one transaction that checks the gate:
//
//	run/<g>/by/<identity>   set, at the version that this process last wrote: left, or done
//	run/<g>/end/d-<10>      created, sequential, by Complete only; removed with the generation
//	<job>/<identity>        deleted, if it is still there
//
// Exactly one worker gets d-<N-1>: the last. It makes the job ready again, deletes it or leaves it, as on_complete
// says at that time. A process that dies before the commit is one that crashed.

// End is how the command of a worker that leaves has ended, as far as it is known.
type End struct {
	Exit   *int   // exit code
	Signal string // name of the signal that ended it, such as TERM
}

// Leave ends the membership without completing. The id stays reserved for the identity, which may join again.
//
// ErrFenced means that nothing was written. After zkconn.ErrUnknown it is not known whether anything was; the live
// znode ends with the session anyway.
func (m *Member) Leave(ctx context.Context, e End) error {
	claim := m.claim
	claim.State, claim.Exit, claim.Signal = znode.Left, e.Exit, e.Signal
	if _, err := m.writeFinal(ctx, claim); err != nil {
		return fmt.Errorf("leave %s as %s: %w", m.Job.Path(), m.Identity, err)
	}
	return nil
}

// Complete ends the membership of a worker whose command ended well, with this exit code, 0 to 255. The last of all N
// workers to complete also does what on_complete says, or returns ErrUnfinished.
//
// ErrFenced means that the completion does not count. After zkconn.ErrUnknown it is not known whether it counts;
// Rejoin in another session finds out.
func (m *Member) Complete(ctx context.Context, exit int) error {
	claim := m.claim
	claim.State, claim.Exit, claim.Signal = znode.Done, &exit, ""
	last, err := m.writeFinal(ctx, claim)
	if err != nil {
		return fmt.Errorf("complete %s as %s: %w", m.Job.Path(), m.Identity, err)
	}
	if !last {
		return nil
	}
	return m.finish(ctx, m.session)
}

// writeFinal writes the last claim of this membership and ends it. last reports whether all N have completed now.
func (m *Member) writeFinal(ctx context.Context, claim znode.Claim) (last bool, err error) {
	m.leaving.Lock()
	defer m.leaving.Unlock()
	m.awaitRoll(ctx)
	m.stop()
	if m.ctx.Err() != nil {
		return false, context.Cause(m.ctx)
	}
	claim.Nonce = zkstate.NewID()
	err = repeat(ctx, m.session, func() (err error) {
		if m.unconfirmed != nil {
			last, err = m.findOutcome(ctx)
		} else {
			last, err = m.tryWriteFinal(ctx, claim)
		}
		return err
	})
	if err == nil {
		m.end(nil)
	}
	return last, err
}

func (m *Member) tryWriteFinal(ctx context.Context, claim znode.Claim) (last bool, err error) {
	body, err := znode.Encode(claim)
	if err != nil {
		return false, err
	}
	ops := []zkconn.Op{zkconn.CheckOp(m.gate(), -1), zkconn.SetOp(m.by(), body, m.version)}
	if claim.State == znode.Done && m.Job.Gang == nil {
		end := znode.NewEnd(m.Job.Root, m.Generation)
		ops = append(ops, zkconn.CreateOp(end, nil, zkconn.PersistentSequential, m.acl))
	}
	live, exists, err := m.session.Exists(ctx, m.live())
	if err != nil {
		return false, err
	}
	if exists && live.EphemeralOwner == m.session.ID() {
		ops = append(ops, zkconn.DeleteOp(m.live(), anyVersion))
	}
	results, err := m.session.Multi(ctx, ops...)
	switch refused, ok := errors.AsType[*zkconn.Error](err); {
	case errors.Is(err, zkconn.ErrUnknown):
		m.unconfirmed = &claim
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case ok && refused.Path == m.live(): // deleted meanwhile
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case err != nil:
		return false, m.fence(ctx, err)
	case claim.State != znode.Done:
		return false, nil
	case m.Job.Gang != nil:
		return m.madeFinish(ctx), nil
	}
	n, err := znode.EndNumber(results[2].Path)
	return n == m.Job.Workers-1, err
}

// findOutcome finds out whether a final claim was written whose reply was lost. If the generation is gone it was: a
// generation does not end while a worker is missing.
func (m *Member) findOutcome(ctx context.Context) (last bool, err error) {
	if err := m.session.Settled(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", zkconn.ErrUnknown, err)
	}
	claim, stat, err := readClaim(ctx, m.session, m.by())
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %w", zkconn.ErrUnknown, err)
	case claim.Nonce == m.unconfirmed.Nonce: // finish finds out whether all have completed
		return claim.State == znode.Done, nil
	case stat.Version == m.version:
		m.unconfirmed = nil
		return false, errAgain
	}
	err = m.replaced()
	m.end(err)
	return false, err
}

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
	return zkconn.PreconditionFailed(err) || errors.Is(err, zkconn.ErrUnknown)
}

// awaitChildren waits for a change of the live workers, or a second. It is false if ctx or the session has ended.
func awaitChildren(ctx context.Context, s *zkconn.Session, path string) bool {
	_, _, changed, err := s.ChildrenW(ctx, path)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return false
	}
	select {
	case <-changed: // nil if there is no job: only the second ends it
		return s.Context().Err() == nil
	case <-time.After(time.Second):
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
	last, err := zkstate.LastCompletion(ctx, j.s, j.job, j.rec.Generation)
	if err != nil {
		return false, nil, err
	}
	stat, all, event, err := j.s.ExistsW(ctx, last)
	return all && stat.DataLength == 0, event, err
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

// StopRequested waits until terminate asks the workers of the job to stop. It returns nil then: stop the command and
// Leave. It watches the Record and writes nothing.
func (m *Member) StopRequested(ctx context.Context) error {
	at := znode.Record(job.KindName, m.Job.Root, m.Job.Name)
	for {
		body, _, event, err := m.session.GetW(ctx, at)
		if errors.Is(err, zkconn.ErrNoNode) { // the generation has ended, as the gate tells, or apply puts the Record back
			_, _, event, err = m.session.ExistsW(ctx, at)
		}
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case err != nil:
			return err
		}
		rec, err := znode.DecodeRecord(job.Kind(), body)
		if err == nil && rec.Generation == m.Generation && rec.State == resource.StateTerminating {
			return nil
		}
		if err := m.await(ctx, event); err != nil {
			return err
		}
	}
}
