package apply

import (
	"context"
	"errors"
	"time"

	"muster/plan"
)

// Result is the result of one change.
type Result string

// The results, in the order in which a summary lists them.
const (
	Applied     Result = "applied"
	AlreadyDone Result = "already done" // ZooKeeper was as wanted; nothing was written
	Refused     Result = "refused"      // the resource was changed since it was read; nothing was written
	Failed      Result = "failed"       // nothing was written
	Unknown     Result = "unknown"      // the connection was lost during the commit; the next plan shows the result
	Waiting     Result = "waiting"      // stale, but its grace is not over
	NotStarted  Result = "not started"  // apply was stopped before this change
)

// Results lists every result in the order in which a summary lists them.
func Results() []Result {
	return []Result{Applied, AlreadyDone, Refused, Failed, Unknown, Waiting, NotStarted}
}

// Outcome is one change and its result.
type Outcome struct {
	Row    plan.Row
	Result Result
	Err    error         // nil when applied, waiting or not started
	Took   time.Duration // of the commit
}

// result is the Result for the error of a commit.
func result(err error) Result {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, plan.ErrAlreadyDone):
		return AlreadyDone
	case errors.Is(err, plan.ErrMoved):
		return Refused
	case errors.Is(err, plan.ErrUnknown):
		return Unknown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return NotStarted // a Committer returns ErrUnknown if it may have sent anything
	}
	return Failed
}
