package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/worker"
)

// What the members wait for together has one time limit, in however many sessions: it passes also while the session is lost
// and nobody can be asked. What then became of it is not known.

// unsaid is the limit where the job's record says none.
const unsaid = 100 * time.Second

// lateError is ErrLate of a request, and says what is not known.
type lateError string

func (e lateError) Error() string { return string(e) }
func (e lateError) Unwrap() error { return ErrLate }

// waitAll waits until all have joined, no longer than the job's join timeout, nor than limit unless that is 0.
func (s *seat) waitAll(ctx context.Context, limit time.Duration) error {
	m, _, _ := s.now()
	most := cmp.Or(time.Duration(m.Job.Timeouts.Join), unsaid)
	if limit == 0 || limit > most {
		limit = most
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.WaitAll(ctx) })
	return late(ctx, err, func() string {
		return fmt.Sprintf("waited %s, and it is not known whether all %d workers have joined: this worker has no session with ZooKeeper",
			since(begun), m.Job.Workers)
	})
}

// barrier waits at a barrier. Without a session it cannot abort the round when its time is over: it gives up alone.
func (s *seat) barrier(ctx context.Context, b worker.Barrier) error {
	first, _, _ := s.now()
	limit := cmp.Or(b.Timeout, time.Duration(first.Job.Timeouts.Barrier), unsaid)
	b.Timeout = limit
	begun := time.Now()
	// It ends the waiting for a session, and no call: what ends that is b.Timeout, which aborts the round.
	patience, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.do(patience, func(_ context.Context, m *worker.Member) error {
		if b.Round == nil { // chosen once: what is repeated after a lost session is the same round
			next, err := m.NextRound(ctx, b.Name)
			if err != nil {
				return err
			}
			b.Round = &next
		}
		if m != first { // in a later session, what remains
			b.Timeout = max(limit-since(begun), precision)
		}
		return m.Barrier(ctx, b)
	})
	return late(patience, err, func() string {
		which := "barrier " + b.Name
		if b.Round != nil {
			which = fmt.Sprintf("round %d of %s", *b.Round, which)
		}
		return fmt.Sprintf("waited %s at %s, and its outcome is not known: this worker has no session with ZooKeeper, "+
			"so it could not abort the round, which the others may still pass", since(begun), which)
	})
}

// late is err, unless that only says that ctx's time was over and there was no session: then it is what text says.
func late(ctx context.Context, err error, text func() string) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, new(*worker.AbsentError)) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, worker.ErrSessionLost) {
		return lateError(text())
	}
	return err
}

// precision is how exactly people are told of time.
const precision = 100 * time.Millisecond

func since(begun time.Time) time.Duration { return time.Since(begun).Round(precision) }
