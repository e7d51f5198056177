package worker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"muster/resource"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A round of a barrier is a folder <dir> = run/<g>/barrier/<name>/<round>. The barrier's own folder holds the floor:
// rounds below it were released and may be gone.
//
//	<dir>/st       n, mode      version 0 from the start; set once, by an abort
//	<dir>/a/<id>                who arrived
//	<dir>/c/c-<10> sequential   the order of arrivals; number n-1 is the token
//
// Arriving is one transaction: check st 0 · create a/<id> · create c/c-. Everybody watches the token. The n-th arrival
// is the token, so no process has to release the others and could crash before it does. An abort creates the token in
// the transaction that sets st. Only one of release and abort can create it, so the outcome is the same for all.
//
// The first worker to arrive also makes the next round: otherwise all would try that at once when they are released. A
// process that dies before its arrival has written nothing. If it dies after it, the arrival counts, and the next life
// finds it by a/<id>. In a live round it does not count. With Retry a round has attempts, each in a folder of its own:
// see barrier_round.go.

// Barrier says what to wait at. Of the zero value only Name has to be set.
type Barrier struct {
	Name  string
	Round *int // nil: the one after this member's last. Only an explicit round is safe to repeat after a crash
	Live  bool // release only when all are alive at one instant; without it an arrival counts even if its process dies
	// Retry: an abort ends only an attempt at the round, and a call that begins afterwards is at the next attempt, at
	// which all N have to arrive again. Without it an abort is final. All callers of a name say the same.
	Retry bool
	// Attempt, if it is not nil, belongs to a call that may have to be made again because the session is lost: 0 before
	// the first time, which sets it; the next time it is then the same call, at the same attempt.
	Attempt *int
	// Timeout, counted from the call, after which the round is aborted for everybody; 0 is the job's barrier timeout.
	// The end of a context only ends this call: an arrival still counts.
	Timeout time.Duration
}

// Check reports what is wrong with the name or the round.
func (b Barrier) Check() error {
	if err := resource.CheckName("barrier", b.Name); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if b.Round != nil && (*b.Round < 0 || *b.Round > znode.MaxRound) {
		return fmt.Errorf("barrier %s: %d is not the number of a round, 0 to %d", b.Name, *b.Round, znode.MaxRound)
	}
	return nil
}

// AbortedError means that the round was not released for any worker. Unless Retry is set it is final: go on with
// another round, or give up. With Retry call Barrier again at the same round: that is another attempt.
type AbortedError struct {
	Name    string `json:"name"`
	Round   int    `json:"round"`
	Attempt int    `json:"attempt"` // at the round, from 1
	Why     string `json:"why"`
	Missing []int  `json:"missing"` // ids of the workers that had not arrived
	Retry   bool   `json:"retry"`   // only this attempt was aborted
}

func (e *AbortedError) Error() string {
	s := roundTitle(e.Name, e.Round)
	ofGang := e.Name == znode.StartBarrier && e.Round > 0
	if e.Attempt > 1 && !ofGang {
		s = fmt.Sprintf("attempt %d at %s", e.Attempt, s)
	}
	s += " was aborted: " + e.Why
	if len(e.Missing) > 0 {
		s += "; missing: " + text.List(e.Missing, maxNamed)
	}
	if ofGang {
		return s + "; start them, and this worker again"
	}
	if e.Retry {
		return s + "; the next call is another attempt, at which all have to arrive again"
	}
	return s + "; that is final for all workers, also for those that come later"
}

func roundTitle(name string, round int) string {
	switch name = znode.PlainBarrier(name); {
	case name == znode.StartBarrier && round > 0:
		return fmt.Sprintf("the start of attempt %d", round)
	case name == znode.StartBarrier:
		return "the start barrier"
	}
	return fmt.Sprintf("round %d of barrier %s", round, name)
}

