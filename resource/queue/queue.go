// Package queue is the kind of queues: batches of small tasks, which processes share and execute, and whose results
// other processes collect. It holds the fields of a queue, their limits and defaults, what names a Redis and a batch,
// and what the facts found about a queue mean.
//
// One type Queue serves all: HCL declares it, ZooKeeper records it and a process reads it. The package holds plain data
// and rules about it; it talks to no server, and it refuses a password in the address of a Redis.
package queue

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"muster/resource"
	"muster/text"
)

// Queue is what processes share batches of tasks in. ZooKeeper says who is there and which batches there are; Redis
// holds tasks and results.
type Queue struct {
	resource.Common
	Redis       string            `json:"redis"` // as declared; see ParseRedis
	Attempts    int               `json:"attempts"`
	Backoff     resource.Duration `json:"backoff"`      // before the second attempt; doubled for each later one
	TaskTimeout resource.Duration `json:"task_timeout"` // an attempt is ended after this
	MaxTask     resource.Size     `json:"max_task"`     // of the payload of a task, and of its result
	MaxBytes    resource.Size     `json:"max_bytes"`    // of everything in Redis
	KeepDead    resource.Duration `json:"keep_dead"`    // how long dead tasks are kept
	resource.InPlace
}

const KindName = "queue"

func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "member", Absent: "what is amiss",
		Counts: counts(), Unfinished: resource.Unfinished{Count: batches, One: "batch", Many: "batches"},
		Statuses: []resource.Status{Degraded, resource.StatusReady, Running},
	}, Properties())
})

// Default is a queue with all defaults. It has no name and no Redis.
func Default() Queue { return resource.Default(Properties()) }

// Of is the queue that r declares; the zero Queue if r is nil or declares another kind.
func Of(r *resource.Record) Queue { return resource.Of[Queue](r) }

func (q Queue) Kind() resource.Kind { return Kind() }

func (q Queue) Check() error {
	return cmp.Or(resource.CheckDeclared(Properties(), q), resource.InField("max_bytes", q.CheckSizes()))
}

// CheckSizes says why max_task and max_bytes do not fit together, or returns nil.
func (q Queue) CheckSizes() error {
	if q.MaxBytes < q.MaxTask {
		return fmt.Errorf("max_bytes is %s, which cannot hold one task of max_task, %s: "+
			"write a larger max_bytes, or a smaller max_task", q.MaxBytes, q.MaxTask)
	}
	return nil
}

// Fields implements resource.Declaration: the properties in the order of Properties, then the labels, sorted. Two
// spellings of one address of Redis are equal.
func (q Queue) Fields() []resource.Field {
	if r, err := ParseRedis(q.Redis); err == nil {
		q.Redis = r.String()
	}
	return resource.DeclaredFields(Properties(), q)
}

// Limits of a queue. Properties has those of every field.
const (
	MaxBatches  = 10_000 // unfinished ones
	LargestTask = 16 * mib

	kib = 1 << 10
	mib = 1 << 20
	tib = 1 << 40
)

// Properties is the table of a queue's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Queue] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Queue] {
	backoff := resource.DurationOf("backoff", "10s", "how long a task that failed waits; doubled each time",
		func(q *Queue) *resource.Duration { return &q.Backoff })
	backoff.Min = 0
	return append([]resource.Property[Queue]{
		{
			Name: "redis", Doc: "where tasks and results are", Type: resource.TypeText, Required: true, Immutable: true,
			Form: "`redis://`, `rediss://` or `redis+sentinel://`, without a password",
			Valid: func(text string) error {
				_, err := ParseRedis(text)
				return err
			},
			Ref: func(q *Queue) any { return &q.Redis },
		},
		{
			Name: "attempts", Doc: "how often a task is tried, and a watcher for a batch", Type: resource.TypeInt,
			Default: "3", Min: 1, Max: 100, Ref: func(q *Queue) any { return &q.Attempts },
		},
		backoff,
		resource.DurationOf("task_timeout", "10m", "an attempt is ended after this",
			func(q *Queue) *resource.Duration { return &q.TaskTimeout }),
		{
			Name: "max_task", Doc: "a larger task is refused; a larger result makes its task dead",
			Type: resource.TypeSize, Default: "256KiB", Min: kib, Max: LargestTask,
			Ref: func(q *Queue) any { return &q.MaxTask },
		},
		{
			Name: "max_bytes", Doc: "of everything in Redis; above it, submitters wait", Type: resource.TypeSize,
			Default: "1GiB", Min: mib, Max: tib, Ref: func(q *Queue) any { return &q.MaxBytes },
		},
		resource.DurationOf("keep_dead", "168h", "how long dead tasks are kept",
			func(q *Queue) *resource.Duration { return &q.KeepDead }),
	}, resource.InPlaceProperties("queue", "process", "a command that is stopped",
		func(q *Queue) *resource.InPlace { return &q.InPlace })...)
})

// The counts of a queue, besides the live processes.
const (
	executors = "executors"      // live ones
	watchers  = "watchers"       // live ones
	batches   = "batches"        // unfinished ones
	waiting   = "waiting"        // open batches, while no executor is live
	completed = "completed"      // completed batches, while no watcher is live
	lost      = "lost_batches"   // unfinished batches that Redis does not have
	failed    = "failed_batches" // completed batches that watchers get no more
	refused   = "refused"        // 1 if Redis refuses
	full      = "full"           // 1 if Redis holds more than twice max_bytes
)

