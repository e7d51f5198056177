package store

import (
	"context"
	"time"
)

// Claimed is a complete batch that a watcher has.
type Claimed struct {
	Batch, Life string
	Done, Dead  int64
	Try         int // from 1
}

// Claim gives a complete batch to a watcher: nil if there is none. next is until another one may be claimed; negative:
// there is none. seq is as for Turn.
func (q *Queue) Claim(ctx context.Context, seat string, seq int64) (got *Claimed, next time.Duration, err error) {
	reply, err := q.call(ctx, "claim", seat, seq)
	if err != nil {
		return nil, 0, err
	}
	got, next, err = parseClaim(reply)
	return got, next, q.failed("claim", err)
}

func parseClaim(reply any) (got *Claimed, next time.Duration, err error) {
	var s shape
	l := s.list(reply, 1, 6)
	next = s.wait(l[0])
	if len(l) > 1 {
		l = s.list(reply, 6, 6)
		got = &Claimed{s.batch(l[1]), s.text(l[2], maxText), s.count(l[3]), s.count(l[4]), int(s.count(l[5]))}
	}
	if s.err != nil {
		return nil, 0, s.err
	}
	return got, next, nil
}

// Unclaim gives a claimed batch back. With a reason a try is charged, and the batch may be claimed again after the
// back-off, doubled for each try; after its last try nobody may claim it. It returns false if the seat did not have it.
func (q *Queue) Unclaim(
	ctx context.Context, seat string, seq int64, batch, reason string, backoff time.Duration,
) (bool, error) {
	n, err := q.count(ctx, "unclaim", seat, seq, batch, flag(reason != ""), backoff.Milliseconds(), reason)
	return n == 1, err
}
