package job

import (
	"fmt"

	"muster/resource"
)

// What is counted of a job, besides who is live.
const (
	joined = resource.CountJoined // have an id, at most N
	done   = "done"               // have completed
)

// The statuses of jobs, besides those of every kind.
const (
	Completed resource.Status = "completed" // all N completed
	Forming   resource.Status = "forming"   // fewer than N have joined; somebody is live, or all who joined have completed
	Degraded  resource.Status = "degraded"  // all N have joined, some are live, some left without completing
	Running   resource.Status = "running"   // all N have joined, some are live, none left without completing
)

// Statuses lists every status of a job in the order in which they are tried.
func Statuses() []resource.Status {
	return []resource.Status{
		resource.StatusUnreadable, resource.StatusForeign, resource.StatusDamaged, resource.StatusMissing,
		resource.StatusTerminating, Completed, resource.StatusReady, resource.StatusStale, Forming, Degraded, Running,
	}
}

// Counts is what is counted of a job: how many have an id, and how many have completed.
func Counts(haveJoined, haveDone int) map[string]int {
	return map[string]int{joined: haveJoined, done: haveDone}
}

// Joined is how many workers of o have an id.
func Joined(o *resource.Observed) int { return o.Count(joined) }

// Done is how many workers of o have completed.
func Done(o *resource.Observed) int { return o.Count(done) }

// Left is how many workers of o joined and left without completing.
func Left(o *resource.Observed) int { return max(0, Joined(o)-Done(o)-o.Live) }

// Judge implements resource.Declaration.
func (j Job) Judge(o *resource.Observed) (resource.Class, resource.Status) {
	left := Left(o)
	switch {
	case Done(o) >= j.Workers:
		return resource.Done, Completed
	case Joined(o) == 0 && o.Live == 0:
		return resource.Ready, resource.StatusReady
	case o.Live == 0 && left > 0:
		return resource.Stale, resource.StatusStale
	case Joined(o) < j.Workers:
		return resource.Live, Forming
	case left > 0:
		return resource.Degraded, Degraded
	}
	return resource.Live, Running
}

// Health implements resource.Declaration.
func (j Job) Health(o *resource.Observed) string {
	s := fmt.Sprintf("%d of %d joined, %d live, %d completed", Joined(o), j.Workers, o.Live, Done(o))
	if left := Left(o); left > 0 {
		s += fmt.Sprintf(", %d left", left)
	}
	return s
}

// Live implements resource.Declaration. A run that has begun may have nobody live just now: all who joined have completed.
func (j Job) Live(o *resource.Observed) string {
	switch n := o.Live - len(o.Strangers); n {
	case 0:
		return fmt.Sprintf("the run has begun (%d of %d joined and completed)", Joined(o), j.Workers)
	case 1:
		return "1 worker is live"
	default:
		return fmt.Sprintf("%d workers are live", n)
	}
}

// Forgotten implements resource.Declaration: the run that goes, and whether somebody has completed in it.
func (j Job) Forgotten(o *resource.Observed) (what string, work bool) {
	if Joined(o) == 0 {
		return "", false
	}
	what = fmt.Sprintf("%d of %d, none live", Joined(o), j.Workers)
	if Done(o) > 0 {
		what += fmt.Sprintf(", %d completed (will be forgotten)", Done(o))
	}
	return what, Done(o) > 0
}
