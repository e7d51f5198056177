package job

import (
	"sync"
	"time"

	"muster/resource"
)

// Limits and defaults that other packages use. Properties has those of every field.
const (
	MinWorkers = 1
	MaxWorkers = 20000

	DefaultSessionTimeout = resource.Duration(30 * time.Second)
	DefaultJoinTimeout    = resource.Duration(100 * time.Second)
)

// Job is one distributed job: Workers processes that find each other below the znode Path.
type Job struct {
	resource.Common
	Workers    int        `json:"workers"`
	RollFormat RollFormat `json:"roll_format"`
	Timeouts   Timeouts   `json:"timeouts"`
	Lifecycle  Lifecycle  `json:"lifecycle"`
	resource.Labelled
}

// RollFormat is how the list of joined workers is written into the job znode.
type RollFormat string

// The roll formats. See package znode for their bytes.
const (
	Protobuf RollFormat = "protobuf"
	Text     RollFormat = "text"
)

// Timeouts of a job. Workers read them when they join and keep them.
type Timeouts struct {
	Session resource.Duration `json:"session"` // a crashed worker counts as live for this long
	Join    resource.Duration `json:"join"`    // a worker waits this long for the job and for all workers
	Barrier resource.Duration `json:"barrier"` // a worker waits this long at a barrier
	Stale   resource.Duration `json:"stale"`   // apply deletes or replaces only after nobody was live for this long
}

// Lifecycle says what happens at the start and at the end of a run, and whether the job may be deleted.
type Lifecycle struct {
	OnComplete OnComplete `json:"on_complete"`
	OnRunning  OnRunning  `json:"on_running"`
	Protect    bool       `json:"protect"` // never deleted or replaced
}

// OnComplete says what the last worker does when all have completed.
type OnComplete string

// Reset makes the job ready again. Remove deletes it. Retain leaves it as completed.
const (
	Reset  OnComplete = "reset"
	Remove OnComplete = "remove"
	Retain OnComplete = "retain"
)

// OnRunning says what a plan does with a declared job that already has live workers.
type OnRunning string

// Keep compares the job as usual. Fail blocks it, as the classic controller does at submission.
const (
	Keep OnRunning = "keep"
	Fail OnRunning = "fail"
)

// KindName is the name of this kind.
const KindName = "job"

// Kind describes the kind of jobs.
func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "worker", Absent: "the missing workers", Classic: true,
		Counts:   []resource.Count{{Name: joined, Word: "joined"}, {Name: done, Word: "completed"}},
		Statuses: []resource.Status{Completed, resource.StatusReady, resource.StatusStale, Forming, Degraded, Running},
	}, Properties())
})

// Default is a job with all defaults. It has no name and no workers.
func Default() Job { return resource.Default(Properties()) }

// Of is the job that r declares; the zero Job if r is nil or declares another kind.
func Of(r *resource.Record) Job { return resource.Of[Job](r) }

// Kind implements resource.Declaration.
func (j Job) Kind() resource.Kind { return Kind() }

// Policy implements resource.Declaration.
func (j Job) Policy() resource.Policy {
	return resource.Policy{
		Protect:     j.Lifecycle.Protect,
		FailIfLive:  j.Lifecycle.OnRunning == Fail,
		RemovesSelf: j.Lifecycle.OnComplete == Remove,
		KeepsDone:   j.Lifecycle.OnComplete == Retain,
		Grace:       j.Timeouts.Stale,
	}
}

// Check returns an error that starts with the JSON name of the first invalid value of j, or nil. See
// resource.CheckDeclared.
func (j Job) Check() error {
	return resource.CheckDeclared(Properties(), j)
}

// Fields implements resource.Declaration: the properties in the order of Properties, then the labels, sorted.
func (j Job) Fields() []resource.Field { return resource.DeclaredFields(Properties(), j) }
