package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits and defaults of a declaration.
const (
	MinWorkers = 1
	MaxWorkers = 20000
	MaxName    = 128 // characters

	DefaultRoot           = "/muster"
	DefaultSessionTimeout = Duration(30 * time.Second)
	DefaultJoinTimeout    = Duration(100 * time.Second)
	DefaultBarrierTimeout = Duration(100 * time.Second)
	DefaultStaleTimeout   = Duration(30 * time.Second)

	MinSessionTimeout = Duration(100 * time.Millisecond)
	MaxSessionTimeout = Duration(24 * time.Hour)

	// Reserved is the folder below every root that holds muster's own znodes. No job may have this name.
	Reserved = ".muster"
)

// Job is one distributed job: N workers that find each other below the znode Path.
type Job struct {
	Name string `json:"name"` // znode name below Root
	Root string `json:"root"` // absolute znode path
	// Address names the declaration (job.ingest["eu"]). It is recorded so that a human can find the
	// source of a job, and never compared: renaming a block changes nothing.
	Address string `json:"address,omitempty"`
	// At is where the declaration stands ("jobs.hcl:29"). It is neither recorded nor compared.
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
	Session Duration `json:"session"` // a crashed worker is gone after this
	Join    Duration `json:"join"`    // wait for the job and for all workers
	Barrier Duration `json:"barrier"`
	Stale   Duration `json:"stale"` // nobody live for this long before apply may delete or replace
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

// Default is a job with every default filled in and neither name nor workers.
func Default() Job {
	return Job{
		Root:       DefaultRoot,
		RollFormat: Protobuf,
		Timeouts: Timeouts{
			Session: DefaultSessionTimeout, Join: DefaultJoinTimeout,
			Barrier: DefaultBarrierTimeout, Stale: DefaultStaleTimeout,
		},
		Lifecycle: Lifecycle{OnComplete: Reset, OnRunning: Keep},
	}
}

// Path is the job znode.
func (j Job) Path() string { return Join(j.Root, j.Name) }

// Check says which value of j cannot be, by its name in JSON, or returns nil. It is for what was read back: HCL is checked
// where it stands, with its place.
func (j Job) Check() error {
	if err := CheckName(j.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := CheckRoot(j.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if j.Workers < MinWorkers || j.Workers > MaxWorkers {
		return fmt.Errorf("workers: %d is not between %d and %d", j.Workers, MinWorkers, MaxWorkers)
	}
	if t := j.Timeouts; min(t.Session, t.Join, t.Barrier, t.Stale) < 0 {
		return fmt.Errorf("timeouts: %s is negative", min(t.Session, t.Join, t.Barrier, t.Stale))
	}
	switch {
	case !slices.Contains([]RollFormat{Protobuf, Text}, j.RollFormat):
		return fmt.Errorf("roll_format: %q is not known", j.RollFormat)
	case !slices.Contains([]OnComplete{Reset, Remove, Retain}, j.Lifecycle.OnComplete):
		return fmt.Errorf("lifecycle.on_complete: %q is not known", j.Lifecycle.OnComplete)
	case !slices.Contains([]OnRunning{Keep, Fail}, j.Lifecycle.OnRunning):
		return fmt.Errorf("lifecycle.on_running: %q is not known", j.Lifecycle.OnRunning)
	}
	return nil
}

// Field is one comparable property of a job, as users write it.
type Field struct {
	Name      string // "workers", "timeouts.join", "labels.team"
	Value     string // "8", "1m40s", "data"
	Immutable bool   // cannot change once a worker has joined
}

// Fields lists every compared property in a fixed order, labels last and sorted. It is the one list behind
// equality, the "8 -> 12" of a plan, drift ignores and explain.
func (j Job) Fields() []Field {
	fs := []Field{
		{"workers", strconv.Itoa(j.Workers), true},
		{"roll_format", string(j.RollFormat), true},
		{"timeouts.session", j.Timeouts.Session.String(), false},
		{"timeouts.join", j.Timeouts.Join.String(), false},
		{"timeouts.barrier", j.Timeouts.Barrier.String(), false},
		{"timeouts.stale", j.Timeouts.Stale.String(), false},
		{"lifecycle.on_complete", string(j.Lifecycle.OnComplete), false},
		{"lifecycle.on_running", string(j.Lifecycle.OnRunning), false},
		{"lifecycle.protect", strconv.FormatBool(j.Lifecycle.Protect), false},
	}
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		fs = append(fs, Field{"labels." + k, j.Labels[k], false})
	}
	return fs
}

// Change is a field whose value differs between two jobs. Old or New is nil for a label that only one side has.
type Change struct {
	Name      string
	Old, New  *string
	Immutable bool
}

// Changes lists the fields in which b differs from a, in the order of Fields.
func Changes(a, b Job) []Change {
	old := map[string]*string{}
	for _, f := range a.Fields() {
		old[f.Name] = &f.Value
	}
	var cs []Change
	for _, f := range b.Fields() {
		was := old[f.Name]
		delete(old, f.Name)
		if was == nil || *was != f.Value {
			cs = append(cs, Change{f.Name, was, &f.Value, f.Immutable})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) { // only labels can be left
		cs = append(cs, Change{Name: name, Old: old[name]})
	}
	return cs
}

// Join appends a name to a znode path; the root "/" does not double its slash.
func Join(dir string, names ...string) string {
	p := strings.TrimSuffix(dir, "/")
	for _, n := range names {
		p += "/" + n
	}
	return p
}

// CheckName says why name cannot be a job's name, or returns nil: 1 to 128 characters of A-Z a-z 0-9 . _ -,
// the first a letter or a digit.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a job name must not be empty")
	case name == Reserved:
		return fmt.Errorf("the name %q is reserved for muster's own znodes", name)
	case len(name) > MaxName:
		return fmt.Errorf("a job name has at most %d characters; this one has %d", MaxName, len(name))
	}
	for i, r := range name {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if i == 0 && !alnum {
			return fmt.Errorf("a job name starts with a letter or a digit, not %q", r)
		}
		if !alnum && r != '.' && r != '_' && r != '-' {
			return fmt.Errorf("a job name may hold letters, digits, '.', '_' and '-', not %q", r)
		}
	}
	return nil
}

// CheckHome says why path cannot be the home of locks and applied plans, or returns nil: what a root may be, and also a
// .muster folder in one or at the top.
func CheckHome(home string) error {
	if dir, ok := strings.CutSuffix(home, "/"+Reserved); ok {
		if dir == "" {
			return nil
		}
		home = dir
	}
	if err := CheckRoot(home); err != nil {
		return fmt.Errorf("%s", strings.Replace(err.Error(), "a root", "home", 1))
	}
	return nil
}

// CheckRoot says why path cannot be a root, or returns nil: an absolute, clean
// znode path that is not "/", nor "/zookeeper" or below it, nor inside a ".muster" folder.
func CheckRoot(path string) error {
	if path == "/" || path == "" {
		return fmt.Errorf("%q cannot be a root: choose a folder such as %q", path, DefaultRoot)
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("a root is an absolute znode path: write %q", "/"+path)
	}
	if strings.HasSuffix(path, "/") {
		return fmt.Errorf("a root has no slash at its end: write %q", strings.TrimRight(path, "/"))
	}
	if path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/") {
		return fmt.Errorf("%q belongs to ZooKeeper itself", path)
	}
	if len(path) > 512 {
		return fmt.Errorf("a root has at most 512 characters; this one has %d", len(path))
	}
	for _, part := range strings.Split(path[1:], "/") {
		if part == Reserved {
			return fmt.Errorf("%q lies inside a %s folder, which holds muster's own znodes", path, Reserved)
		}
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q is not a clean path", path)
		}
		for _, r := range part {
			if r < 0x20 || r >= 0x7f {
				return fmt.Errorf("a root may hold printable ASCII characters, not %q", r)
			}
		}
	}
	return nil
}
