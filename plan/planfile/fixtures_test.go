package planfile_test

import (
	"muster/resource"
	"muster/resource/job"
)

const (
	stack = "etl"
	path  = "/jobs/a"
)

// declared is job "a" of four workers, changed by the edits.
func declared(edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Name, j.Root, j.Workers = "a", "/jobs", 4
	j.Address, j.At = `job.a`, "jobs.hcl:3"
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// recorded is an observation of job j as stack applied it.
func recorded(j job.Job, edits ...func(*resource.Observed)) *resource.Observed {
	j.At = ""
	rec := resource.Record{
		Stack: stack, Home: resource.DefaultHome, Generation: "g1", State: resource.StateOpen, Op: "op1",
	}
	declare(&rec, j)
	o := &resource.Observed{Record: &rec}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func counts(joined, done, live int) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Counts, o.Live = job.Counts(joined, done), live }
}

func owner(stack string) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Record.Stack = stack }
}

func workers(n int) func(*job.Job) { return func(j *job.Job) { j.Workers = n } }

func label(k, v string) func(*job.Job) {
	return func(j *job.Job) { j.Labels = map[string]string{k: v} }
}

func foreign() *resource.Observed {
	return &resource.Observed{Foreign: true, Problem: "12 bytes that are no roll"}
}

// declare puts j into rec as apply does.
func declare(rec *resource.Record, j job.Job) {
	if err := rec.Declare(j); err != nil {
		panic(err) // a job always encodes
	}
}

// kinds are the kinds that a file may hold.
func kinds() []resource.Kind { return []resource.Kind{job.Kind()} }
