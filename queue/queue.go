package queue

import (
	"fmt"
	"sync"

	"muster/resource"
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
	Timeouts    Timeouts          `json:"timeouts"`
	Lifecycle   Lifecycle         `json:"lifecycle"`
	resource.Labelled
}

// Timeouts of a queue. Processes read them again whenever the Record changes, except Session, which they keep.
type Timeouts struct {
	Session resource.Duration `json:"session"` // a crashed process counts as live for this long
	Join    resource.Duration `json:"join"`    // a process waits this long for the queue
	Drain   resource.Duration `json:"drain"`   // the command of a process that leaves gets TERM, and KILL after this
	Stale   resource.Duration `json:"stale"`   // apply deletes only after nobody was live for this long
}

// Lifecycle says whether the queue may be deleted.
type Lifecycle struct {
	Protect bool `json:"protect"` // never deleted or replaced
}

// KindName is the name of this kind.
const KindName = "queue"

// Kind describes the kind of queues.
func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "member", Absent: "what is amiss",
		Counts: counts(), Work: resource.Work{Count: batches, One: "batch", Many: "batches"},
		Statuses: []resource.Status{Degraded, resource.StatusReady, Running},
	}, Properties())
})

// Default is a queue with all defaults. It has no name and no Redis.
func Default() Queue { return resource.Default(Properties()) }

// Of is the queue that r declares; the zero Queue if r is nil or declares another kind.
func Of(r *resource.Record) Queue { return resource.Of[Queue](r) }

// Kind implements resource.Declaration.
func (q Queue) Kind() resource.Kind { return Kind() }

// Policy implements resource.Declaration.
func (q Queue) Policy() resource.Policy {
	return resource.Policy{Protect: q.Lifecycle.Protect, Grace: q.Timeouts.Stale, InPlace: true}
}

// Check returns an error that starts with the JSON name of the first invalid value of q, or nil. See
// resource.CheckDeclared.
func (q Queue) Check() error {
	if err := resource.CheckDeclared(Properties(), q); err != nil {
		return err
	}
	if err := q.CheckSizes(); err != nil {
		return fmt.Errorf("max_bytes: %w", err)
	}
	return nil
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
