package worker

import (
	"context"
	"sync"

	"muster/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Member is a worker that has joined. It is live until its Context ends.
type Member struct {
	ID         int
	Identity   string
	Generation string
	Job        job.Job // as recorded when it joined, with the defaults of what the record does not say

	session *zkconn.Session
	acl     []zkconn.ACL
	info    znode.Worker // where its peers reach it, with its ID
	claim   znode.Claim  // as this process last wrote it
	version int32        // of the claim: the fencing token
	untold  bool         // the live znode was made before the id was known
	parts   sync.Mutex   // held while it leaves, completes or rejoins
	parting *znode.Claim // of a Leave or Complete whose outcome is unknown

	resuming string  // nonce of every Rejoin
	owners   []int64 // sessions that the live znode can belong to

	ctx context.Context // ends with the membership
	end context.CancelCauseFunc

	watch    context.Context // of what runs in the background
	stop     context.CancelFunc
	watching sync.WaitGroup
	rolled   chan struct{} // closed when this member has tried to write the roll; nil if that is not up to it
}

// newMember is the member that j's transaction made, which wrote claim as this version.
func newMember(j *join, id int, claim znode.Claim, version int32) *Member {
	m := &Member{
		ID: id, Identity: j.c.Identity, Generation: j.rec.Generation, Job: j.rec.Job,
		acl: j.acl, info: j.c.Info, claim: claim, version: version, untold: claim.Lives == 1,
	}
	m.info.ID = id
	return m.in(j.s)
}

// in ties the membership to the life of a session.
func (m *Member) in(s *zkconn.Session) *Member {
	m.session, m.owners = s, []int64{s.ID()}
	m.ctx, m.end = context.WithCancelCause(s.Context())
	m.watch, m.stop = context.WithCancel(m.ctx)
	return m
}

// Context ends when the membership does. Its cause is ErrFenced, ErrSessionLost (then Rejoin), context.Canceled after Leave or
// Complete, or an error of zkconn if ZooKeeper refuses what a member needs, such as ErrNoAuth.
func (m *Member) Context() context.Context { return m.ctx }

// write performs ops in one transaction, if this process still is the member: the generation is open, and the claim is as
// this process last wrote it. If not, nothing is written and the membership ends with ErrFenced. Other errors are those of
// Session.Multi; the results are those of ops.
func (m *Member) write(ctx context.Context, ops ...zkconn.Op) ([]zkconn.Result, error) {
	if m.ctx.Err() != nil {
		return nil, context.Cause(m.ctx)
	}
	guards := []zkconn.Op{zkconn.CheckOp(m.gate(), 0), zkconn.CheckOp(m.by(), m.version)}
	results, err := m.session.Multi(ctx, append(guards, ops...)...)
	if err != nil {
		return nil, m.fence(err)
	}
	return results[len(guards):], nil
}

// gate is open as long as the generation is.
func (m *Member) gate() string { return znode.Gate(m.Job.Root, m.Generation) }

// by is the claim.
func (m *Member) by() string { return znode.ByIdentity(m.Job.Root, m.Generation, m.Identity) }

// live is the znode that exists while this worker is live.
func (m *Member) live() string { return znode.Live(m.Job.Root, m.Job.Name, m.Identity) }
