package worker

import (
	"context"
	"errors"
	"fmt"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// An identity that has a claim joins again under its old id, in one transaction that checks the gate:
//
//	run/<g>/by/<identity>   set, at the version read   one of several processes wins; the holder before it is fenced
//	run/<g>/id/n-<id>       set                        the newest address
//	<job>/<identity>        created, ephemeral         refused while an older process is live
//
// The id is found by the claim's czxid: one transaction created both. A process that dies before the commit has changed
// nothing; one that dies after it has joined, and its next life takes over from it.

// rejoin is for an identity that has a claim already.
func (j *join) rejoin(ctx context.Context) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	by := znode.ByIdentity(root, g, j.c.Identity)
	if err := j.s.Sync(ctx, by); err != nil {
		return nil, err
	}
	body, stat, err := j.s.Get(ctx, by)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	if err != nil {
		return nil, err
	}
	claim, err := znode.Decode[znode.Claim](body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", by, err)
	}
	mine := claim.Nonce == j.nonce // this join has committed; the reply was lost
	if claim.State == znode.Done && !mine {
		j.finishFor(ctx)
		return nil, &DoneError{Exit: *claim.Exit}
	}
	id, err := j.find(ctx, stat.Czxid)
	switch {
	case err != nil:
		return nil, err
	case mine:
		return j.becomeMember(ctx, id, claim, stat.Version)
	case id >= j.job.Workers: // too late in an earlier life, which did not get to withdraw
		return nil, j.withdraw(ctx, id)
	}
	return j.takeOver(ctx, id, claim, stat.Version)
}

// takeOver is the transaction of an identity that joins again. old is the claim as read at this version.
func (j *join) takeOver(ctx context.Context, id int, old znode.Claim, version int32) (*Member, error) {
	root, g := j.job.Root, j.rec.Generation
	claim := old // it keeps how the last life ended
	claim.Nonce, claim.Lives, claim.State = j.nonce, old.Lives+1, znode.In
	mark, err := znode.Encode(claim)
	if err != nil {
		return nil, err
	}
	info := j.c.Info
	info.ID = id
	body, err := znode.EncodeWorker(info)
	if err != nil {
		return nil, err
	}
	results, err := j.s.Multi(ctx,
		zkconn.CheckOp(znode.Gate(root, g), -1),
		zkconn.SetOp(znode.ByIdentity(root, g, j.c.Identity), mark, version),
		zkconn.SetOp(znode.ID(root, g, id), body, anyVersion), // only the process that sets the claim writes here
		zkconn.CreateOp(j.live(), body, zkconn.Ephemeral, j.acl),
	)
	if err != nil {
		return nil, j.refused(ctx, err)
	}
	return newMember(j, id, claim, results[1].Stat.Version), nil
}

// awaitHolder waits until the older process that is live as this identity has ended, or fails if Takeover says so.
func (j *join) awaitHolder(ctx context.Context) error {
	if j.c.Takeover == TakeoverFail {
		return ErrHeld
	}
	_, exists, event, err := j.s.ExistsW(ctx, j.live())
	if err != nil {
		return err
	}
	if !exists {
		return errAgain
	}
	what := fmt.Sprintf("the session of an older process that is %s to end", j.c.Identity)
	return j.await(ctx, ErrHeld, what, event, nil)
}

// find looks for the id that the transaction with this czxid created. Ids are in the order of commits, so it is a
// binary search: 15 reads for 20,000 workers.
func (j *join) find(ctx context.Context, czxid int64) (int, error) {
	root, g := j.job.Root, j.rec.Generation
	ids, there, err := j.s.Exists(ctx, znode.IDs(root, g))
	if err != nil {
		return 0, err
	}
	if !there {
		return 0, j.awaitRepair(ctx, znode.IDs(root, g))
	}
	lo, hi := 0, min(j.job.Workers, int(ids.NumChildren)) // numbers from N on have gaps: some have withdrawn
	for lo < hi {
		mid := (lo + hi) / 2
		stat, _, err := j.s.Exists(ctx, znode.ID(root, g, mid))
		switch {
		case err != nil:
			return 0, err
		case stat.Czxid == czxid:
			return mid, nil
		case stat.Czxid < czxid:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return j.findBeyond(ctx, czxid)
}
