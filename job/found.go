package job

import (
	"fmt"

	"muster/resource"
	"muster/text"
)

// The counts of a job, besides its live workers.
const (
	joined = resource.CountJoined // workers that have an id, at most N
	done   = "done"               // workers that have completed
)

// The statuses of jobs, besides those of every kind. N is the number of workers that the job declares.
const (
	Completed resource.Status = "completed" // all N have completed
	// Forming: fewer than N have joined. Some are live, or all that joined have completed.
	Forming  resource.Status = "forming"
	Degraded resource.Status = "degraded" // all N have joined, some are live, some left without completing
	Running  resource.Status = "running"  // all N have joined, some are live, none left without completing
)

// Counts are the counts of a job: how many workers have an id, and how many have completed.
func Counts(haveJoined, haveDone int) map[string]int {
	return map[string]int{joined: haveJoined, done: haveDone}
}

// Joined is the number of workers of o that have an id.
func Joined(o *resource.Observed) int { return o.Count(joined) }

// Done is the number of workers of o that have completed.
func Done(o *resource.Observed) int { return o.Count(done) }

// Left is the number of workers of o that joined and left without completing.
func Left(o *resource.Observed) int { return max(0, Joined(o)-Done(o)-o.Live) }

// Classify implements resource.Declaration.
func (j Job) Classify(o *resource.Observed) (resource.Class, resource.Status) {
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

// LiveText implements resource.Declaration. A run that has begun can have no live worker: all that joined have
// completed.
func (j Job) LiveText(o *resource.Observed) string {
	n := o.Live - len(o.Strangers)
	if n == 0 {
		return fmt.Sprintf("the run has begun (%d of %d joined and completed)", Joined(o), j.Workers)
	}
	return text.Plural(n, "worker is live", "workers are live")
}

// Progress implements resource.Declaration.
func (j Job) Progress(o *resource.Observed) (what string, work bool) {
	if Joined(o) == 0 {
		return "", false
	}
	what = fmt.Sprintf("%d of %d, none live", Joined(o), j.Workers)
	if Done(o) > 0 {
		what += fmt.Sprintf(", %d completed (will be forgotten)", Done(o))
	}
	return what, Done(o) > 0
}
