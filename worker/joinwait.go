package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// lastRead is how long a server may take to answer the read that follows when the time of a wait is over.
const lastRead = 2 * time.Second

// awaitRecord waits until the Record is no longer as this attempt read it, or until the other event, if there is one.
func (j *join) awaitRecord(ctx context.Context, why error, what string, other <-chan struct{}) error {
	stat, _, event, err := j.s.ExistsW(ctx, znode.Record(job.KindName, j.c.Root, j.c.Job))
	if err != nil {
		return err
	}
	if stat.Mzxid != j.mzxid {
		return errAgain
	}
	return j.await(ctx, why, what, event, other)
}

// await returns errAgain at an event, or a waitError when the time is over.
func (j *join) await(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	var timeUp <-chan time.Time
	end, given := ctx.Deadline()
	if !given {
		end = j.begun.Add(time.Duration(j.job.Timeouts.Join))
		timer := time.NewTimer(time.Until(end))
		defer timer.Stop()
		timeUp = timer.C
	}
	if j.c.Waiting != nil && what != j.waitsFor {
		j.c.Waiting(fmt.Sprintf("%s (%s at most)", what, roughly(max(0, time.Until(end)))))
		j.waitsFor = what
	}
	select {
	case <-event:
	case <-other:
	case <-ctx.Done():
	case <-timeUp:
		return j.timedOut(ctx, why, what, event, other)
	case <-j.s.Context().Done():
		return context.Cause(j.s.Context())
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return j.timedOut(ctx, why, what, event, other)
	case ctx.Err() != nil: // also if an event came at the same time
		return &waitError{why, time.Since(j.begun), what, context.Cause(ctx)}
	}
	j.attempts = 0
	return errAgain
}

// errTooLate is the reason if what Join waited for came when the time was over.
var errTooLate = errors.New("too late")

// timedOut is for when the time is over. It makes sure that no event is on its way from the server.
func (j *join) timedOut(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	switch err := j.s.Sync(last, znode.Record(job.KindName, j.c.Root, j.c.Job)); {
	case err != nil:
		why, what = zkconn.ErrUnreachable, what+", and no server answers"
	case !closed(event) && !closed(other):
	case ctx.Err() == nil:
		return errAgain
	default:
		why = errTooLate
	}
	return &waitError{why, time.Since(j.begun), what, context.DeadlineExceeded}
}

// roughly rounds a time for people.
func roughly(d time.Duration) resource.Duration {
	if d > 10*time.Second {
		return resource.Duration(d.Round(time.Second))
	}
	return resource.Duration(d.Round(100 * time.Millisecond))
}

// waitError is why a join waits no longer. It wraps the reason for the wait and what ended it.
type waitError struct {
	why    error
	waited time.Duration
	what   string
	ended  error
}

func (e *waitError) Error() string {
	s := fmt.Sprintf("%v: waited %s for %s", e.why, roughly(e.waited), e.what)
	if errors.Is(e.ended, context.DeadlineExceeded) {
		return s
	}
	return fmt.Sprintf("%s: %v", s, e.ended)
}

func (e *waitError) Unwrap() []error { return []error{e.why, e.ended} }
