package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// read reads st, and makes the round or the attempt if there is none. It reports whether that is open; if it is not,
// the error is nil after a release, or AbortedError. What is open here may be released already: the token tells. A call
// that has not found an open attempt yet goes on to the latest.
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
			r.n, r.stChanged, *r.chosen = st.Workers, changed, r.attempt
			return true, nil
		}
	}
}

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
	if r.n == 1 || r.number == znode.MaxRound || r.name == znode.StartBarrier || r.attempt > 1 || r.ofGang() {
		return
	}
	next := r.number + 1
	for {
		floor, version, err := r.m.floor(ctx, r.name)
		if err != nil || next < floor {
			return
		}
		err = r.create(ctx, znode.Attempt(r.m.Job.Root, r.m.Generation, r.name, next, 1), r.n, version)
		if !errors.Is(err, zkconn.ErrBadVersion) { // the release of this round raises the floor
			return
		}
	}
}

// create makes a round of n workers, or an attempt at it. It checks the floor at the version read, so that a round that
// was cleared cannot be made again; -1 makes the barrier too.
func (r *round) create(ctx context.Context, dir string, n int, version int32) error {
	ops, err := roundOps(dir, n, r.mode, r.m.acl)
	if err != nil {
		return err
	}
	at := znode.BarrierFloor(r.m.Job.Root, r.m.Generation, r.name)
	floor := zkconn.CheckOp(at, version)
	if version < 0 {
		floor = zkconn.CreateOp(at, znode.EncodeFloor(0), zkconn.Persistent, r.m.acl)
	}
	_, err = r.m.write(ctx, append([]zkconn.Op{floor}, ops...)...)
	return err
}

// roundOps make a round of n workers, or an attempt at it.
func roundOps(dir string, n int, mode znode.BarrierMode, acl []zkconn.ACL) ([]zkconn.Op, error) {
	st, err := znode.Encode(znode.Round{Workers: n, Mode: mode})
	create := func(path string, data []byte) zkconn.Op {
		return zkconn.CreateOp(path, data, zkconn.Persistent, acl)
	}
	return []zkconn.Op{
		create(dir, nil), create(znode.RoundState(dir), st), create(znode.Arrivals(dir), nil), create(znode.Count(dir), nil),
	}, err
}

// ofGang reports whether it is a round at which an attempt starts or finishes: another attempt makes the next one.
func (r *round) ofGang() bool {
	return r.m.Job.Gang != nil && (r.name == znode.StartBarrier || r.name == znode.FinishBarrier)
}

// floor reads the floor of a barrier; the version is -1 if nobody has made the barrier.
func (m *Member) floor(ctx context.Context, name string) (floor int, version int32, err error) {
	body, stat, there, err := zkconn.IfThere(m.session.Get(ctx, znode.BarrierFloor(m.Job.Root, m.Generation, name)))
	if err != nil || !there {
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
	name = m.barrierName(name)
	kept, err := m.keptRounds(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(kept))) {
		dir := znode.Attempt(m.Job.Root, m.Generation, name, number, kept[number])
		now, err := m.decided(ctx, dir)
		if err != nil {
			return 0, err
		}
		switch {
		case now.released: // with this worker, as every release, though its live arrival may be gone
			return number + 1, nil
		case kept[number] > 1 || now.aborted && now.retry:
			return number, nil
		}
		_, arrived, err := m.session.Exists(ctx, znode.Arrival(dir, m.ID))
		switch {
		case err != nil:
			return 0, err
		case arrived && now.aborted:
			return number + 1, nil
		case arrived:
			return number, nil
		}
	}
	floor, _, err := m.floor(ctx, name)
	return floor, err
}

// keptRounds maps each round that exists to its latest attempt.
func (m *Member) keptRounds(ctx context.Context, name string) (map[int]int, error) {
	return keptRounds(ctx, m.session, m.Job, m.Generation, name)
}

