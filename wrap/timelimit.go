package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/worker"
	"muster/zkstate/znode"
)

// What all members wait for together has one time limit, in however many sessions. The time passes also while the
// session is lost and no server can be asked. What has become of the wait then is not known.

// lateError is ErrLate of a request, and says what is not known.
type lateError string

func (e lateError) Error() string { return string(e) }
func (e lateError) Unwrap() error { return ErrLate }

// waitAll waits until all have joined, for at most the job's join timeout, and at most limit unless that is 0.
func (ms *membership) waitAll(ctx context.Context, limit time.Duration) error {
	m, _, _ := ms.now()
	defer ms.whileWaiting(ctx, "all workers to join", joinNotice)()
	return ms.within(ctx, limit, func(ctx context.Context, m *worker.Member) error { return m.WaitAll(ctx) },
		fmt.Sprintf("whether all %d workers have joined", m.Job.Workers))
}

// within calls f as the Member. It waits for a session for at most the job's join timeout, and at most limit unless
// that is 0. what says what f would have found out.
func (ms *membership) within(
	ctx context.Context, limit time.Duration, f func(context.Context, *worker.Member) error, what string,
) error {
	m, _, _ := ms.now()
	longest := time.Duration(m.Job.Timeouts.Join)
	if limit == 0 || limit > longest {
		limit = longest
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return explainLate(ctx, ms.do(ctx, f), func() string {
		return fmt.Sprintf("waited %s, and it is not known %s: ZooKeeper does not answer this worker",
			since(begun), what)
	})
}

// barrier waits at a barrier.
func (ms *membership) barrier(ctx context.Context, b worker.Barrier) error {
	b.Attempt = new(int) // kept likewise
	defer ms.whileWaiting(ctx, barrierTitle(b.Name), barrierNotice(b.Name))()
	return ms.waitAtBarrier(ctx, b.Timeout, func(m *worker.Member, remains time.Duration) error {
		if b.Round == nil { // chosen once: a call that is repeated after a lost session is for the same round
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
	attempt := 0
	defer ms.whileWaiting(ctx, barrierTitle(znode.StartBarrier), barrierNotice(znode.StartBarrier))()
	wait := func(m *worker.Member, remains time.Duration) error { return m.StartBarrier(ctx, remains, &attempt) }
	return ms.waitAtBarrier(ctx, 0, wait, func() string { return "the start barrier" })
}

// waitAtBarrier calls wait, which aborts the round when what remains of the limit has passed. Without a session
// nobody can abort it: then this call alone gives up at the limit. name is called for the text of that error.
func (ms *membership) waitAtBarrier(
	ctx context.Context, limit time.Duration,
	wait func(m *worker.Member, remains time.Duration) error, name func() string,
) error {
	first, _, _ := ms.now()
	limit = cmp.Or(limit, time.Duration(first.Job.Timeouts.Barrier))
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ms.do(limited, func(_ context.Context, m *worker.Member) error {
		remains := limit
		if m != first {
			remains = max(limit-since(begun), precision)
		}
		return wait(m, remains)
	})
	return explainLate(limited, err, func() string {
		return fmt.Sprintf("waited %s at %s, and its outcome is not known: this worker lost its session with "+
			"ZooKeeper, so it could not abort the round, which the others may still pass", since(begun), name())
	})
}

// explainLate is err. If that says only that ctx's time was over, or that there was no session then, it is what text
// says.
func explainLate(ctx context.Context, err error, text func() string) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		errors.As(err, new(*worker.AbsentError)) || errors.As(err, new(*worker.UnpublishedError)) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, worker.ErrSessionLost) {
		return lateError(text())
	}
	return err
}

// precision is how exactly people are told a time.
const precision = 100 * time.Millisecond

func since(begun time.Time) time.Duration { return time.Since(begun).Round(precision) }
