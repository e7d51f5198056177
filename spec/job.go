package spec

import (
	"fmt"

	"muster/job"
)

// jobs is the kind of job blocks.
func jobs() kindOf[job.Job, *job.Job] {
	return kindOf[job.Job, *job.Job]{
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
		add: func(c *Config, j job.Job) { c.Jobs = append(c.Jobs, j) },
	}
}