// Barrier returns nil once all N workers have arrived at the round, and AbortedError if it was aborted. Every member
// gets the same answer, whenever it asks; with Retry, every member whose call is at the same attempt. For a member the
// rounds of one name may only increase, and all have the same mode. One call at a time may be under way for a name.
func (m *Member) Barrier(ctx context.Context, b Barrier) error {
	if err := b.Check(); err != nil {
		return err
	}
	return m.barrier(ctx, b)
}

// StartBarrier waits at the start barrier. It is passed once in a generation, when all N workers are alive at one
// instant; a worker that is restarted later passes at once. After timeout, counted from the call, the attempt is
// aborted for everybody; 0 is the job's barrier timeout. A later call is at the next attempt. attempt may be nil: see
// Barrier.
func (m *Member) StartBarrier(ctx context.Context, timeout time.Duration, attempt *int) error {
	return m.barrier(ctx, Barrier{
		Name: znode.StartBarrier, Round: new(int), Live: true, Retry: true, Timeout: timeout, Attempt: attempt,
	})
}

func (m *Member) barrier(ctx context.Context, b Barrier) error {
	limit := b.Timeout
	if limit <= 0 {
		limit = time.Duration(m.Job.Timeouts.Barrier)
	}
	begun := time.Now()
	number, err := 0, error(nil)
	if b.Round != nil {
		number = *b.Round
	} else if number, err = m.NextRound(ctx, b.Name); err != nil {
		return fmt.Errorf("barrier %s: %w", b.Name, err)
	}
	r := &round{
		m: m, name: m.barrierName(b.Name), number: number, mode: znode.NewBarrierMode(b.Live, b.Retry),
		limit: limit, begun: begun,
	}
	if r.chosen = b.Attempt; r.chosen == nil {
		r.chosen = new(int)
	}
	r.at(max(*r.chosen, 1))
	return r.passInTime(ctx)
}

// passInTime is pass with a limit, whose end aborts the round; that of ctx does not.
func (r *round) passInTime(ctx context.Context) error {
	timer, cancel := context.WithDeadline(context.Background(), r.begun.Add(r.limit))
	defer cancel()
	err := r.pass(ctx, timer)
	if _, aborted := errors.AsType[*AbortedError](err); aborted {
		r.acknowledge(ctx)
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", roundTitle(r.name, r.number), err)
	}
	return nil
}

// round is one call at one round.
type round struct {
	m      *Member
	name   string
	number int
	mode   znode.BarrierMode
	begun  time.Time
	limit  time.Duration // since it has begun

	attempt int    // of which dir is the folder
	dir     string // see at
	chosen  *int   // the attempt of this call; 0 until it has found one that was open

	n         int // how many must arrive: what st says
	stChanged <-chan struct{}
	last      bool         // it has created the token
	arrived   *atomic.Bool // unless nil, is set when this worker has arrived
}

func (r *round) state() string   { return znode.RoundState(r.dir) }
func (r *round) arrival() string { return znode.Arrival(r.dir, r.m.ID) }
func (r *round) token() string   { return znode.Counted(r.dir, r.n-1) }

// pass returns when the round is decided. timer ends when the time of the call is up: then it no longer waits for parts
// of the job that are missing.
func (r *round) pass(ctx, timer context.Context) error {
	inTime, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(timer, cancel)()
	arrive := r.arrive
	if r.mode.Live() {
		arrive = r.arriveLive
	}
	var open, last bool
	err := repeat(inTime, r.m.session, func() (err error) {
		if open, err = r.read(ctx); err != nil || !open {
			return err
		}
		if last, err = arrive(ctx); err == nil {
			return nil
		}
		// st refused it: the round was aborted, or released and cleared. Or a live arrival of an older session came
		// or went.
		if err := r.m.mayRetry(ctx, err, zkconn.ErrBadVersion, zkconn.ErrNoNode, zkconn.ErrNodeExists); err != nil {
			return err
		}
		return errAgain
	})
	if r.arrived != nil && err == nil {
		r.arrived.Store(true)
	}
	switch {
	case err != nil || !open:
		return err
	case last:
		r.last = true
		r.clearOlder(ctx)
		return nil
	}
	return r.await(ctx, timer)
}

