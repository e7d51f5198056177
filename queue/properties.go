package queue

import (
	"sync"
	"time"

	"muster/resource"
)

// Limits of a queue. Properties has those of every field.
const (
	MaxBatches  = 10_000 // unfinished ones
	LargestTask = 16 * mib

	// maxDuration is the maximum of every duration except the timeout of the session.
	maxDuration = int64(30 * 24 * time.Hour)

	kib = 1 << 10
	mib = 1 << 20
	tib = 1 << 40
)

// duration is a property that is a duration, with the limits of most of them.
func duration(name, value, doc string, ref func(*Queue) *resource.Duration) resource.Property[Queue] {
	return resource.Property[Queue]{
		Name: name, Doc: doc, Type: resource.TypeDuration, Default: value,
		Min: int64(time.Millisecond), Max: maxDuration, Ref: func(q *Queue) any { return ref(q) },
	}
}

// Properties is the table of a queue's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Queue] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Queue] {
	backoff := duration("backoff", "10s", "how long a task that failed waits; doubled each time",
		func(q *Queue) *resource.Duration { return &q.Backoff })
	backoff.Min = 0
	session := duration("timeouts.session", "10s", "a crashed process is gone after this",
		func(q *Queue) *resource.Duration { return &q.Timeouts.Session })
	session.Min, session.Max = int64(resource.MinSessionTimeout), int64(resource.MaxSessionTimeout)
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
		duration("task_timeout", "10m", "an attempt is ended after this",
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
		duration("keep_dead", "168h", "how long dead tasks are kept",
			func(q *Queue) *resource.Duration { return &q.KeepDead }),
		session,
		duration("timeouts.join", "100s", "how long a process waits for the queue",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Join }),
		duration("timeouts.drain", "30s", "a command that is stopped gets TERM, and KILL after this",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Drain }),
		duration("timeouts.stale", "30s", "how long nobody is live before apply may delete",
			func(q *Queue) *resource.Duration { return &q.Timeouts.Stale }),
		{
			Name: "lifecycle.protect", Doc: "never delete the queue", Type: resource.TypeBool, Default: "false",
			Ref: func(q *Queue) any { return &q.Lifecycle.Protect },
		},
	}
})
