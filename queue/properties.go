package queue

import (
	"sync"

	"muster/resource"
)

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
	return []resource.Property[Queue]{
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
		resource.SessionOf("10s", "a crashed process is gone after this",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Session }),
		resource.DurationOf("timeouts.join", "100s", "how long a process waits for the queue",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Join }),
		resource.DurationOf("timeouts.drain", "30s", "a command that is stopped gets TERM, and KILL after this",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Drain }),
		resource.DurationOf("timeouts.stale", "30s", "how long nobody is live before apply may delete",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Stale }),
		{
			Name: "lifecycle.protect", Doc: "never delete the queue", Type: resource.TypeBool, Default: "false",
			Ref: func(q *Queue) any { return &q.Lifecycle.Protect },
		},
	}
})
