package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// read reads st, and makes the round if there is none. It reports whether the round is open; if it is not, the error
// is nil after a release, or AbortedError. A round that is open here may be released already: T tells.
func (r *round) read(ctx context.Context) (open bool, err error) {
	for {
		body, _, changed, err := r.m.session.GetW(ctx, r.state())
		if errors.Is(err, zkconn.ErrNoNode) {
			if released, err := r.make(ctx); err != nil || released {
				return false, err
			}
			continue
		}
		if err != nil {
			return false, err
		}
		st, err := znode.DecodeRound(body)
		switch {
		case err != nil:
			return false, err
		case st.Aborted != "":
			return false, &AbortedError{r.name, r.number, st.Aborted, st.Missing}
		case st.Mode != r.mode:
			return false, fmt.Errorf("another worker made it %s, this one wants it %s: "+
				"all rounds of a name are of one mode, so use another name", st.Mode, r.mode)
		}
		r.n, r.changed = st.Workers, changed
		return true, nil
	}
}

// make makes the round, or reports that it was released and is gone. It checks the floor at the version read, so that a
// round that was cleared cannot be made again.
func (r *round) make(ctx context.Context) (released bool, err error) {
	m := r.m
	path := znode.BarrierFloor(m.Job.Root, m.Generation, r.name)
	floor, version, err := m.floor(ctx, r.name)
	if err != nil {
		return false, err
	}
	if r.number < floor {
		_, there, err := m.session.Exists(ctx, r.state()) // an aborted round keeps its st, also below the floor
		return !there, err
	}
	first := zkconn.CheckOp(path, version)
	if version < 0 {
		first = zkconn.CreateOp(path, znode.EncodeFloor(0), zkconn.Persistent, m.acl)
	}
	ops, err := r.creates(r.dir, m.Job.Workers)
	if err != nil {
		return false, err
	}
	if _, err = m.write(ctx, append([]zkconn.Op{first}, ops...)...); err != nil {
		// Another worker may have made it, or the floor may have risen.
		err = m.mayRetry(ctx, err, zkconn.ErrNodeExists, zkconn.ErrBadVersion)
	}
	return false, err
}

// makeNext makes the round after this one. This one is open, so neither can be below the floor. If it fails, a worker
// that needs the round makes it.
func (r *round) makeNext(ctx context.Context) {
	if r.n == 1 || r.number == znode.MaxRound || r.name == znode.StartBarrier {
		return
	}
	ops, err := r.creates(znode.Barrier(r.m.Job.Root, r.m.Generation, r.name, r.number+1), r.n)
	if err == nil {
		_, _ = r.m.write(ctx, append([]zkconn.Op{zkconn.CheckOp(r.state(), 0)}, ops...)...)
	}
}

// creates are the operations that make a round of n workers.
func (r *round) creates(dir string, n int) ([]zkconn.Op, error) {
	st, err := znode.EncodeRound(znode.Round{Workers: n, Mode: r.mode})
	create := func(path string, data []byte) zkconn.Op {
		return zkconn.CreateOp(path, data, zkconn.Persistent, r.m.acl)
	}
	return []zkconn.Op{
		create(dir, nil), create(znode.RoundState(dir), st),
		create(znode.Arrivals(dir), nil), create(znode.Count(dir), nil),
	}, err
}

// floor reads the floor of a barrier; the version is -1 if nobody has made the barrier.
func (m *Member) floor(ctx context.Context, name string) (floor int, version int32, err error) {
	body, stat, err := m.session.Get(ctx, znode.BarrierFloor(m.Job.Root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return 0, -1, nil
	}
	if err != nil {
		return 0, -1, err
	}
	floor, err = znode.DecodeFloor(body)
	return floor, stat.Version, err
}

// NextRound is the round that Barrier takes if it is not given one. A caller that may have to call Barrier again,
// because the session can be lost on the way, asks for it once and names it in each call: the round can be released
// meanwhile, and then the next one is another.
//
// If this worker has arrived at a round that is undecided, in whatever life, it is that round. Otherwise it is the
// round after the last one that was decided with this worker.
func (m *Member) NextRound(ctx context.Context, name string) (int, error) {
	kept, err := m.keptRounds(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, number := range slices.Backward(kept) {
		dir := znode.Barrier(m.Job.Root, m.Generation, name, number)
		released, aborted, err := m.decided(ctx, dir)
		if err != nil {
			return 0, err
		}
		if released { // with this worker, as every release, though its live arrival may be gone
			return number + 1, nil
		}
		_, arrived, err := m.session.Exists(ctx, znode.Arrival(dir, m.ID))
		switch {
		case err != nil:
			return 0, err
		case arrived && aborted:
			return number + 1, nil
		case arrived:
			return number, nil
		}
	}
	floor, _, err := m.floor(ctx, name)
	return floor, err
}

// keptRounds lists the rounds that exist, ascending.
func (m *Member) keptRounds(ctx context.Context, name string) ([]int, error) {
	names, _, err := m.session.Children(ctx, znode.BarrierFloor(m.Job.Root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	var numbers []int
	for _, s := range names {
		if n, err := znode.RoundNumber(s); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// decided reads whether a round was released or aborted. A round without st is being cleared, so it was released.
func (m *Member) decided(ctx context.Context, dir string) (released, aborted bool, err error) {
	body, _, err := m.session.Get(ctx, znode.RoundState(dir))
	if errors.Is(err, zkconn.ErrNoNode) {
		return true, false, nil
	}
	if err != nil {
		return false, false, err
	}
	st, err := znode.DecodeRound(body)
	if err != nil || st.Aborted != "" {
		return false, true, err
	}
	token, there, err := m.session.Exists(ctx, znode.Counted(dir, st.Workers-1))
	return there && token.DataLength == 0, there && token.DataLength > 0, err
}

// acknowledge makes an arrival that says: this worker was missing, and has been told of the abort. Its next round
// then is the one after it. If that fails the worker is told of the abort again.
func (r *round) acknowledge(ctx context.Context) {
	mode := zkconn.Persistent
	if r.mode == znode.LiveRound {
		mode = zkconn.Ephemeral
	}
	_, _ = r.m.write(ctx, zkconn.CheckOp(r.state(), 1), zkconn.CreateOp(r.arrival(), nil, mode, r.m.acl))
}
