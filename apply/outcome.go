package apply

import (
	"context"
	"errors"
	"time"

	"muster/plan"
)

// Result is what became of one change.
type Result string

// The results, in the order in which a summary lists them.
const (
	Applied     Result = "applied"
	AlreadyDone Result = "already done" // ZooKeeper was as wanted; nothing was written
	Refused     Result = "refused"      // the job moved since it was read; nothing was written
	Failed      Result = "failed"       // nothing was written
	Unknown     Result = "unknown"      // the connection was lost in the middle; the next plan tells
	Waiting     Result = "waiting"      // stale, but not yet for long enough
	NotStarted  Result = "not started"  // stopped before its turn
)

// Results lists every result in the order in which a summary lists them.
func Results() []Result {
	return []Result{Applied, AlreadyDone, Refused, Failed, Unknown, Waiting, NotStarted}
}

// Outcome is one change and what became of it.
type Outcome struct {
	Row    plan.Row
	Result Result
	Err    error         // nil when applied, waiting or not started
	Took   time.Duration // of the commit
}

// result classifies the answer of a commit.
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
		return NotStarted // a committer says ErrUnknown once anything may have been sent
	}
	return Failed
}
