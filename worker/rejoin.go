package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// After the loss of its session a member goes on in a new one by one transaction that checks the gate:
//
//	run/<g>/by/<identity>   set, at the version that this process last wrote: if somebody took over, it is fenced
//	<job>/<identity>        deleted if the lost session's is still there, and created, ephemeral
//	run/<g>/id/n-<id>       set, if another address was advertised since the join
//
// If the process dies before the commit, the next life of the identity finds the claim as it was. If it dies after
// it, the next life can take the claim over.

// Rejoin makes m a member again in a new session: after m's Context ended with ErrSessionLost, or to give it another
// session. It is for a process whose command has gone on. It returns another Member; m itself has ended.
//
// ErrFenced means that the identity was taken over meanwhile, and ErrDone that a Complete which got no answer was
// committed. If another whole run has completed since, that is ErrFenced too: only the last run is remembered. While a
// part of the job is missing that somebody deleted, Rejoin waits; the end of ctx is ErrDamaged then.
func (m *Member) Rejoin(ctx context.Context, s *zkconn.Session) (*Member, error) {
	m.leaving.Lock()
	defer m.leaving.Unlock()
	m.stop()
	if cause := context.Cause(m.ctx); cause != nil && !errors.Is(cause, zkconn.ErrSessionLost) {
		return nil, cause
	}
	if m.rejoinNonce == "" {
		m.rejoinNonce = zkstate.NewID()
	}
	m.sessionIDs = append(m.sessionIDs, s.ID())
	var next *Member
	err := repeat(ctx, s, func() (err error) {
		next, err = m.rejoinOnce(ctx, s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rejoin %s as %s: %w", m.Job.Path(), m.Identity, err)
	}
	m.end(nil)
	return next.start(), nil
}

// rejoinOnce reads the claim, which tells who wrote it last. That may have been this process: in an earlier Rejoin,
// or in a Leave or Complete that got no answer.
func (m *Member) rejoinOnce(ctx context.Context, s *zkconn.Session) (*Member, error) {
	if err := s.Sync(ctx, m.by()); err != nil {
		return nil, err
	}
	claim, stat, there, err := zkconn.IfThere(readClaim(ctx, s, m.by()))
	if err != nil {
		return nil, err
	}
	left := m.unconfirmed != nil && claim.Nonce == m.unconfirmed.Nonce
	completed := left && m.unconfirmed.State == znode.Done
	// In a gang without spares nobody but this worker could have finished in its place: it has, though it was not told.
	mayHave := m.unconfirmed != nil && m.unconfirmed.State == znode.Done || m.hasFinished() ||
		m.Job.Gang != nil && !m.Job.Gang.HasSpares()
	if !there && mayHave {
		if completed, err = haveCompleted(ctx, s, m.Job, m.Generation); err != nil {
			return nil, err
		}
	}
	rejoined := claim.Nonce == m.rejoinNonce
	switch {
	case completed:
		done := &DoneError{}
		if m.unconfirmed != nil {
			done.Exit = *m.unconfirmed.Exit
		}
		if err := m.finish(ctx, s); err != nil {
			return nil, fmt.Errorf("%w: %w", done, err)
		}
		return nil, done
	case !there:
		return nil, m.gone(ctx, s, m.by())
	case (stat.Version != m.version || claim.Nonce != m.claim.Nonce) && !left && !rejoined:
		return nil, m.whoReplaced(ctx, s)
	}
	live, exists, err := s.Exists(ctx, m.live())
	if err != nil {
		return nil, err
	}
	if rejoined && live.EphemeralOwner == s.ID() {
		return m.inSession(s, claim, stat.Version), nil
	}
	if exists && !slices.Contains(m.sessionIDs, live.EphemeralOwner) { // somebody took over since the claim was read
		return nil, fmt.Errorf("%w: %w", errAgain, ErrHeld)
	}
	return m.moveTo(ctx, s, stat.Version, exists)
}

// haveCompleted reports whether generation g, of which the claims are gone, has ended because all had completed.
// Terminate or apply may have ended it meanwhile. If on_complete removes the job, it is gone then too, and all count as
// completed. A Record that cannot be read tells nothing.
func haveCompleted(ctx context.Context, s *zkconn.Session, j job.Job, g string) (bool, error) {
	body, _, err := s.Get(ctx, znode.Record(job.KindName, j.Root, j.Name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return j.Lifecycle.OnComplete == job.Remove, nil
	}
	if err != nil {
		return false, err
	}
	rec, err := znode.DecodeRecordAt(job.Kind(), j.Path(), body)
	last := job.LastRun(&rec)
	return err == nil && last != nil && last.Generation == g, nil
}

// moveTo is the transaction that rejoins. The claim is ours at this version. old: the old live znode is still there.
func (m *Member) moveTo(ctx context.Context, s *zkconn.Session, version int32, old bool) (*Member, error) {
	claim := m.claim
	claim.Nonce = m.rejoinNonce
	info := m.info.Load()
	claimBody, body, err := encode(claim, info.worker)
	if err != nil {
		return nil, err
	}
	ops := []zkconn.Op{zkconn.CheckOp(m.gate(), -1), zkconn.SetOp(m.by(), claimBody, version)}
	if old {
		ops = append(ops, zkconn.DeleteOp(m.live(), anyVersion))
	}
	ops = append(ops, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	if info.changed { // an Advertise whose outcome is unknown may not have been committed
		ops = append(ops, zkconn.SetOp(znode.ID(m.Job.Root, m.Generation, m.ID), body, anyVersion))
	}
	results, err := s.Multi(ctx, ops...)
	switch refused, ok := errors.AsType[*zkconn.Error](err); {
	case err == nil:
		return m.inSession(s, claim, results[1].Stat.Version), nil
	case errors.Is(err, zkconn.ErrUnknown):
		if settle := s.Settled(ctx); settle != nil {
			return nil, fmt.Errorf("%w: %w", settle, err)
		}
	case errors.Is(err, zkconn.ErrNoNode) && ok &&
		(refused.Op == "create" || refused.Path != m.by() && refused.Path != m.live()):
		return nil, m.gone(ctx, s, missingPart(refused))
	case errors.Is(err, zkconn.ErrNodeExists), errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrBadVersion):
	default:
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", errAgain, err)
}

func (m *Member) inSession(s *zkconn.Session, claim znode.Claim, version int32) *Member {
	next := &Member{
		ID: m.ID, Identity: m.Identity, Generation: m.Generation, Job: m.Job, acl: m.acl, claim: claim, version: version,
		rollDue: m.Job.Gang == nil,
	}
	next.info.Store(m.info.Load())
	next.attempt.Store(m.attempt.Load())
	return next.bindTo(s)
}
