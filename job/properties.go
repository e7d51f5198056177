package job

import (
	"sync"
	"time"

	"muster/resource"
)

// maxTimeout is the maximum of every timeout except that of the session.
const maxTimeout = int64(30 * 24 * time.Hour)

// Properties is the table of a job's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Job] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Job] {
	timeout := func(name, value, doc string, ref func(*Timeouts) *resource.Duration) resource.Property[Job] {
		return resource.Property[Job]{
			Name: "timeouts." + name, Doc: doc, Type: resource.TypeDuration, Default: value,
			Min: int64(time.Millisecond), Max: maxTimeout,
			Ref: func(j *Job) any { return ref(&j.Timeouts) },
		}
	}
	session := timeout("session", "30s", "a crashed worker is gone after this",
		func(t *Timeouts) *resource.Duration { return &t.Session })
	session.Min, session.Max = int64(resource.MinSessionTimeout), int64(resource.MaxSessionTimeout)
	return []resource.Property[Job]{
		{
			Name: "workers", Doc: "how many", Type: resource.TypeInt, Required: true, Min: MinWorkers, Max: MaxWorkers,
			Immutable: true,
			Ref:       func(j *Job) any { return &j.Workers },
		},
		{
			Name: "roll_format", Doc: "how the list of workers is written into the job znode", Type: resource.TypeEnum,
			Default: string(Protobuf), Choices: []string{string(Protobuf), string(Text)}, Immutable: true,
			Ref: func(j *Job) any { return (*string)(&j.RollFormat) },
		},
		session,
		timeout("join", "100s", "how long a worker waits for the job and for all workers",
			func(t *Timeouts) *resource.Duration { return &t.Join }),
		timeout("barrier", "100s", "how long a worker waits at a barrier",
			func(t *Timeouts) *resource.Duration { return &t.Barrier }),
		timeout("stale", "30s", "how long nobody is live before apply may delete or replace",
			func(t *Timeouts) *resource.Duration { return &t.Stale }),
		{
			Name: "lifecycle.on_complete", Doc: "what the last worker does when all have completed",
			Type: resource.TypeEnum, Default: string(Reset),
			Choices: []string{string(Reset), string(Remove), string(Retain)},
			Ref:     func(j *Job) any { return (*string)(&j.Lifecycle.OnComplete) },
		},
		{
			Name: "lifecycle.on_running", Doc: "what a plan makes of a job with live workers", Type: resource.TypeEnum,
			Default: string(Keep), Choices: []string{string(Keep), string(Fail)},
			Ref: func(j *Job) any { return (*string)(&j.Lifecycle.OnRunning) },
		},
		{
			Name: "lifecycle.protect", Doc: "never delete or replace the job",
			Type: resource.TypeBool, Default: "false",
			Ref: func(j *Job) any { return &j.Lifecycle.Protect },
		},
	}
})
