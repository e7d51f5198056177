package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

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
// Exactly one worker gets d-<N-1>: the last. It puts the job back to ready, deletes it or leaves it, as on_complete says now.
// A process that dies before the commit has crashed as any other; if the last one dies after it, the job stays completed until
// the next apply.

// ErrUnfinished means that this worker has completed, but could not see to it that what on_complete says is done, if all have.
// Apply does it.
var ErrUnfinished = errors.New("completed, but could not do what on_complete says; the next apply does")

// End is how the command of a worker that leaves has ended, as far as it is known.
type End struct {
	Exit   *int   // exit code
	Signal string // name of the signal that ended it, such as TERM
}

// Leave ends the membership without completing. The id stays reserved for the identity, which may join again.
//
// ErrFenced means that nothing was written. An error that is zkconn.ErrUnknown leaves open whether it was; the live znode ends
// with the session anyway.
func (m *Member) Leave(ctx context.Context, e End) error {
	claim := m.claim
	claim.State, claim.Exit, claim.Signal = znode.Left, e.Exit, e.Signal
	if _, err := m.part(ctx, claim); err != nil {
		return fmt.Errorf("leave %s as %s: %w", m.Job.Path(), m.Identity, err)
	}
	return nil
}

// Complete ends the membership of a worker whose command ended well, with this exit code, 0 to 255. Who completes last of all N
// also does what on_complete says, or returns ErrUnfinished.
//
// ErrFenced means that it does not count. An error that is zkconn.ErrUnknown leaves that open; Rejoin under another
// session tells.
func (m *Member) Complete(ctx context.Context, exit int) error {
	claim := m.claim
	claim.State, claim.Exit, claim.Signal = znode.Done, &exit, ""
	last, err := m.part(ctx, claim)
	if err != nil {
		return fmt.Errorf("complete %s as %s: %w", m.Job.Path(), m.Identity, err)
	}
	if !last {
		return nil
	}
	return m.finish(ctx, m.session)
}

// part writes claim, which ends the membership. Last says that with it all N have completed.
func (m *Member) part(ctx context.Context, claim znode.Claim) (last bool, err error) {
	m.parts.Lock()
	defer m.parts.Unlock()
	m.awaitRoll(ctx)
	m.halt()
	if m.ctx.Err() != nil {
		return false, context.Cause(m.ctx)
	}
	claim.Nonce = zkstate.NewID()
	for range maxAttempts {
		if m.parting != nil {
			last, err = m.parted(ctx)
		} else {
			last, err = m.partOnce(ctx, claim)
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	if err == nil {
		m.end(nil)
	}
	return last, err
}

func (m *Member) partOnce(ctx context.Context, claim znode.Claim) (last bool, err error) {
	mark, err := znode.EncodeClaim(claim)
	if err != nil {
		return false, err
	}
	ops := []zkconn.Op{zkconn.CheckOp(m.gate(), 0), zkconn.SetOp(m.by(), mark, m.version)}
	if claim.State == znode.Done {
		ops = append(ops, zkconn.CreateOp(znode.NewEnd(m.Job.Root, m.Generation), nil, zkconn.PersistentSequential, m.acl))
	}
	live, exists, err := m.session.Exists(ctx, m.live())
	if err != nil {
		return false, err
	}
	if exists && live.EphemeralOwner == m.session.ID() {
		ops = append(ops, zkconn.DeleteOp(m.live(), live.Version))
	}
	results, err := m.session.Multi(ctx, ops...)
	var refused *zkconn.Error
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		m.parting = &claim
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case errors.As(err, &refused) && refused.Path == m.live(): // deleted or written meanwhile
		return false, fmt.Errorf("%w: %w", errAgain, err)
	case err != nil:
		return false, m.fence(err)
	case claim.State != znode.Done:
		return false, nil
	}
	n, err := znode.EndNumber(results[2].Path)
	return n == m.Job.Workers-1, err
}

// parted learns what became of a parting whose reply was lost. A generation that is gone counts: it does not end while a
// worker is missing.
func (m *Member) parted(ctx context.Context) (last bool, err error) {
	if err := m.session.Settled(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", zkconn.ErrUnknown, err)
	}
	claim, stat, err := readClaim(ctx, m.session, m.by())
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %w", zkconn.ErrUnknown, err)
	case claim.Nonce == m.parting.Nonce: // whether it was the last one is lost; if all have completed, somebody must finish
		return claim.State == znode.Done, nil
	case stat.Version == m.version:
		m.parting = nil
		return false, errAgain
	}
	err = m.replaced()
	m.end(err)
	return false, err
}

// finish does what on_complete says, if all have completed and nobody did it before. Its error is ErrUnfinished.
func (m *Member) finish(ctx context.Context, s *zkconn.Session) error {
	store, err := zkstate.NewStore(s, zkstate.Config{At: time.Now()})
	if err == nil {
		err = store.Finish(ctx, m.Job.Path(), m.Generation)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnfinished, err)
	}
	return nil
}
