package worker

import (
	"context"
	"sync"

	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Member is a worker that has joined. It is live until its Context ends.
type Member struct {
	ID         int
	Identity   string
	Generation string
	Job        job.Job // as recorded when it joined, with the defaults of what the record does not say

	session     *zkconn.Session
	acl         []zkconn.ACL
	infoMu      sync.Mutex
	info        znode.Worker // where its peers reach it, with its ID; see advertisedInfo
	infoChanged bool         // since it joined
	claim       znode.Claim  // as this process last wrote it
	version     int32        // of the claim: the fencing token
	noID        bool         // the live znode was made before the id was known
	leaving     sync.Mutex   // held while it leaves, completes or rejoins
	unconfirmed *znode.Claim // of a Leave or Complete whose outcome is unknown

	publishing chan struct{}  // full during a Publish or Advertise, and writeID
	published  map[string]int // bytes of each of its keys; nil while they are not known

	rejoinNonce string  // of every Rejoin
	sessionIDs  []int64 // of the sessions that may own the live znode

	ctx context.Context // ends with the membership
	end context.CancelCauseFunc

	watchCtx  context.Context // of what runs in the background
	stopWatch context.CancelFunc
	watchers  sync.WaitGroup
	rollTried chan struct{} // closed when this member has tried to write the roll; nil if it need not try
}

// newMember is the member that j's transaction has made. It wrote claim; the znode has this version now.
func newMember(j *join, id int, claim znode.Claim, version int32) *Member {
	m := &Member{
		ID: id, Identity: j.c.Identity, Generation: j.rec.Generation, Job: j.job,
		acl: j.acl, info: j.c.Info, claim: claim, version: version, noID: claim.Lives == 1,
	}
	m.info.ID = id
	return m.bindTo(j.s)
}

// bindTo ties the membership to a session: it ends when the session does.
func (m *Member) bindTo(s *zkconn.Session) *Member {
	m.session, m.sessionIDs = s, []int64{s.ID()}
	m.publishing = make(chan struct{}, 1)
	m.ctx, m.end = context.WithCancelCause(s.Context())
	m.watchCtx, m.stopWatch = context.WithCancel(m.ctx)
	return m
}

// Context ends when the membership does. Its cause is ErrFenced, ErrSessionLost (then Rejoin), context.Canceled after
// Leave or Complete, or an error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a member needs.
func (m *Member) Context() context.Context { return m.ctx }

// write performs ops in one transaction if this process is still the member: the generation is open, and the claim is
// as this process last wrote it. If it is not, nothing is written and the membership ends with ErrFenced; after
// ErrDamaged it goes on. Other errors are those of Session.Multi. The results are those of ops.
func (m *Member) write(ctx context.Context, ops ...zkconn.Op) ([]zkconn.Result, error) {
	if m.ctx.Err() != nil {
		return nil, context.Cause(m.ctx)
	}
	guards := []zkconn.Op{zkconn.CheckOp(m.gate(), -1), zkconn.CheckOp(m.by(), m.version)}
	results, err := m.session.Multi(ctx, append(guards, ops...)...)
	if err != nil {
		return nil, m.fence(ctx, err)
	}
	return results[len(guards):], nil
}

// anyVersion is for znodes that nobody changes meanwhile: the claim or the gate in the same transaction guards them, or
// they are left over.
const anyVersion = -1

// gate is the znode that exists while the generation is open.
func (m *Member) gate() string { return znode.Gate(m.Job.Root, m.Generation) }

// by is the znode of the claim.
func (m *Member) by() string { return znode.ByIdentity(m.Job.Root, m.Generation, m.Identity) }

// live is the znode that exists while this worker is live.
func (m *Member) live() string { return znode.Live(m.Job.Root, m.Job.Name, m.Identity) }
