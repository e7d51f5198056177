package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// After the loss of its session a member goes on under a new one with one transaction that checks the gate:
//
//	run/<g>/by/<identity>   set, at the version that this process last wrote: if somebody took over, it is fenced
//	<job>/<identity>        deleted if the lost session's is still there, and created, ephemeral
//
// If the process dies before the commit, the next life of the identity finds the claim as it was, and after it one that it
// can take over.

// Rejoin makes m a member again, under a new session, after its Context ended with zkconn.ErrSessionLost, or to give it another session. It is for a process
// whose command has gone on; m itself stays ended. ErrFenced means that the identity was taken over in between, ErrDone
// that a Complete which got no answer had been committed.
func (m *Member) Rejoin(ctx context.Context, s *zkconn.Session) (*Member, error) {
	m.parts.Lock()
	defer m.parts.Unlock()
	m.halt()
	if cause := context.Cause(m.ctx); cause != nil && !errors.Is(cause, zkconn.ErrSessionLost) {
		return nil, cause
	}
	if m.resuming == "" {
		m.resuming = zkstate.NewID()
	}
	m.owners = append(m.owners, s.ID())
	var err error
	for range maxAttempts {
		var next *Member
		if next, err = m.resume(ctx, s); err == nil {
			m.end(nil)
			return next.start(), nil
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	return nil, fmt.Errorf("rejoin %s as %s: %w", m.Job.Path(), m.Identity, err)
}

// resume reads who wrote the claim last, and goes on from there. That may have been an earlier Rejoin or a Leave of this process
// which got no answer.
func (m *Member) resume(ctx context.Context, s *zkconn.Session) (*Member, error) {
	if err := s.Sync(ctx, m.by()); err != nil {
		return nil, err
	}
	claim, stat, err := readClaim(ctx, s, m.by())
	gone := errors.Is(err, zkconn.ErrNoNode)
	if err != nil && !gone {
		return nil, err
	}
	parted := m.parting != nil && (gone || claim.Nonce == m.parting.Nonce)
	resumed := claim.Nonce == m.resuming
	switch {
	case parted && m.parting.State == znode.Done:
		done := &DoneError{Exit: *m.parting.Exit}
		if err := m.finish(ctx, s); err != nil {
			return nil, fmt.Errorf("%w: %w", done, err)
		}
		return nil, done
	case gone:
		return nil, m.generationEnded()
	case stat.Version != m.version && !parted && !resumed:
		return nil, m.replaced()
	}
	live, exists, err := s.Exists(ctx, m.live())
	if err != nil {
		return nil, err
	}
	if resumed && live.EphemeralOwner == s.ID() {
		return m.under(s, claim, stat.Version), nil
	}
	var remove []zkconn.Op
	if exists {
		if !slices.Contains(m.owners, live.EphemeralOwner) { // somebody took over since the claim was read
			return nil, fmt.Errorf("%w: %w", errAgain, ErrHeld)
		}
		remove = append(remove, zkconn.DeleteOp(m.live(), live.Version))
	}
	return m.moveTo(ctx, s, stat.Version, remove)
}

// moveTo is the transaction, for a claim that is ours at this version. remove takes the old live znode away, if there is one.
func (m *Member) moveTo(ctx context.Context, s *zkconn.Session, version int32, remove []zkconn.Op) (*Member, error) {
	claim := m.claim
	claim.Nonce = m.resuming
	mark, err := znode.EncodeClaim(claim)
	if err != nil {
		return nil, err
	}
	body, err := znode.EncodeWorker(m.info)
	if err != nil {
		return nil, err
	}
	results, err := s.Multi(ctx, slices.Concat(
		[]zkconn.Op{zkconn.CheckOp(m.gate(), 0), zkconn.SetOp(m.by(), mark, version)},
		remove,
		[]zkconn.Op{zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl)},
	)...)
	var refused *zkconn.Error
	switch {
	case err == nil:
		return m.under(s, claim, results[1].Stat.Version), nil
	case errors.Is(err, zkconn.ErrUnknown):
		if settle := s.Settled(ctx); settle != nil {
			return nil, fmt.Errorf("%w: %w", settle, err)
		}
	case errors.Is(err, zkconn.ErrNoNode) && errors.As(err, &refused) && refused.Path == m.live() && refused.Op == "create":
		return nil, m.generationEnded() // the job znode itself is gone
	case errors.Is(err, zkconn.ErrNodeExists), errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrBadVersion):
	default:
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", errAgain, err)
}

// under is the same member in another session.
func (m *Member) under(s *zkconn.Session, claim znode.Claim, version int32) *Member {
	next := &Member{
		ID: m.ID, Identity: m.Identity, Generation: m.Generation, Job: m.Job,
		acl: m.acl, info: m.info, claim: claim, version: version,
	}
	return next.in(s)
}

func readClaim(ctx context.Context, s *zkconn.Session, path string) (znode.Claim, zkconn.Stat, error) {
	body, stat, err := s.Get(ctx, path)
	if err != nil {
		return znode.Claim{}, stat, err
	}
	claim, err := znode.DecodeClaim(body)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return claim, stat, err
}
