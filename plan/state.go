package plan

import (
	"slices"

	"muster/job"
)

// State is what was read from ZooKeeper below a set of roots.
type State struct {
	Ensemble string              `json:"ensemble,omitempty"` // random id of the ensemble; empty before its first apply
	Jobs     map[string]Observed `json:"jobs"`               // by job znode path
	Unlisted []string            `json:"unlisted,omitempty"` // roots that could not be listed, sorted: undeclared jobs there are unseen
}

// Observed is one job as it was read: plain facts, from which its Status is derived.
type Observed struct {
	Record *job.Record `json:"record,omitempty"` // nil: classic, foreign or unreadable
	// Classic: made by workers of the classic controller, recognised by its roll or its ephemeral children.
	Classic    bool     `json:"classic,omitempty"`
	Companions []string `json:"companions,omitempty"` // classic counter, lock and barrier siblings: full paths, sorted

	Version       int32 `json:"version"`          // of the job znode
	RecordVersion int32 `json:"record_version"`   // of the Record
	Pzxid         int64 `json:"pzxid,omitempty"`  // of the job znode: changes at every join and leave
	Joined        int   `json:"joined,omitempty"` // have an id, at most N
	Done          int   `json:"done,omitempty"`   // have completed
	Live          int   `json:"live,omitempty"`   // children of the job znode

	// Workers and Strangers name the children of the job znode, sorted; they are filled only where live matters to a
	// decision. A stranger is a persistent child: not a worker, and nothing of ours.
	Workers   []string `json:"workers,omitempty"`
	Strangers []string `json:"strangers,omitempty"`

	Foreign bool   `json:"foreign,omitempty"` // not recognisable as a job; Problem says what it looks like
	Problem string `json:"problem,omitempty"` // why it is unreadable (or foreign): no permission, or damaged and how
}

// Status of a job, derived from what is observed.
type Status string

// The statuses, in the order in which they are tried.
const (
	Unreadable  Status = "unreadable"  // no permission, or damaged
	Foreign     Status = "foreign"     // a znode that is not a job
	Missing     Status = "missing"     // no job znode
	Terminating Status = "terminating" // workers have been asked to stop
	Completed   Status = "completed"   // all N completed
	Ready       Status = "ready"       // nobody has joined this generation
	Stale       Status = "stale"       // nobody is live and somebody left without completing
	Forming     Status = "forming"     // fewer than N have joined, and somebody is live or all who joined have completed
	Degraded    Status = "degraded"    // all N have joined, some are live, some left without completing
	Running     Status = "running"     // all N have joined, some are live, none left without completing
)

// Statuses lists every status in the order in which they are tried.
func Statuses() []Status {
	return []Status{Unreadable, Foreign, Missing, Terminating, Completed, Ready, Stale, Forming, Degraded, Running}
}

// Status derives the status of o; nil is missing.
func (o *Observed) Status() Status {
	switch {
	case o == nil:
		return Missing
	case o.Foreign:
		return Foreign
	case o.Record == nil && !o.Classic:
		return Unreadable
	case o.Problem != "":
		return Unreadable
	case o.Classic:
		return o.classicStatus()
	}
	n := o.Record.Job.Workers
	left := o.Joined - o.Done - o.Live // gone without completing
	switch {
	case o.Record.State == job.Terminating:
		return Terminating
	case o.Done >= n:
		return Completed
	case o.Joined == 0 && o.Live == 0:
		return Ready
	case o.Live == 0 && left > 0:
		return Stale
	case o.Joined < n:
		return Forming
	case left > 0:
		return Degraded
	}
	return Running
}

// classicStatus: a classic job tells neither N nor who completed.
func (o *Observed) classicStatus() Status {
	switch {
	case o.Live > 0:
		return Running
	case o.Joined > 0:
		return Stale
	}
	return Ready
}

// live reports a status in which workers may be at work.
func (s Status) live() bool { return s == Forming || s == Running || s == Degraded }

// Left is how many workers joined and left without completing.
func (o *Observed) Left() int { return max(0, o.Joined-o.Done-o.Live) }

// Equal reports whether two observations of one job are the same facts. Names listed only for display do not count.
func (o Observed) Equal(p Observed) bool {
	if (o.Record == nil) != (p.Record == nil) {
		return false
	}
	if o.Record != nil && o.Record.Generation != p.Record.Generation {
		return false
	}
	return o.Classic == p.Classic && slices.Equal(o.Companions, p.Companions) &&
		o.Version == p.Version && o.RecordVersion == p.RecordVersion && o.Pzxid == p.Pzxid &&
		o.Joined == p.Joined && o.Done == p.Done && o.Live == p.Live &&
		o.Foreign == p.Foreign && o.Problem == p.Problem
}
