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

// lateError is ErrLate of a request, and says what is not known.
type lateError string

func (e lateError) Error() string { return string(e) }
func (e lateError) Unwrap() error { return ErrLate }

// waitAll waits until all have joined, no longer than the job's join timeout, nor than limit unless that is 0.
func (ms *membership) waitAll(ctx context.Context, limit time.Duration) error {
	m, _, _ := ms.now()
	return ms.within(ctx, limit, func(ctx context.Context, m *worker.Member) error { return m.WaitAll(ctx) },
		fmt.Sprintf("whether all %d workers have joined", m.Job.Workers))
}

// within calls f as the member. A session is waited for no longer than the job's join timeout, nor than limit unless that is 0;
// what is what f would have told.
func (ms *membership) within(ctx context.Context, limit time.Duration, f func(context.Context, *worker.Member) error, what string) error {
	m, _, _ := ms.now()
	most := time.Duration(m.Job.Timeouts.Join)
	if limit == 0 || limit > most {
		limit = most
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return late(ctx, ms.do(ctx, f), func() string {
		return fmt.Sprintf("waited %s, and it is not known %s: ZooKeeper does not answer this worker", since(begun), what)
	})
}

// barrier waits at a barrier.
func (ms *membership) barrier(ctx context.Context, b worker.Barrier) error {
	return ms.arrive(ctx, b.Timeout, func(m *worker.Member, remains time.Duration) error {
		if b.Round == nil { // chosen once: what is repeated after a lost session is the same round
			next, err := m.NextRound(ctx, b.Name)
			if err != nil {
				return err
			}
			b.Round = &next
		}
		b.Timeout = remains
		return m.Barrier(ctx, b)
	}, func() string {
		if b.Round == nil {
			return "barrier " + b.Name
		}
		return fmt.Sprintf("round %d of barrier %s", *b.Round, b.Name)
	})
}

// startBarrier waits at the start barrier.
func (ms *membership) startBarrier(ctx context.Context) error {
	return ms.arrive(ctx, 0, func(m *worker.Member, remains time.Duration) error { return m.StartBarrier(ctx, remains) },
		func() string { return "the start barrier" })
}

// arrive calls f, which waits at the barrier that is called which. Its patience ends with the limit, and so does the waiting for
// a session; f aborts the round when what remains of the limit has passed. Without a session nobody can do that: then it
// gives up alone.
func (ms *membership) arrive(ctx context.Context, limit time.Duration,
	f func(m *worker.Member, remains time.Duration) error, which func() string,
) error {
	first, _, _ := ms.now()
	limit = cmp.Or(limit, time.Duration(first.Job.Timeouts.Barrier))
	begun := time.Now()
	patience, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ms.do(patience, func(_ context.Context, m *worker.Member) error {
		remains := limit
		if m != first {
			remains = max(limit-since(begun), precision)
		}
		return f(m, remains)
	})
	return late(patience, err, func() string {
		return fmt.Sprintf("waited %s at %s, and its outcome is not known: this worker lost its session with ZooKeeper, "+
			"so it could not abort the round, which the others may still pass", since(begun), which())
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