// mayRetry returns nil if a caller whose transaction failed with err should read and decide again: after a refusal that
// is one of expected, and after a lost reply, as soon as its outcome can be read. Else it returns the error to return.
func (m *Member) mayRetry(ctx context.Context, err error, expected ...error) error {
	switch {
	case errors.Is(err, ErrFenced):
		return err
	case errors.Is(err, zkconn.ErrUnknown):
		return m.session.Settled(ctx)
	}
	if slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return err
}

// arrive counts this worker, once. It reports whether it is the n-th.
func (r *round) arrive(ctx context.Context) (last bool, err error) {
	results, err := r.m.write(ctx,
		zkconn.CheckOp(r.state(), 0),
		zkconn.CreateOp(r.arrival(), nil, zkconn.Persistent, r.m.acl),
		zkconn.CreateOp(znode.NewCount(r.dir), nil, zkconn.PersistentSequential, r.m.acl),
	)
	if errors.Is(err, zkconn.ErrNodeExists) {
		return false, nil // it has arrived before: the reply was lost, or this is its next life
	}
	if err != nil {
		return false, damaged(err, znode.Arrivals(r.dir), znode.Count(r.dir))
	}
	number, err := znode.CountNumber(results[2].Path)
	if number == 0 {
		r.makeNext(ctx)
	}
	return number == r.n-1, err
}

// damaged makes a refusal final that no recipe can cause: one of these folders is gone although st is there.
func damaged(err error, folders ...string) error {
	var refused *zkconn.Error
	if !errors.Is(err, zkconn.ErrNoNode) || !errors.As(err, &refused) || refused.Op != "create" {
		return err
	}
	if dir := path.Dir(refused.Path); slices.Contains(folders, dir) {
		return fmt.Errorf("%s is missing: somebody else deleted it", dir)
	}
	return err
}

// await waits for the token and returns what it means. When the time is up it aborts the round.
func (r *round) await(ctx, timer context.Context) error {
	for {
		stat, decided, changed, created, err := r.m.session.CreatedW(ctx, r.token())
		if err != nil || decided && stat.DataLength == 0 {
			return err
		}
		if !decided {
			if err := r.wait(ctx, timer, changed); err != nil {
				return err
			}
			if zkconn.Closed(changed) && created() && !zkconn.Closed(r.stChanged) {
				return nil // released: an abort sets st in the same transaction, and that event would be here
			}
		}
		if open, err := r.read(ctx); err != nil || !open {
			return err
		}
	}
}

func (r *round) wait(ctx, timer context.Context, token <-chan struct{}) error {
	select {
	case <-token:
		return nil
	case <-r.stChanged:
		return nil
	case <-timer.Done():
		return r.abort(ctx, fmt.Sprintf("worker %d waited %s", r.m.ID, r.limit))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.m.ctx.Done():
		return context.Cause(r.m.ctx)
	}
}

// An abort is one transaction: set st 0 · create the next number of c · create the token. The first operation keeps
// everybody from arriving. The second proves that nobody has arrived since a's children were listed, so the workers
// that are named are exactly those that are missing; a live round has no numbers, and its list is that of one moment.
// The third is refused if the round was released. Every worker whose time is up tries, and one succeeds; if a process
// dies before, the others try.

// abort returns nil when the round is decided, by whatever worker.
func (r *round) abort(ctx context.Context, why string) error {
	for {
		missing, err := r.missing(ctx)
		if errors.Is(err, zkconn.ErrNoNode) {
			return nil // released and cleared
		}
		if err != nil {
			return err
		}
		switch {
		case len(missing) > 0:
			err = r.tryAbort(ctx, why, missing)
		case r.mode.Live():
			_, err = r.releaseLive(ctx, false) // the last worker to arrive may have died
		}
		refused, ok := errors.AsType[*zkconn.Error](err)
		if err == nil || ok && (refused.Path == r.state() || refused.Path == r.token()) {
			return nil // aborted, released, or released and cleared
		}
		if err := r.m.mayRetry(ctx, err, zkconn.ErrNodeExists); err != nil {
			return err
		}
	}
}

