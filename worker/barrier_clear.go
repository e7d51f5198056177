package worker

import (
	"context"
	"errors"
	"time"

	"muster/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Whoever releases round r raises the floor to r-1 and deletes the released rounds below: all have arrived at r, so that
// nobody needs those any more, and who asks for one learns from the floor that it was released. An aborted round keeps st. A
// round's st goes first, so that nobody takes a half-deleted round for an open one; if the process dies, the next
// release goes on where it stopped.

// clearing is how many znodes one transaction deletes: as many as a session with small buffers can send.
const clearing = 100

// tidying is how long the last to arrive may be kept by that: 10,000 arrivals are deleted in a fraction of it.
const tidying = 5 * time.Second

// tidy clears up after a release. What it cannot do, the next release does: the round is released whatever happens here.
func (r *round) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidying)
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
	_, err = m.write(ctx, zkconn.SetOp(znode.BarrierFloor(m.Job.Root, m.Generation, name), znode.EncodeFloor(to), version))
	return err
}

// clearRound deletes a released round, and of an aborted one all but st. Of those that are undecided it deletes one that
// everybody skipped.
func (m *Member) clearRound(ctx context.Context, dir string) error {
	released, aborted, err := m.decided(ctx, dir)
	if err != nil {
		return err
	}
	state := zkconn.DeleteOp(znode.RoundState(dir), 0)
	switch {
	case aborted:
		if stat, _, err := m.session.Exists(ctx, dir); err != nil || stat.NumChildren == 1 { // cleared before
			return err
		}
	case !released:
		_, err := m.write(ctx, state, zkconn.DeleteOp(znode.Arrivals(dir), 0), zkconn.DeleteOp(znode.Count(dir), 0), zkconn.DeleteOp(dir, 0))
		if errors.Is(err, zkconn.ErrNotEmpty) { // somebody arrived: it may be aborted yet
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
	ops := make([]zkconn.Op, 0, clearing)
	for i, name := range names {
		ops = append(ops, zkconn.DeleteOp(job.Join(dir, name), 0))
		if len(ops) < clearing && i < len(names)-1 {
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
