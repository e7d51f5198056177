// Package job is the kind of distributed jobs: the fields of a job, their limits and defaults, which of them may change
// while it runs, and what the facts found about it mean.
//
// One type Job serves all: HCL declares it, ZooKeeper records it and a worker reads it. The package holds plain data
// and rules about it; it reads no file and talks to no server.
package job

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"muster/resource"
	"muster/text"
)

// Limits and defaults that other packages use. Properties has those of every field.
const (
	MinWorkers = 1
	MaxWorkers = 20000

	DefaultJoinTimeout = resource.Duration(100 * time.Second)
)

// Job is one distributed job: Workers processes that find each other below the znode Path.
type Job struct {
	resource.Common
	Workers    int        `json:"workers"`
	RollFormat RollFormat `json:"roll_format"`
	IDs        IDs        `json:"ids,omitzero"`
	Gang       *Gang      `json:"gang,omitempty"` // nil: its workers do not depend on each other
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

// IDs says which worker gets which id.
type IDs string

// The ways to give ids. A Record leaves out the default, as those have done that were written before there was another.
const (
	ByJoin  IDs = "join"  // in the order in which they join
	ByIndex IDs = "index" // each brings its own: the index that the scheduler gave it
)

// IsZero reports whether a Record leaves it out.
func (i IDs) IsZero() bool { return i == ByJoin || i == "" }

// Timeouts of a job. Workers read them when they join and keep them, unlike members of groups and queues.
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

const KindName = "job"

func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "worker", Absent: "the missing workers", Classic: true, Formats: formatIDs,
		Counts:   []resource.Count{{Name: joined, Word: "joined"}, {Name: done, Word: "completed"}},
		Statuses: []resource.Status{Completed, resource.StatusReady, resource.StatusStale, Forming, Degraded, Running},
	}, Properties())
})

// Default is a job with all defaults. It has no name and no workers.
func Default() Job { return resource.Default(Properties()) }

// Of is the job that r declares; the zero Job if r is nil or declares another kind.
func Of(r *resource.Record) Job { return resource.Of[Job](r) }

func (j Job) Kind() resource.Kind { return Kind() }

// formatIDs is the format of Records that say how ids are given, or declare a gang.
const formatIDs = 2

// Format implements resource.Formatted.
func (j Job) Format() int {
	if j.IDs.IsZero() && j.Gang == nil {
		return 1
	}
	return formatIDs
}

func (j Job) Policy() resource.Policy {
	return resource.Policy{
		Protect:     j.Lifecycle.Protect,
		FailIfLive:  j.Lifecycle.OnRunning == Fail,
		RemovesSelf: j.Lifecycle.OnComplete == Remove,
		KeepsDone:   j.Lifecycle.OnComplete == Retain,
		Grace:       j.Timeouts.Stale,
	}
}

func (j Job) Check() error { return cmp.Or(resource.CheckDeclared(Properties(), j), j.Gang.check()) }

// Fields implements resource.Declaration: the properties in the order of Properties, then those of the gang, then the
// labels, sorted.
func (j Job) Fields() []resource.Field {
	return resource.DeclaredFields(Properties(), j, j.Gang.fields()...)
}

// Properties is the table of a job's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Job] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Job] {
	rollFormat := resource.EnumOf("roll_format", "how the list of workers is written into the job znode",
		func(j *Job) *string { return (*string)(&j.RollFormat) }, Protobuf, Text)
	rollFormat.Immutable = true
	ids := resource.EnumOf("ids", "which worker gets which id: by the order of joining, or by its index",
		func(j *Job) *string { return (*string)(&j.IDs) }, ByJoin, ByIndex)
	ids.Immutable = true
	return []resource.Property[Job]{
		{
			Name: "workers", Doc: "how many", Type: resource.TypeInt, Required: true, Min: MinWorkers, Max: MaxWorkers,
			Immutable: true,
			Ref:       func(j *Job) any { return &j.Workers },
		},
		rollFormat,
		ids,
		resource.SessionOf("30s", "a crashed worker is gone after this",
			func(j *Job) *resource.Duration { return &j.Timeouts.Session }),
		resource.DurationOf("timeouts.join", "100s", "how long a worker waits for the job and for all workers",
			func(j *Job) *resource.Duration { return &j.Timeouts.Join }),
		resource.DurationOf("timeouts.barrier", "100s", "how long a worker waits at a barrier",
			func(j *Job) *resource.Duration { return &j.Timeouts.Barrier }),
		resource.DurationOf("timeouts.stale", "30s", "how long nobody is live before apply may delete or replace",
			func(j *Job) *resource.Duration { return &j.Timeouts.Stale }),
		resource.EnumOf("lifecycle.on_complete", "what the last worker does when all have completed",
			func(j *Job) *string { return (*string)(&j.Lifecycle.OnComplete) }, Reset, Remove, Retain),
		resource.EnumOf("lifecycle.on_running", "what a plan makes of a job with live workers",
			func(j *Job) *string { return (*string)(&j.Lifecycle.OnRunning) }, Keep, Fail),
		{
			Name: "lifecycle.protect", Doc: "never delete or replace the job",
			Type: resource.TypeBool, Default: "false",
			Ref: func(j *Job) any { return &j.Lifecycle.Protect },
		},
	}
})

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

func (j Job) WouldBeLost(o *resource.Observed) (what string, someDone bool) {
	if Joined(o) == 0 {
		return "", false
	}
	what = fmt.Sprintf("%d of %d, none live", Joined(o), j.Workers)
	if Done(o) > 0 {
		what += fmt.Sprintf(", %d completed (will be forgotten)", Done(o))
	}
	return what, Done(o) > 0
}

// Run is one completed run of a job. The Record keeps the last one under the key "last".
type Run struct {
	ID         string `json:"id,omitempty"` // the workers' --run, if they gave one
	Generation string `json:"generation"`
	Completed  string `json:"completed"` // RFC 3339
}

// The fields of a job's Record, besides those of every kind.
const (
	keyLast   = "last"
	keyNoRoll = "no_roll" // the generation whose roll was too large for one znode
)

// LastRun is the last completed run; nil if there was none.
func LastRun(r *resource.Record) *Run { return resource.ExtraOf[*Run](r, keyLast) }

// SetLastRun writes run into r as the last one.
func SetLastRun(r *resource.Record, run Run) error { return r.SetExtra(keyLast, run) }

// NoRoll is the generation whose roll was too large to be written; empty if there was none.
func NoRoll(r *resource.Record) string { return resource.ExtraOf[string](r, keyNoRoll) }

// SetNoRoll writes into r that the roll of generation g was too large to be written.
func SetNoRoll(r *resource.Record, g string) error { return r.SetExtra(keyNoRoll, g) }

// CheckRun says why id is not a valid name of a run, or returns nil. A name has 1 to 128 printable characters and no
// spaces. No znode has that name, so 2026-11-21T10:00:00Z and build/1234 are valid.
func CheckRun(id string) error {
	isSpace := func(r rune) bool { return r == ' ' }
	return resource.CheckPrintable("the name of a run", id, 128, "without spaces", isSpace)
}
