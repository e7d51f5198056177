package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// read reads st, and makes the round or the attempt if there is none. It reports whether that is open; if it is not,
// the error is nil after a release, or AbortedError. What is open here may be released already: T tells. A call that
// has not found an open attempt yet goes on to the latest.
func (r *round) read(ctx context.Context) (open bool, err error) {
	for tries := 1; ; tries++ {
		body, _, changed, err := r.m.session.GetW(ctx, r.state())
		if errors.Is(err, zkconn.ErrNoNode) {
			if tries == maxAttempts { // its folder is there, and it is not
				return false, &damagedError{r.state()}
			}
			if released, err := r.make(ctx); err != nil || released {
				return false, err
			}
			continue
		}
		if err != nil {
			return false, err
		}
		st, err := znode.Decode[znode.Round](body)
		if err == nil {
			err = r.checkMode(st)
		}
		switch {
		case err != nil:
			return false, err
		case st.Aborted != "" && r.mode.Retry() && *r.chosen == 0:
			if err := r.moveOn(ctx); err != nil {
				return false, err
			}
		case st.Aborted != "":
			return false, r.aborted(st)
		default:
			r.n, r.changed, *r.chosen = st.Workers, changed, r.attempt
			return true, nil
		}
	}
}

// checkMode refuses a round of another mode.
func (r *round) checkMode(st znode.Round) error {
	if st.Mode != r.mode && (st.Aborted == "" || st.Mode.Retry() != r.mode.Retry()) {
		return fmt.Errorf("another worker made it %s, this one wants it %s: "+
			"all rounds of a name are of one mode, so use another name", st.Mode, r.mode)
	}
	return nil
}

func (r *round) aborted(st znode.Round) error {
	return &AbortedError{r.name, r.number, r.attempt, st.Aborted, st.Missing, r.mode.Retry()}
}

// make makes the round or the attempt, or reports that the round was released and is gone.
func (r *round) make(ctx context.Context) (released bool, err error) {
	floor, version, err := r.m.floor(ctx, r.name)
	if err != nil {
		return false, err
	}
	if r.number < floor {
		return r.belowFloor(ctx)
	}
	if err = r.create(ctx, r.dir, r.m.Job.Workers, version); err == nil {
		r.clearBefore(ctx)
		return false, nil
	}
	// Another worker may have made it, or the floor may have risen, after which all is cleared.
	return false, r.m.mayRetry(ctx, err, zkconn.ErrNodeExists, zkconn.ErrBadVersion)
}

// makeNext makes the round after this one. If it fails, a worker that needs the round makes it.
func (r *round) makeNext(ctx context.Context) {
	if r.n == 1 || r.number == znode.MaxRound || r.name == znode.StartBarrier || r.attempt > 1 {
		return
	}
	next := r.number + 1
	for {
		floor, version, err := r.m.floor(ctx, r.name)
		if err != nil || next < floor {
			return
		}
		err = r.create(ctx, znode.Barrier(r.m.Job.Root, r.m.Generation, r.name, next), r.n, version)
		if !errors.Is(err, zkconn.ErrBadVersion) { // the release of this round raises the floor
			return
		}
	}
}

// create makes a round of n workers, or an attempt at it. It checks the floor at the version read, so that a round that
// was cleared cannot be made again; -1 makes the barrier too.
func (r *round) create(ctx context.Context, dir string, n int, version int32) error {
	st, err := znode.Encode(znode.Round{Workers: n, Mode: r.mode})
	if err != nil {
		return err
	}
	create := func(path string, data []byte) zkconn.Op {
		return zkconn.CreateOp(path, data, zkconn.Persistent, r.m.acl)
	}
	at := znode.BarrierFloor(r.m.Job.Root, r.m.Generation, r.name)
	floor := zkconn.CheckOp(at, version)
	if version < 0 {
		floor = create(at, znode.EncodeFloor(0))
	}
	_, err = r.m.write(ctx, floor, create(dir, nil), create(znode.RoundState(dir), st),
		create(znode.Arrivals(dir), nil), create(znode.Count(dir), nil))
	return err
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
// If this worker has arrived at a round that is undecided, in whatever life, it is that round. If an attempt at a round
// was aborted, it is that round until an attempt is released. Otherwise it is the round after the last one that was
// decided with this worker.
func (m *Member) NextRound(ctx context.Context, name string) (int, error) {
	kept, err := m.keptRounds(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, k := range slices.Backward(kept) {
		dir := znode.Attempt(m.Job.Root, m.Generation, name, k.number, k.attempts)
		now, err := m.decided(ctx, dir)
		if err != nil {
			return 0, err
		}
		switch {
		case now.released: // with this worker, as every release, though its live arrival may be gone
			return k.number + 1, nil
		case k.attempts > 1 || now.aborted && now.retry:
			return k.number, nil
		}
		_, arrived, err := m.session.Exists(ctx, znode.Arrival(dir, m.ID))
		switch {
		case err != nil:
			return 0, err
		case arrived && now.aborted:
			return k.number + 1, nil
		case arrived:
			return k.number, nil
		}
	}
	floor, _, err := m.floor(ctx, name)
	return floor, err
}

// keptRound is a round that exists, with the number of its latest attempt.
type keptRound struct{ number, attempts int }

// keptRounds lists the rounds that exist, ascending.
func (m *Member) keptRounds(ctx context.Context, name string) ([]keptRound, error) {
	names, _, err := m.session.Children(ctx, znode.BarrierFloor(m.Job.Root, m.Generation, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	latest := map[int]int{}
	for _, s := range names {
		if number, attempt, err := znode.ParseAttempt(s); err == nil {
			latest[number] = max(latest[number], attempt)
		}
	}
	var kept []keptRound
	for _, number := range slices.Sorted(maps.Keys(latest)) {
		kept = append(kept, keptRound{number, latest[number]})
	}
	return kept, err
}

// outcome is what became of an attempt. Neither released nor aborted is undecided.
type outcome struct{ released, aborted, retry bool }

// decided reads the outcome of an attempt. One without st is being cleared, so it was released.
func (m *Member) decided(ctx context.Context, dir string) (outcome, error) {
	body, _, err := m.session.Get(ctx, znode.RoundState(dir))
	if errors.Is(err, zkconn.ErrNoNode) {
		return outcome{released: true}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	st, err := znode.Decode[znode.Round](body)
	if err != nil || st.Aborted != "" {
		return outcome{aborted: true, retry: st.Mode.Retry()}, err
	}
	token, there, err := m.session.Exists(ctx, znode.Counted(dir, st.Workers-1))
	return outcome{
		released: there && token.DataLength == 0, aborted: there && token.DataLength > 0, retry: st.Mode.Retry(),
	}, err
}

// acknowledge makes an arrival that says: this worker was missing, and has been told of the abort. Its next round
// then is the one after it. If that fails the worker is told of the abort again. A round with attempts needs none.
func (r *round) acknowledge(ctx context.Context) {
	if r.mode.Retry() {
		return
	}
	mode := zkconn.Persistent
	if r.mode.Live() {
		mode = zkconn.Ephemeral
	}
	_, _ = r.m.write(ctx, zkconn.CheckOp(r.state(), 1), zkconn.CreateOp(r.arrival(), nil, mode, r.m.acl))
}
