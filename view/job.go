package view

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
)

// Worker is one worker of one job.
type Worker struct {
	ID       int         `json:"id"` // -1: none, or not known
	Identity string      `json:"identity"`
	Address  string      `json:"address"`
	State    WorkerState `json:"state"`
	Restarts *int        `json:"restarts,omitempty"`  // how often it joined again; nil: not known
	LastExit string      `json:"last_exit,omitempty"` // the last known end of its command: a code, or a signal
	Since    time.Time   `json:"since,omitzero"`      // it is in its state; absent: not known
	Joined   time.Time   `json:"joined,omitzero"`     // it joined this run for the first time; absent: not known
}

// WorkerState is the state of a worker.
type WorkerState string

// The states of a worker. Left and Lost workers did not complete. A worker that left said so; a lost one was killed, or
// was disconnected until its session ended.
const (
	Live      WorkerState = "live"
	Completed WorkerState = "completed"
	Left      WorkerState = "left"
	Lost      WorkerState = "lost"
)

// Barrier is a round of a barrier that is under way: somebody has arrived, and it is neither released nor aborted.
type Barrier struct {
	Name    string    `json:"name"`
	Start   bool      `json:"start,omitempty"` // it is the barrier of "muster worker --start barrier"
	Round   int       `json:"round"`
	Attempt int       `json:"attempt"` // 1, or more after aborted attempts at this round
	Mode    string    `json:"mode"`
	Workers int       `json:"workers"` // how many must arrive
	Since   time.Time `json:"since"`   // the first of them arrived, by ZooKeeper's clock
	Arrived []int     `json:"arrived"` // ids, ascending
	Missing []int     `json:"missing"` // ids, ascending; in a live round all may be there for a moment
}

// Title is the barrier in words.
func (b Barrier) Title() string {
	if b.Start {
		return "(start)"
	}
	return b.Name
}

// ArrivedText is "3 of 8".
func (b Barrier) ArrivedText() string { return fmt.Sprintf("%d of %d", len(b.Arrived), b.Workers) }

// MissingText names who has not arrived: "id 1 (w-1, lost), id 3 (not joined)", or only the ids of many.
func (b Barrier) MissingText(workers []Worker) string {
	const most = 3
	switch {
	case len(b.Missing) == 0:
		return "-"
	case len(b.Missing) > most:
		return "id " + ranges(b.Missing)
	}
	byID := map[int]Worker{}
	for _, w := range workers {
		byID[w.ID] = w
	}
	var all []string
	for _, id := range b.Missing {
		who := "not joined"
		if w, joined := byID[id]; joined {
			who = w.Identity
			if w.State != Live {
				who += ", " + string(w.State)
			}
		}
		all = append(all, fmt.Sprintf("id %d (%s)", id, who))
	}
	return strings.Join(all, ", ")
}

// Began is when the first worker joined this run; zero: not known.
func (r Resource) Began() time.Time {
	var began time.Time
	for _, w := range r.Workers {
		if began.IsZero() || !w.Joined.IsZero() && w.Joined.Before(began) {
			began = w.Joined
		}
	}
	return began
}

// Absent lists the ids that no worker of a job has, and those whose worker left or was lost without completing.
func (r Resource) Absent() []string {
	if r.Observed.Record == nil || r.Observed.Class() == resource.Unreadable {
		return nil
	}
	taken := map[int]bool{}
	var left, lost, open []int
	for _, w := range r.Workers {
		taken[w.ID] = true
		switch {
		case w.ID < 0:
		case w.State == Left:
			left = append(left, w.ID)
		case w.State == Lost:
			lost = append(lost, w.ID)
		}
	}
	for id := range job.Of(r.Observed.Record).Workers {
		if !taken[id] {
			open = append(open, id)
		}
	}
	slices.Sort(left)
	slices.Sort(lost)
	var lines []string
	if len(left) > 0 {
		lines = append(lines, text.Count(len(left), "worker")+" left without completing: id "+ranges(left))
	}
	if len(lost) > 0 {
		who := text.Plural(len(lost), "worker was", "workers were")
		lines = append(lines, who+" lost without completing (killed or cut off): id "+ranges(lost))
	}
	if len(open) > 0 {
		lines = append(lines, text.Plural(len(open), "worker has", "workers have")+" not joined yet: id "+ranges(open))
	}
	return lines
}

// ranges is "0, 3-5, 9" for sorted ids.
func ranges(ids []int) string {
	var parts []string
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+n {
			n++
		}
		part := fmt.Sprint(ids[0])
		if n > 1 {
			part = fmt.Sprintf("%d-%d", ids[0], ids[n-1])
		}
		parts = append(parts, part)
		ids = ids[n:]
	}
	return strings.Join(parts, ", ")
}

// meaningOfJob says why a job has its status, if it has none that every kind has.
func meaningOfJob(o *resource.Observed) string {
	if o.Status() == resource.StatusReady {
		return "nobody has joined this generation"
	}
	if o.Classic {
		return fmt.Sprintf("made by workers of the classic controller: %d in the roll, %d live", job.Joined(o), o.Live)
	}
	counts := fmt.Sprintf("%s joined, %d live, %d completed, %d left without completing",
		OfN(job.Joined(o), o), o.Live, job.Done(o), job.Left(o))
	switch o.Status() {
	case job.Completed:
		return fmt.Sprintf("all %d workers completed", job.Of(o.Record).Workers)
	case job.Forming:
		return "fewer than all have joined: " + counts
	case resource.StatusStale:
		return "nobody is live and somebody left without completing: " + counts
	case job.Degraded:
		return "all have joined, and some left without completing: " + counts
	}
	return "all have joined and none is missing: " + counts
}

// nextOfJob says what the user can do about a job that is as it should be read.
func nextOfJob(o *resource.Observed, at string) string {
	quoted := text.ShellWord(at)
	switch o.Status() {
	case resource.StatusReady:
		return "muster worker --job " + text.ShellWord(path.Base(at)) + rootFlag(at) +
			", or the same with -- COMMAND at its end"
	case job.Forming:
		return "muster status " + quoted + " --watch, or start the workers that have not joined"
	case job.Degraded:
		return "restart the workers that left (they keep their ids), or muster terminate " + quoted
	case resource.StatusStale:
		return "restart the workers that left (they keep their ids), or muster apply replaces it"
	case job.Completed:
		return "muster plan tells whether it will be made anew"
	}
	return ""
}

// rootFlag is the flag that names the root of a path, unless that is the usual one.
func rootFlag(at string) string {
	if root := path.Dir(at); root != resource.DefaultRoot {
		return " --root " + text.ShellWord(root)
	}
	return ""
}
