package report

import (
	"cmp"

	"muster/resource"
)

// What follows are the sentences of Workers, Group and Queue one by one, for the page of "muster serve".

// KindOf is the kind as which o is shown: that of its Record, or else of jobs.
func KindOf(o *resource.Observed) resource.Kind { return kindOf(o) }

// Meaning says why o has its status.
func Meaning(o *resource.Observed) string { return meaning(o, kindOf(o).Name) }

// NextStep says what the user can do next about j; empty if there is nothing to do.
func NextStep(j JobStatus) string {
	o := &j.Observed
	step := next(o, j.Path)
	switch {
	case j.Group != nil:
		step = cmp.Or(step, j.Group.next(o, j.Path))
	case j.Queue != nil:
		step = cmp.Or(step, nextOfQueue(o, j.Path))
	}
	return step
}

// Absent lists the ids that no worker of a job has, and those whose worker left or was lost without completing.
func Absent(o *resource.Observed, workers []Worker) []string { return missing(o, workers) }

// Title is the barrier in words.
func (b Barrier) Title() string { return b.name() }

// MissingText names who has not arrived: "id 1 (w-1, lost), id 3 (not joined)", or only the ids of many.
func (b Barrier) MissingText(workers []Worker) string { return b.missing(workers) }

// Versions lists the versions of the live members, the newest first.
func (d GroupDetail) Versions() []string { return d.versions() }

// Of lists the live members of a version, the most senior first.
func (d GroupDetail) Of(version string) []Member { return d.of(version) }

// Census counts the members by version: "3 members: 2 of 1.4.0, 1 of 1.3.9; the assigner is a".
func (d GroupDetail) Census() string { return d.census() }

// Waits says what waits in the group, and for what.
func (d GroupDetail) Waits() []string { return d.waits() }

// WaitsOf says what waits for a duty, and for what.
func (d GroupDetail) WaitsOf(duty Duty) []string { return d.waitsOf(duty) }

// Title is the run in words: the time of its tick, or "by hand 3".
func (r DutyRun) Title() string { return r.name() }

// StateText is the state of the run, with how many ticks it stands for.
func (r DutyRun) StateText() string { return r.state() }

// ExitText is the exit code; a dash if there is none.
func (r DutyRun) ExitText() string { return r.exit() }

// Took is how long the run took; a dash if it is not known.
func (r DutyRun) Took() string { return r.took() }

// Amiss says what only the processes of the queue can know, and what cannot be read.
func (d QueueDetail) Amiss() []string { return d.amiss() }
