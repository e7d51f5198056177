package worker

import (
	"context"
	"errors"
	"fmt"

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
// says at that time: see finish.go. A process that dies before the commit is one that crashed.

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
	for attempts := 0; attempts < maxAttempts; {
		if m.unconfirmed != nil {
			last, err = m.findOutcome(ctx)
		} else {
			last, err = m.tryWriteFinal(ctx, claim)
		}
		if errors.Is(err, ErrDamaged) {
			if err = awaitPart(ctx, m.session, err); err == nil {
				continue
			}
		}
		if !errors.Is(err, errAgain) {
			break
		}
		attempts++
	}
	if err == nil {
		m.end(nil)
	}
	return last, err
}

func (m *Member) tryWriteFinal(ctx context.Context, claim znode.Claim) (last bool, err error) {
	mark, err := znode.Encode(claim)
	if err != nil {
		return false, err
	}
	ops := []zkconn.Op{zkconn.CheckOp(m.gate(), -1), zkconn.SetOp(m.by(), mark, m.version)}
	if claim.State == znode.Done {
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
	var refused *zkconn.Error
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		m.unconfirmed = &claim
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case errors.As(err, &refused) && refused.Path == m.live(): // deleted meanwhile
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case err != nil:
		return false, m.fence(ctx, err)
	case claim.State != znode.Done:
		return false, nil
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
