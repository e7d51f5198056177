package job

import (
	"sync"

	"muster/resource"
)

// Properties is the table of a job's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Job] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Job] {
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
		resource.SessionOf("30s", "a crashed worker is gone after this",
			func(j *Job) *resource.Duration { return &j.Timeouts.Session }),
		resource.DurationOf("timeouts.join", "100s", "how long a worker waits for the job and for all workers",
			func(j *Job) *resource.Duration { return &j.Timeouts.Join }),
		resource.DurationOf("timeouts.barrier", "100s", "how long a worker waits at a barrier",
			func(j *Job) *resource.Duration { return &j.Timeouts.Barrier }),
		resource.DurationOf("timeouts.stale", "30s", "how long nobody is live before apply may delete or replace",
			func(j *Job) *resource.Duration { return &j.Timeouts.Stale }),
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
