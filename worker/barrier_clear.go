package worker

import (
	"context"
	"errors"
	"time"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The worker that releases round r raises the floor to r-1 and deletes the released rounds below it. All workers have
// arrived at r, so none needs those any more; one that asks for such a round learns from the floor that it was
// released. An aborted round keeps its st. The st of a released round is deleted first, so that nobody takes a round
// that is half deleted for an open one. If the process dies, the next release goes on where it stopped.

// clearBatch is how many znodes one transaction deletes: as many as a session with small buffers can send.
const clearBatch = 100

// clearLimit is how long clearing may keep the last worker to arrive. 10,000 arrivals are deleted in a fraction of it.
const clearLimit = 5 * time.Second

// clearOlder deletes older rounds after a release. The round is released whatever happens here: the next release does
// what is left.
func (r *round) clearOlder(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	floor := r.number - 1
	if floor < 1 || r.m.raiseFloor(ctx, r.name, floor) != nil {
		return
	}
	kept, err := r.m.keptRounds(ctx, r.name)
	for _, number := range kept {
		if err != nil || number >= floor {
			return
		}
		err = r.m.clearRound(ctx, znode.Barrier(r.m.Job.Root, r.m.Generation, r.name, number))
	}
}

// raiseFloor never lowers it.
func (m *Member) raiseFloor(ctx context.Context, name string, to int) error {
	floor, version, err := m.floor(ctx, name)
	if err != nil || floor >= to {
		return err
	}
	path := znode.BarrierFloor(m.Job.Root, m.Generation, name)
	_, err = m.write(ctx, zkconn.SetOp(path, znode.EncodeFloor(to), version))
	return err
}

// clearRound deletes a released round, and all of an aborted one but its st. It deletes an undecided round if nobody
// has arrived: everybody has skipped it.
func (m *Member) clearRound(ctx context.Context, dir string) error {
	released, aborted, err := m.decided(ctx, dir)
	if err != nil {
		return err
	}
	state := zkconn.DeleteOp(znode.RoundState(dir), 0)
	switch {
	case aborted:
		if stat, _, err := m.session.Exists(ctx, dir); err != nil || stat.NumChildren == 1 { // cleared already
			return err
		}
	case !released:
		arrivals, count := zkconn.DeleteOp(znode.Arrivals(dir), 0), zkconn.DeleteOp(znode.Count(dir), 0)
		_, err := m.write(ctx, state, arrivals, count, zkconn.DeleteOp(dir, 0))
		if errors.Is(err, zkconn.ErrNotEmpty) { // somebody has arrived: it may still be aborted
			return nil
		}
		return err
	default:
		if _, err := m.write(ctx, state); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return err
		}
	}
	for _, folder := range []string{znode.Arrivals(dir), znode.Count(dir)} {
		if err := m.clearFolder(ctx, folder); err != nil {
			return err
		}
	}
	if aborted {
		return nil
	}
	_, err = m.write(ctx, zkconn.DeleteOp(dir, 0))
	return err
}

// clearFolder deletes a folder with all that is in it.
func (m *Member) clearFolder(ctx context.Context, dir string) error {
	names, _, err := m.session.Children(ctx, dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	ops := make([]zkconn.Op, 0, clearBatch)
	for i, name := range names {
		ops = append(ops, zkconn.DeleteOp(resource.Join(dir, name), 0))
		if len(ops) < clearBatch && i < len(names)-1 {
			continue
		}
		if _, err := m.write(ctx, ops...); err != nil {
			return err
		}
		ops = ops[:0]
	}
	_, err = m.write(ctx, zkconn.DeleteOp(dir, 0))
	return err
}