func counts() []resource.Count {
	return []resource.Count{
		{Name: executors, Word: "executors"}, {Name: watchers, Word: "watchers"},
		{Name: batches, Word: "unfinished batches"}, {Name: waiting, Word: "waiting for executors"},
		{Name: completed, Word: "waiting for watchers"}, {Name: lost, Word: "lost in Redis"},
		{Name: failed, Word: "failed in watchers"}, {Name: refused, Word: "refused by Redis"},
		{Name: full, Word: "above twice max_bytes"},
	}
}

// Found is what was counted of a queue.
type Found struct {
	Executors, Watchers int  // live ones
	Batches             int  // unfinished ones
	Waiting             int  // open batches, while no executor is live
	Completed           int  // completed batches, while no watcher is live
	Lost                int  // unfinished batches that Redis does not have
	Failed              int  // completed batches that watchers get no more
	Refused             bool // Redis refuses what the processes ask
	Full                bool // Redis holds more than twice max_bytes: nothing is executed until a batch ends
}

// Counts are f as the counts of an observation.
func (f Found) Counts() map[string]int {
	all := map[string]int{
		executors: f.Executors, watchers: f.Watchers, batches: f.Batches, waiting: f.Waiting, completed: f.Completed,
		lost: f.Lost, failed: f.Failed, refused: 0, full: 0,
	}
	if f.Refused {
		all[refused] = 1
	}
	if f.Full {
		all[full] = 1
	}
	return all
}

// FoundOf is what was counted of o.
func FoundOf(o *resource.Observed) Found {
	return Found{
		o.Count(executors), o.Count(watchers), o.Count(batches), o.Count(waiting), o.Count(completed), o.Count(lost),
		o.Count(failed), o.Count(refused) > 0, o.Count(full) > 0,
	}
}

// The statuses of queues, besides those of every kind.
const (
	// Degraded: batches wait and nobody is there for them, or fail, or Redis lost data, refuses or holds too much.
	Degraded resource.Status = "degraded"
	Running  resource.Status = "running" // processes are live, and nothing is amiss
)

// Classify implements resource.Declaration. A queue without live processes is idle, also if batches wait in it: the
// processes may only be restarting.
func (q Queue) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	degraded := len(FoundOf(o).amiss()) > 0
	switch {
	case o.Live == 0 && degraded:
		return resource.Idle, Degraded
	case o.Live == 0:
		return resource.Idle, resource.StatusReady
	case degraded:
		return resource.Degraded, Degraded
	}
	return resource.Live, Running
}

// amiss says why a queue is degraded.
func (f Found) amiss() []string {
	var all []string
	if f.Waiting > 0 && f.Watchers == 0 { // what is completed is not known while nobody is live
		all = append(all, text.Plural(f.Waiting, "batch waits", "batches wait")+" and no process is live")
	} else if f.Waiting > 0 {
		all = append(all, text.Plural(f.Waiting, "batch waits", "batches wait")+" and nobody executes")
	}
	if f.Completed > 0 {
		all = append(all, text.Plural(f.Completed, "batch is completed", "batches are completed")+" and nobody watches")
	}
	if f.Lost > 0 {
		all = append(all, "Redis lost "+text.Plural(f.Lost, "batch", "batches"))
	}
	if f.Failed > 0 {
		all = append(all, "watchers failed with "+text.Plural(f.Failed, "batch", "batches")+" for the last time")
	}
	if f.Refused {
		all = append(all, "Redis refuses what it is asked")
	}
	if f.Full {
		all = append(all, "nothing is executed: Redis holds more than twice max_bytes")
	}
	return all
}

// Health implements resource.Declaration: "3 executors, 1 watcher, 2 unfinished batches".
func (q Queue) Health(o *resource.Observed) string {
	f := FoundOf(o)
	s := text.Count(f.Executors, "executor") + ", " + text.Count(f.Watchers, "watcher") + ", " +
		text.Plural(f.Batches, "unfinished batch", "unfinished batches")
	return strings.Join(append([]string{s}, f.amiss()...), "; ")
}

// LiveText implements resource.Declaration: "3 executors and 1 watcher are live".
func (q Queue) LiveText(o *resource.Observed) string {
	f, live := FoundOf(o), o.Live-len(o.Strangers)
	var who []string
	if f.Executors > 0 {
		who = append(who, text.Count(f.Executors, "executor"))
	}
	if f.Watchers > 0 {
		who = append(who, text.Count(f.Watchers, "watcher"))
	}
	if others := live - f.Executors - f.Watchers; others > 0 {
		who = append(who, text.Count(others, "other"))
	}
	verb := " are live"
	if live == 1 {
		verb = " is live"
	}
	if len(who) == 0 {
		return "nobody is live"
	}
	return text.And(who) + verb
}

// WouldBeLost implements resource.Declaration. A queue with unfinished batches is neither deleted nor replaced, so
// nothing is lost that anybody waits for.
func (q Queue) WouldBeLost(o *resource.Observed) (what string, someDone bool) {
	if o.Live == 0 && FoundOf(o).Batches == 0 {
		return "", false
	}
	return q.Health(o), false
}
