package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// getter is a session, or what remembers what one has read.
type getter interface {
	Get(ctx context.Context, path string) ([]byte, zkconn.Stat, error)
}

// ReadAttempt reads the attempt of a gang; none if nobody has joined.
func ReadAttempt(
	ctx context.Context, from getter, j job.Job, g string,
) (a znode.GangAttempt, stat zkconn.Stat, there bool, err error) {
	at := znode.GangAttemptAt(j.Root, g)
	body, stat, there, err := zkconn.IfThere(from.Get(ctx, at))
	if err != nil || !there {
		return a, stat, false, err
	}
	a, err = znode.Decode[znode.GangAttempt](body)
	return a, stat, true, resource.InField(at, err)
}

// LastCompletion is the znode that exists, and is empty, as soon as all workers of a generation have completed. That of
// a gang is another one in each attempt.
func LastCompletion(ctx context.Context, from getter, j job.Job, g string) (string, error) {
	if j.Gang == nil {
		return znode.Completion(j.Root, g, j.Workers-1), nil
	}
	a, _, there, err := ReadAttempt(ctx, from, j, g)
	if !there {
		a.Number = 1
	}
	return znode.Finished(j.Root, g, a.Number, j.Workers), err
}

// countGang counts the workers of a gang: all have completed, or none.
func (r *Reader) countGang(ctx context.Context, o *resource.Observed, joined int) error {
	j := job.Of(o.Record)
	last, err := LastCompletion(ctx, r.source, j, o.Record.Generation)
	switch {
	case errors.As(err, new(*zkconn.Error)):
		return err
	case err != nil: // somebody else wrote it
		o.Problem = err.Error()
		return nil
	}
	end, there, err := r.source.Exists(ctx, last)
	done := 0
	if there && end.DataLength == 0 {
		done = j.Workers
	}
	o.Counts = job.Counts(joined, done)
	return err
}

// guardGang returns operations that are refused if the workers of a gang have finished since. They keep the attempt
// from being finished.
func (s *Store) guardGang(ctx context.Context, j job.Job, g string) ([]zkconn.Op, error) {
	a, _, there, err := ReadAttempt(ctx, s.session, j, g)
	if err != nil || !there || a.State == znode.GangFailed {
		return nil, err
	}
	token := znode.Finished(j.Root, g, a.Number, j.Workers)
	stat, decided, err := s.session.Exists(ctx, token)
	_, room, e := s.session.Exists(ctx, path.Dir(token))
	switch err = cmp.Or(err, e); {
	case decided && stat.DataLength == 0:
		return nil, fmt.Errorf("%w: its workers have completed", plan.ErrMoved)
	case err != nil || decided || !room: // by hand: it cannot be finished any more
		return nil, err
	}
	return []zkconn.Op{zkconn.CreateOp(token, []byte("aborted"), zkconn.Persistent, s.acl)}, nil
}

// gang reads how far the workers of a gang have come.
func (r *Reader) gang(ctx context.Context, o *resource.Observed) (*view.Gang, error) {
	j, g := job.Of(o.Record), o.Record.Generation
	if o.Problem != "" {
		return nil, nil
	}
	a, stat, there, err := ReadAttempt(ctx, r.source, j, g)
	if err != nil || !there {
		return nil, err
	}
	v := &view.Gang{
		Attempt: a.Number, State: view.GangWaits, Since: stat.Mtime, Used: a.Used, Restarts: j.Gang.Restarts,
		Because: a.Because, By: a.By, Exit: a.Exit, Lost: a.Lost, Seats: j.Gang.Spares,
	}
	if v.Spares, err = r.spares(ctx, j, g); err != nil {
		return nil, err
	}
	if a.State == znode.GangFailed {
		v.State = view.GangFailed
		return v, nil
	}
	tries, err := r.children(ctx, znode.BarrierFloor(j.Root, g, znode.StartBarrier))
	if err != nil {
		return nil, err
	}
	start := znode.Attempt(j.Root, g, znode.StartBarrier, a.Number, znode.LatestAttempts(tries)[a.Number])
	token, released, err := r.source.Exists(ctx, znode.Counted(start, j.Workers-1))
	if err != nil {
		return nil, err
	}
	at := znode.Arrivals(start)
	if released && token.DataLength == 0 {
		v.State, at = view.GangRuns, znode.Arrivals(znode.FinishRound(j.Root, g, a.Number))
	}
	names, err := r.children(ctx, at)
	if err != nil {
		return nil, err
	}
	if arrived, missing := znode.Arrived(names, j.Workers); v.State == view.GangWaits {
		v.Missing = missing
	} else {
		v.Finished = arrived
	}
	if job.Done(o) == j.Workers {
		v.State = view.GangFinished
	}
	return v, nil
}

// spares are the identities of those who wait in the seats of a gang, in the order of these. One that cannot be read
// has none.
func (r *Reader) spares(ctx context.Context, j job.Job, g string) (waiting []string, err error) {
	if j.Gang.Spares == 0 {
		return nil, nil
	}
	names, err := r.children(ctx, znode.Spares(j.Root, g))
	if err != nil {
		return nil, err
	}
	for _, seat := range znode.TakenSeats(names, j.Gang.Spares) {
		body, _, there, err := zkconn.IfThere(r.source.Get(ctx, znode.Spare(j.Root, g, seat)))
		if err != nil {
			return nil, err
		}
		if info, err := znode.DecodeWorker(body); there && err == nil {
			waiting = append(waiting, info.Identity)
		}
	}
	return waiting, nil
}
