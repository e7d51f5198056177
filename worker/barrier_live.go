package worker

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// In a live round an arrival is an ephemeral znode: it ends with the session that owns it, and counts for that session
// only. There is no sequence. After its own arrival each worker counts a's children, and creates T if there are N. It
// counts after its own create, so the last worker to arrive sees all of them, unless one has died, which will arrive
// again. If a process dies before it creates T, its arrival ends too, and its next life counts again.

// arriveLive makes this session's arrival, and T if everybody is there now. It reports whether it made T.
func (r *round) arriveLive(ctx context.Context) (last bool, err error) {
	arrive := []zkconn.Op{zkconn.CheckOp(r.state(), 0), zkconn.CreateOp(r.arrival(), nil, zkconn.Ephemeral, r.m.acl)}
	_, err = r.m.write(ctx, arrive...)
	if errors.Is(err, zkconn.ErrNodeExists) {
		err = r.replaceArrival(ctx)
	}
	if err != nil {
		return false, damaged(err, znode.Arrivals(r.dir))
	}
	return r.releaseLive(ctx)
}

// replaceArrival makes an arrival of an older session this session's.
func (r *round) replaceArrival(ctx context.Context) error {
	stat, exists, err := r.m.session.Exists(ctx, r.arrival())
	if err != nil || exists && stat.EphemeralOwner == r.m.session.ID() {
		return err
	}
	ops := []zkconn.Op{zkconn.CheckOp(r.state(), 0)}
	if exists {
		ops = append(ops, zkconn.DeleteOp(r.arrival(), anyVersion))
	}
	_, err = r.m.write(ctx, append(ops, zkconn.CreateOp(r.arrival(), nil, zkconn.Ephemeral, r.m.acl))...)
	return err
}

// releaseLive creates T if n workers are alive here, and reports whether it did. If another worker decides the round
// at the same moment, T tells the outcome.
func (r *round) releaseLive(ctx context.Context) (done bool, err error) {
	stat, _, err := r.m.session.Exists(ctx, znode.Arrivals(r.dir))
	if stat.NumChildren == 1 {
		r.makeNext(ctx)
	}
	if err != nil || int(stat.NumChildren) < r.n {
		return false, err
	}
	_, err = r.m.write(ctx, zkconn.CheckOp(r.state(), 0), zkconn.CreateOp(r.token(), nil, zkconn.Persistent, r.m.acl))
	if errors.Is(err, zkconn.ErrNodeExists) {
		return false, nil
	}
	return err == nil, err
}
