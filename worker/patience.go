package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// lastLook is how long a server may take to say how things stand when the time of a wait is over.
const lastLook = 2 * time.Second

// awaitRecord waits until the Record is no longer as this attempt read it, or until the other event, if there is one.
func (j *join) awaitRecord(ctx context.Context, why error, what string, other <-chan struct{}) error {
	stat, _, event, err := j.s.ExistsW(ctx, znode.Record(j.c.Root, j.c.Job))
	if err != nil {
		return err
	}
	if stat.Mzxid != j.mzxid {
		return errAgain
	}
	return j.await(ctx, why, what, event, other)
}

// await returns errAgain at an event, or why when patience is over.
func (j *join) await(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	var timeUp <-chan time.Time
	end, given := ctx.Deadline()
	if !given {
		end = j.begun.Add(time.Duration(j.rec.Job.Timeouts.Join))
		timer := time.NewTimer(time.Until(end))
		defer timer.Stop()
		timeUp = timer.C
	}
	if j.c.Waiting != nil && what != j.told {
		j.c.Waiting(fmt.Sprintf("%s (%s at most)", what, roughly(max(0, time.Until(end)))))
		j.told = what
	}
	select {
	case <-event:
	case <-other:
	case <-ctx.Done():
	case <-timeUp:
		return j.impatient(ctx, why, what, event, other)
	case <-j.s.Context().Done():
		return context.Cause(j.s.Context())
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return j.impatient(ctx, why, what, event, other)
	case ctx.Err() != nil: // also where an event came at the same time
		return &impatience{why, time.Since(j.begun), what, context.Cause(ctx)}
	}
	j.attempts = 0
	return errAgain
}

// errToldLate is the reason where the server had kept back what was waited for.
var errToldLate = errors.New("the server told too late")

// impatient is for when the time is over. It asks for what the server may have kept back.
func (j *join) impatient(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	switch err := j.s.Sync(last, znode.Record(j.c.Root, j.c.Job)); {
	case err != nil:
		why, what = zkconn.ErrUnreachable, what+", and no server answers"
	case !closed(event) && !closed(other):
	case ctx.Err() == nil:
		return errAgain
	default:
		why = errToldLate
	}
	return &impatience{why, time.Since(j.begun), what, context.DeadlineExceeded}
}

// roughly is a time as people are told it.
func roughly(d time.Duration) job.Duration {
	if d > 10*time.Second {
		return job.Duration(d.Round(time.Second))
	}
	return job.Duration(d.Round(100 * time.Millisecond))
}

// impatience is why a join did not wait any longer: it is both the reason to wait and what ended that.
type impatience struct {
	why    error
	waited time.Duration
	what   string
	ended  error
}

func (e *impatience) Error() string {
	s := fmt.Sprintf("%v: waited %s for %s", e.why, roughly(e.waited), e.what)
	if errors.Is(e.ended, context.DeadlineExceeded) {
		return s
	}
	return fmt.Sprintf("%s: %v", s, e.ended)
}

func (e *impatience) Unwrap() []error { return []error{e.why, e.ended} }
