package zkstate

import (
	"context"
	"fmt"
	"time"

	"muster/zkstate/zkconn"
)

// Waiter waits on behalf of a process that joins.
type Waiter struct {
	Session *zkconn.Session
	Begun   time.Time
	Say     func(what string) // told what it waits for, if that is not what it was told last; may be nil

	said string
}

// Await returns nil at an event. When the time is over, ctx's deadline or without one limit after Begun, it returns why
// and context.DeadlineExceeded; at another end of ctx or of the session the cause of that.
func (w *Waiter) Await(
	ctx context.Context, limit time.Duration, why error, what string, event, other <-chan struct{},
) error {
	end, given := ctx.Deadline()
	if !given {
		end = w.Begun.Add(limit)
	}
	if w.Say != nil && what != w.said {
		w.Say(what)
		w.said = what
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-event:
	case <-other:
	case <-timer.C:
		return fmt.Errorf("%w: waited %s for %s: %w", why, time.Since(w.Begun).Round(time.Second), what,
			context.DeadlineExceeded)
	case <-ctx.Done():
	case <-w.Session.Context().Done():
		return context.Cause(w.Session.Context())
	}
	if ctx.Err() != nil { // also if an event came at the same time
		return fmt.Errorf("%w: waited for %s: %w", why, what, context.Cause(ctx))
	}
	return nil
}
