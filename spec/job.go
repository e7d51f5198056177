package spec

import (
	"fmt"

	"muster/job"
	"muster/resource"
)

// jobs is the kind of job blocks.
func jobs() kindOf[job.Job] {
	return kindOf[job.Job]{
		table: table[job.Job]{
			blockType: job.KindName, properties: job.Properties(),
			words: map[string]words{"workers": {
				code:    codeWorkers,
				missing: "job %q does not say how many workers it has",
				add:     "add: workers = 4",
				unknown: "1 # not recorded: how many workers does this job have?",
				null:    "a job has no default number of workers: write one",
				more:    fmt.Sprintf("a job has at most %d workers: split it into several jobs", job.MaxWorkers),
				less:    "a job needs at least one worker; to have none, remove the job",
			}},
		},
		inside: "workers", initial: job.Default(),
		checkName: func(name string) error { return resource.CheckName(job.KindName, name) },
		identity:  func(j *job.Job) identity { return identity{&j.Name, &j.Root, &j.Address, &j.At, &j.Labels} },
		add:       func(c *Config, j job.Job) { c.Jobs = append(c.Jobs, j) },
	}
}
