package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"muster/resource"
)

// Queue is what processes share batches of tasks in. ZooKeeper says who is there and which batches there are; Redis
// holds tasks and results.
type Queue struct {
	Name        string            `json:"name"` // resource.ID describes the first four fields
	Root        string            `json:"root"`
	Address     string            `json:"address,omitempty"`
	At          string            `json:"-"`
	Redis       string            `json:"redis"` // as declared; see ParseRedis
	Attempts    int               `json:"attempts"`
	Backoff     resource.Duration `json:"backoff"`      // before the second attempt; doubled for each later one
	TaskTimeout resource.Duration `json:"task_timeout"` // an attempt is ended after this
	MaxTask     resource.Size     `json:"max_task"`     // of the payload of a task, and of its result
	MaxBytes    resource.Size     `json:"max_bytes"`    // of everything in Redis
	KeepDead    resource.Duration `json:"keep_dead"`    // how long dead tasks are kept
	Timeouts    Timeouts          `json:"timeouts"`
	Lifecycle   Lifecycle         `json:"lifecycle"`
	Labels      map[string]string `json:"labels,omitempty"`
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
	return resource.Kind{
		Name: KindName, Member: "member", Absent: "what is amiss",
		Counts: counts(), Work: resource.Work{Count: batches, One: "batch", Many: "batches"},
		Statuses: Statuses(),
		Fields:   append(resource.Names(Properties()), "name", "root", "address", "labels"),
		Decode: func(body []byte, at string) (resource.Declaration, error) {
			q := Default()
			q.Root, q.At = "", at // the root has no default here
			if err := json.Unmarshal(body, &q); err != nil {
				return nil, err
			}
			resource.FillMissing(Properties(), &q)
			return q, q.Check()
		},
	}
})

// Default is a queue with all defaults. It has no name and no Redis.
func Default() Queue {
	q := Queue{Root: resource.DefaultRoot}
	resource.SetDefaults(Properties(), &q)
	return q
}

// Of is the queue that r declares; the zero Queue if r is nil or declares another kind.
func Of(r *resource.Record) Queue {
	if r == nil {
		return Queue{}
	}
	q, _ := r.Declaration.(Queue)
	return q
}

// Kind implements resource.Declaration.
func (q Queue) Kind() resource.Kind { return Kind() }

// ID implements resource.Declaration.
func (q Queue) ID() resource.ID {
	return resource.ID{Name: q.Name, Root: q.Root, Address: q.Address, At: q.At}
}

// Path is the path of the queue znode.
func (q Queue) Path() string { return resource.Join(q.Root, q.Name) }

// Policy implements resource.Declaration.
func (q Queue) Policy() resource.Policy {
	return resource.Policy{Protect: q.Lifecycle.Protect, Grace: q.Timeouts.Stale, InPlace: true}
}

// Check returns an error that starts with the JSON name of the first invalid value of q, or nil. It is for what is read
// back from ZooKeeper or a plan file. Package spec checks HCL itself, and reports the place.
func (q Queue) Check() error {
	if err := resource.CheckName(KindName, q.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := resource.CheckRoot(q.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := resource.Check(Properties(), &q); err != nil {
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
	fs := resource.FieldsOf(Properties(), &q)
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		fs = append(fs, resource.Field{Name: "labels." + k, Value: q.Labels[k]})
	}
	return fs
}
