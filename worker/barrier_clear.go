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
// that is half deleted for an open one; of a round with attempts also the st of the latest, and the others last. If the
// process dies, the next release goes on where it stopped.

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
	for _, k := range kept {
		if err != nil || k.number >= floor {
			return
		}
		err = r.m.clearRound(ctx, r.name, k)
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

// clearRound deletes a released round, and all of an aborted one but the st of each attempt. It deletes an undecided
// round or attempt if nobody has arrived: everybody has skipped it.
func (m *Member) clearRound(ctx context.Context, name string, k keptRound) error {
	folder := func(attempt int) string { return znode.Attempt(m.Job.Root, m.Generation, name, k.number, attempt) }
	latest := folder(k.attempts)
	now, err := m.decided(ctx, latest)
	switch {
	case err != nil:
		return err
	case now.released:
		err = m.clearState(ctx, folder(1), latest)
	case !now.aborted:
		return m.clearUntouched(ctx, latest)
	}
	for attempt := 2; attempt <= k.attempts && err == nil; attempt++ {
		err = m.clearAttempt(ctx, folder(attempt), now.released)
	}
	if err != nil {
		return err
	}
	return m.clearAttempt(ctx, folder(1), now.released)
}

// clearState deletes the st of a round of which the latest attempt was released, and the st of that attempt, which
// would be undecided without its T.
func (m *Member) clearState(ctx context.Context, round, latest string) error {
	_, there, err := m.session.Exists(ctx, znode.RoundState(round))
	if err != nil || !there {
		return err
	}
	ops := []zkconn.Op{zkconn.DeleteOp(znode.RoundState(round), anyVersion)}
	if latest != round { // if that is gone while the round is there, it was not released: nobody was at it
		ops = append(ops, zkconn.DeleteOp(znode.RoundState(latest), anyVersion))
	}
	_, err = m.write(ctx, ops...)
	return err
}

// clearUntouched deletes an undecided round or attempt at which nobody has arrived.
func (m *Member) clearUntouched(ctx context.Context, dir string) error {
	_, err := m.write(ctx,
		zkconn.DeleteOp(znode.RoundState(dir), anyVersion), zkconn.DeleteOp(znode.Arrivals(dir), anyVersion),
		zkconn.DeleteOp(znode.Count(dir), anyVersion), zkconn.DeleteOp(dir, anyVersion))
	if errors.Is(err, zkconn.ErrNotEmpty) { // somebody has arrived: it may still be aborted
		return nil
	}
	return err
}

// clearAttempt deletes the arrivals of a decided attempt, and all else of it if it is not needed any more.
func (m *Member) clearAttempt(ctx context.Context, dir string, all bool) error {
	stat, _, err := m.session.Exists(ctx, dir)
	if err != nil || stat.NumChildren == 1 && !all { // cleared already
		return err
	}
	for _, folder := range []string{znode.Arrivals(dir), znode.Count(dir)} {
		if err := m.clearFolder(ctx, folder); err != nil {
			return err
		}
	}
	if all {
		return m.clearFolder(ctx, dir)
	}
	return nil
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
		ops = append(ops, zkconn.DeleteOp(resource.Join(dir, name), anyVersion))
		if len(ops) < clearBatch && i < len(names)-1 {
			continue
		}
		if _, err := m.write(ctx, ops...); err != nil {
			return err
		}
		ops = ops[:0]
	}
	_, err = m.write(ctx, zkconn.DeleteOp(dir, anyVersion))
	return err
}
