package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/resource"
)

// Limits and defaults of a declaration that others need. Those of each field are in Properties.
const (
	MinWorkers = 1
	MaxWorkers = 20000

	DefaultSessionTimeout = resource.Duration(30 * time.Second)
	DefaultJoinTimeout    = resource.Duration(100 * time.Second)
)

// Job is one distributed job: N workers that find each other below the znode Path.
type Job struct {
	Name       string            `json:"name"` // see resource.ID for the first four
	Root       string            `json:"root"`
	Address    string            `json:"address,omitempty"`
	At         string            `json:"-"`
	Workers    int               `json:"workers"`
	RollFormat RollFormat        `json:"roll_format"`
	Timeouts   Timeouts          `json:"timeouts"`
	Lifecycle  Lifecycle         `json:"lifecycle"`
	Labels     map[string]string `json:"labels,omitempty"`
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
	Session resource.Duration `json:"session"` // a crashed worker is gone after this
	Join    resource.Duration `json:"join"`    // wait for the job and for all workers
	Barrier resource.Duration `json:"barrier"`
	Stale   resource.Duration `json:"stale"` // nobody live for this long before apply may delete or replace
}

// Lifecycle says what happens at the ends of a run, and what must not happen.
type Lifecycle struct {
	OnComplete OnComplete `json:"on_complete"`
	OnRunning  OnRunning  `json:"on_running"`
	Protect    bool       `json:"protect"` // never deleted or replaced
}

// OnComplete says what the last of N workers does when all have completed.
type OnComplete string

// What the last worker may do: make the job ready again, delete it, or leave it as completed.
const (
	Reset  OnComplete = "reset"
	Remove OnComplete = "remove"
	Retain OnComplete = "retain"
)

// OnRunning says what a plan makes of a declared job that already has live workers.
type OnRunning string

// Keep compares the job as usual; Fail blocks it (the classic check at submission).
const (
	Keep OnRunning = "keep"
	Fail OnRunning = "fail"
)

// KindName is what the kind of jobs is called.
const KindName = "job"

// Kind is what is known of all jobs.
func Kind() resource.Kind {
	return resource.Kind{
		Name: KindName, Member: "worker",
		Counts:   []resource.Count{{Name: joined, Word: "joined"}, {Name: done, Word: "completed"}},
		Statuses: Statuses(),
		Fields:   append(resource.Names(Properties()), "name", "root", "address", "labels"),
		Decode: func(body []byte, at string) (resource.Declaration, error) {
			j := Default()
			j.Root, j.At = "", at // a root must be said
			if err := json.Unmarshal(body, &j); err != nil {
				return nil, err
			}
			resource.Fill(Properties(), &j)
			return j, j.Check()
		},
	}
}

// Default is a job with every default filled in and neither name nor workers.
func Default() Job {
	j := Job{Root: resource.DefaultRoot}
	resource.Defaults(Properties(), &j)
	return j
}

// Of is the job that a record declares.
func Of(r *resource.Record) Job {
	if r == nil {
		return Job{}
	}
	j, _ := r.Declaration.(Job)
	return j
}

// Kind implements resource.Declaration.
func (j Job) Kind() resource.Kind { return Kind() }

// ID implements resource.Declaration.
func (j Job) ID() resource.ID {
	return resource.ID{Name: j.Name, Root: j.Root, Address: j.Address, At: j.At}
}

// Path is the job znode.
func (j Job) Path() string { return resource.Join(j.Root, j.Name) }

// Policy implements resource.Declaration.
func (j Job) Policy() resource.Policy {
	return resource.Policy{
		Protect: j.Lifecycle.Protect, FailIfLive: j.Lifecycle.OnRunning == Fail, RemovesSelf: j.Lifecycle.OnComplete == Remove,
		KeepsDone: j.Lifecycle.OnComplete == Retain, Grace: j.Timeouts.Stale,
	}
}

// Check says which value of j cannot be, by its name in JSON, or returns nil. It is for what was read back: HCL is checked
// where it stands, with its place.
func (j Job) Check() error {
	if err := resource.CheckName("job", j.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := resource.CheckRoot(j.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return resource.Check(Properties(), &j)
}

// Fields implements resource.Declaration: the properties in the order of their table, then the labels, sorted.
func (j Job) Fields() []resource.Field {
	fs := resource.FieldsOf(Properties(), &j)
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		fs = append(fs, resource.Field{Name: "labels." + k, Value: j.Labels[k]})
	}
	return fs
}