func (r *round) tryAbort(ctx context.Context, why string, missing []int) error {
	st, err := znode.Encode(znode.Round{Workers: r.n, Mode: r.mode, Aborted: why, Missing: missing})
	if err != nil {
		return err
	}
	ops := []zkconn.Op{zkconn.SetOp(r.state(), st, 0)}
	next := znode.Counted(r.dir, r.n-len(missing))
	if !r.mode.Live() && next != r.token() {
		ops = append(ops, zkconn.CreateOp(next, nil, zkconn.Persistent, r.m.acl))
	}
	_, err = r.m.write(ctx, append(ops, zkconn.CreateOp(r.token(), []byte("aborted"), zkconn.Persistent, r.m.acl))...)
	return err
}

func (r *round) missing(ctx context.Context) ([]int, error) {
	if r.mode.Live() {
		if err := r.m.session.Sync(ctx, r.dir); err != nil {
			return nil, err
		}
	}
	names, _, err := r.m.session.Children(ctx, znode.Arrivals(r.dir))
	if err != nil {
		return nil, err
	}
	_, missing := znode.Arrived(names, r.n)
	return missing, nil
}

// In a live round an arrival is an ephemeral znode: it ends with the session that owns it, and counts for that session
// only. There is no sequence. After its own arrival each worker counts a's children, and creates the token if there are
// N. It counts after its own create, so the last worker to arrive sees all of them, unless one has died, which will
// arrive again. If a process dies before it creates the token, its arrival ends too, and its next life counts again.

// arriveLive makes this session's arrival, and the token if all are there now. It reports whether it made the token.
func (r *round) arriveLive(ctx context.Context) (last bool, err error) {
	arrive := []zkconn.Op{zkconn.CheckOp(r.state(), 0), zkconn.CreateOp(r.arrival(), nil, zkconn.Ephemeral, r.m.acl)}
	_, err = r.m.write(ctx, arrive...)
	if errors.Is(err, zkconn.ErrNodeExists) {
		err = r.replaceArrival(ctx)
	}
	if err != nil {
		return false, damaged(err, znode.Arrivals(r.dir))
	}
	return r.releaseLive(ctx, r.ofGang())
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

// releaseLive creates the token if n workers are alive here, and reports whether it did. If another worker decides the
// round at the same moment, the token tells the outcome. onlyLast: of those who count n it does so only if it was the
// last to arrive, because it costs a read of each worker. If that one dies, somebody else is the last.
func (r *round) releaseLive(ctx context.Context, onlyLast bool) (done bool, err error) {
	stat, _, err := r.m.session.Exists(ctx, znode.Arrivals(r.dir))
	if stat.NumChildren == 1 {
		r.makeNext(ctx)
	}
	if err != nil || int(stat.NumChildren) < r.n {
		return false, err
	}
	if onlyLast {
		own, _, err := r.m.session.Exists(ctx, r.arrival())
		if err != nil || own.Czxid != stat.Pzxid {
			return false, err
		}
	}
	ops := []zkconn.Op{zkconn.CheckOp(r.state(), 0), zkconn.CreateOp(r.token(), nil, zkconn.Persistent, r.m.acl)}
	if r.ofGang() {
		roll, err := r.m.roll(ctx)
		if err != nil {
			return false, err
		}
		now, _, err := r.m.session.Exists(ctx, znode.Arrivals(r.dir))
		if err != nil || now.Pzxid != stat.Pzxid { // who came since counts again
			return false, err
		}
		ops = append(ops, roll...)
	}
	_, err = r.m.write(ctx, ops...)
	if errors.Is(err, zkconn.ErrNodeExists) {
		return false, nil
	}
	return err == nil, err
}
