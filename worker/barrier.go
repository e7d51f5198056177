package worker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"muster/resource"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A round of a barrier is a folder <dir> = run/<g>/barrier/<name>/<round>. The barrier's own folder holds the floor:
// rounds below it were released and may be gone.
//
//	<dir>/st       n, mode      version 0 from the round's start; set once, by an abort
//	<dir>/a/<id>                who arrived
//	<dir>/c/c-<10> sequential   the order of arrivals; T is number n-1
//
// Arriving is one transaction: check st 0 · create a/<id> · create c/c-. Everybody watches T. The n-th arrival is T,
// so no process has to release the others and could crash before it does. An abort creates T in the transaction that
// sets st. Only one of release and abort can create T, so the outcome is the same for all.
//
// The first worker to arrive also makes the next round: otherwise all would try that at once when they are released. A
// process that dies before its arrival has written nothing. If it dies after it, the arrival counts, and the next life
// finds it by a/<id>. In a live round it does not count: see barrier_live.go.

// Barrier says what to wait at. Of the zero value only Name has to be set.
type Barrier struct {
	Name  string
	Round *int // nil: the one after this member's last. Only an explicit round is safe to repeat after a crash
	Live  bool // release only when all are alive at one instant; without it an arrival counts even if its process dies
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

// AbortedError means that the round was not released for any worker. Go on with another round, or give up.
type AbortedError struct {
	Name    string
	Round   int
	Why     string
	Missing []int // ids of the workers that had not arrived
}

func (e *AbortedError) Error() string {
	s := fmt.Sprintf("%s was aborted: %s", roundTitle(e.Name, e.Round), e.Why)
	if len(e.Missing) > 0 {
		s += "; missing: " + text.List(e.Missing, maxNamed)
	}
	return s
}

func roundTitle(name string, round int) string {
	if name == znode.StartBarrier {
		return "the start barrier"
	}
	return fmt.Sprintf("round %d of barrier %s", round, name)
}

// Barrier returns nil once all N workers have arrived at the round, and AbortedError if it was aborted. Every member
// gets the same answer, whenever it asks. For a member the rounds of one name may only increase, and all have the
// same mode. One call at a time may be under way for a name.
func (m *Member) Barrier(ctx context.Context, b Barrier) error {
	if err := b.Check(); err != nil {
		return err
	}
	return m.barrier(ctx, b)
}

// StartBarrier waits at the start barrier. It is passed once in a generation, when all N workers are alive at one
// instant; a worker that is restarted later passes at once. After timeout, counted from the call, it is aborted for
// everybody and for good; 0 is the job's barrier timeout.
func (m *Member) StartBarrier(ctx context.Context, timeout time.Duration) error {
	return m.barrier(ctx, Barrier{Name: znode.StartBarrier, Round: new(int), Live: true, Timeout: timeout})
}

func (m *Member) barrier(ctx context.Context, b Barrier) error {
	limit := b.Timeout
	if limit <= 0 {
		limit = time.Duration(m.Job.Timeouts.Barrier)
	}
	timer, cancel := context.WithTimeout(context.Background(), limit) // not a child of ctx, whose end aborts nothing
	defer cancel()
	number, err := 0, error(nil)
	if b.Round != nil {
		number = *b.Round
	} else if number, err = m.NextRound(ctx, b.Name); err != nil {
		return fmt.Errorf("barrier %s: %w", b.Name, err)
	}
	r := &round{m: m, name: b.Name, number: number, mode: znode.Durable, limit: limit}
	if b.Live {
		r.mode = znode.LiveRound
	}
	r.dir = znode.Barrier(m.Job.Root, m.Generation, b.Name, number)
	err = r.pass(ctx, timer.Done())
	var aborted *AbortedError
	if errors.As(err, &aborted) {
		r.acknowledge(ctx)
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", roundTitle(b.Name, number), err)
	}
	return nil
}

// round is one call at one round.
type round struct {
	m      *Member
	name   string
	number int
	dir    string
	mode   znode.BarrierMode
	limit  time.Duration

	n       int             // how many must arrive: what st says
	changed <-chan struct{} // st's watch
}

func (r *round) state() string   { return znode.RoundState(r.dir) }
func (r *round) arrival() string { return znode.Arrival(r.dir, r.m.ID) }
func (r *round) token() string   { return znode.Counted(r.dir, r.n-1) }

// pass returns when the round is decided.
func (r *round) pass(ctx context.Context, timeUp <-chan struct{}) error {
	for {
		open, err := r.read(ctx)
		if errors.Is(err, ErrDamaged) && !closed(timeUp) {
			if err := r.awaitPart(ctx, timeUp, err); err != nil {
				return err
			}
			continue
		}
		if err != nil || !open {
			return err
		}
		arrive := r.arrive
		if r.mode == znode.LiveRound {
			arrive = r.arriveLive
		}
		last, err := arrive(ctx)
		switch {
		case err == nil && last:
			r.clearOlder(ctx)
			return nil
		case err == nil:
			return r.await(ctx, timeUp)
		}
		if errors.Is(err, ErrDamaged) && !closed(timeUp) {
			if err := r.awaitPart(ctx, timeUp, err); err != nil {
				return err
			}
			continue
		}
		// st refused it: the round was aborted, or released and cleared. Or a live arrival of an older session came
		// or went.
		if err := r.m.mayRetry(ctx, err, zkconn.ErrBadVersion, zkconn.ErrNoNode, zkconn.ErrNodeExists); err != nil {
			return err
		}
	}
}

// awaitPart waits until the part of the job that is missing may be there again, or until the round's time is up.
func (r *round) awaitPart(ctx context.Context, timeUp <-chan struct{}, damaged error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-timeUp:
			cancel()
		case <-stop:
		}
	}()
	return awaitPart(ctx, r.m.session, damaged)
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

// await waits for T and returns what it means. When the time is up it aborts the round.
func (r *round) await(ctx context.Context, timeUp <-chan struct{}) error {
	for {
		stat, decided, changed, created, err := r.m.session.CreatedW(ctx, r.token())
		if err != nil || decided && stat.DataLength == 0 {
			return err
		}
		if !decided {
			if err := r.wait(ctx, changed, timeUp); err != nil {
				return err
			}
			if closed(changed) && created() && !closed(r.changed) { // an abort sets st first, whose event would be here
				return nil
			}
		}
		if open, err := r.read(ctx); err != nil || !open {
			return err
		}
	}
}

func (r *round) wait(ctx context.Context, token, timeUp <-chan struct{}) error {
	select {
	case <-token:
		return nil
	case <-r.changed:
		return nil
	case <-timeUp:
		return r.abort(ctx, fmt.Sprintf("worker %d waited %s", r.m.ID, r.limit))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.m.ctx.Done():
		return context.Cause(r.m.ctx)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