func keptRounds(ctx context.Context, s *zkconn.Session, j job.Job, g, name string) (map[int]int, error) {
	names, _, _, err := zkconn.IfThere(s.Children(ctx, znode.BarrierFloor(j.Root, g, name)))
	return znode.LatestAttempts(names), err
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

// With Retry an abort ends an attempt at a round, and not the round. The first attempt is in the round's own folder,
// the later ones are beside it:
//
//	barrier/<name>/7     the round; the first attempt
//	barrier/<name>/7.2   the second attempt, and so on: st, a and c as in a round
//
// An attempt is made by who has read that the one before it was aborted, which is final: so at most one attempt at a
// round is released, and none follows it. Below the floor no attempt is made. The maker then deletes the arrivals of
// the attempt before; each st stays, so that everybody learns of the abort, until the round is cleared. A process that
// dies in between leaves arrivals that no one counts.
//
// A call that finds the round aborted goes to the latest attempt, or makes one after that if it was aborted too. Once a
// call has found an attempt open it stays there, also in another session: its outcome is that of the call.

// at makes r a call at this attempt.
func (r *round) at(attempt int) { r.attempt, r.dir = attempt, r.folder(attempt) }

func (r *round) folder(attempt int) string {
	return znode.Attempt(r.m.Job.Root, r.m.Generation, r.name, r.number, attempt)
}

// moveOn goes from an aborted attempt to the latest, or to the one after it if this is the latest.
func (r *round) moveOn(ctx context.Context) error {
	kept, err := r.m.keptRounds(ctx, r.name)
	if err != nil {
		return err
	}
	r.at(max(r.attempt+1, kept[r.number]))
	return nil
}

// belowFloor reports whether a round below the floor, of which this attempt does not exist, was released. It was not if
// its own st is there: all have skipped it after an abort, for good. A call that had found its attempt open must still
// be a member's: else the attempt may have been aborted, and another process of the worker was at the one released.
func (r *round) belowFloor(ctx context.Context) (released bool, err error) {
	body, _, err := r.m.session.Get(ctx, znode.RoundState(r.folder(1)))
	if errors.Is(err, zkconn.ErrNoNode) {
		if *r.chosen == 0 {
			return true, nil
		}
		if _, err := r.m.write(ctx); err != nil {
			return false, r.m.mayRetry(ctx, err)
		}
		return true, nil
	}
	if err != nil || r.attempt == 1 {
		return false, err
	}
	st, err := znode.Decode[znode.Round](body)
	if err != nil {
		return false, err
	}
	return false, &AbortedError{Name: r.name, Round: r.number, Attempt: 1, Why: st.Aborted, Missing: st.Missing}
}

// clearBefore deletes the arrivals of the aborted attempt before this one. What is left, if it fails, is deleted with
// the round.
func (r *round) clearBefore(ctx context.Context) {
	if r.attempt == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	_ = r.m.clearAttempt(ctx, r.folder(r.attempt-1), false)
}

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
	if floor < 1 || r.ofGang() || r.m.raiseFloor(ctx, r.name, floor) != nil {
		return
	}
	kept, err := r.m.keptRounds(ctx, r.name)
	for _, number := range slices.Sorted(maps.Keys(kept)) {
		if err != nil || number >= floor {
			return
		}
		err = r.m.clearRound(ctx, r.name, number, kept[number])
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
func (m *Member) clearRound(ctx context.Context, name string, number, attempts int) error {
	folder := func(attempt int) string { return znode.Attempt(m.Job.Root, m.Generation, name, number, attempt) }
	latest := folder(attempts)
	now, err := m.decided(ctx, latest)
	switch {
	case err != nil:
		return err
	case now.released:
		err = m.clearState(ctx, folder(1), latest)
	case !now.aborted:
		return m.clearUntouched(ctx, latest)
	}
	for attempt := 2; attempt <= attempts && err == nil; attempt++ {
		err = m.clearAttempt(ctx, folder(attempt), now.released)
	}
	if err != nil {
		return err
	}
	return m.clearAttempt(ctx, folder(1), now.released)
}

// clearState deletes the st of a round of which the latest attempt was released, and the st of that attempt, which
// would be undecided without its token.
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

func (m *Member) clearFolder(ctx context.Context, dir string) error {
	names, _, there, err := zkconn.IfThere(m.session.Children(ctx, dir))
	if err != nil || !there {
		return err
	}
	for names := range slices.Chunk(names, clearBatch) {
		var ops []zkconn.Op
		for _, name := range names {
			ops = append(ops, zkconn.DeleteOp(resource.Join(dir, name), anyVersion))
		}
		if _, err := m.write(ctx, ops...); err != nil {
			return err
		}
	}
	_, err = m.write(ctx, zkconn.DeleteOp(dir, anyVersion))
	return err
}
