package plan_test

import (
	"muster/job"
	"muster/plan"
)

const (
	stack = "etl"
	path  = "/jobs/a"
)

// declared is job "a" of four workers, edited.
func declared(edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Name, j.Root, j.Workers = "a", "/jobs", 4
	j.Address, j.At = `job.a`, "jobs.hcl:3"
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// recorded is an observation of job "a" as stack applied it.
func recorded(j job.Job, edits ...func(*plan.Observed)) *plan.Observed {
	j.At = ""
	rec := job.Record{Job: j, Stack: stack, Generation: "g1", State: job.Open, Op: "op1"}
	rec.Digest = rec.Sum()
	o := &plan.Observed{Record: &rec}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func counts(joined, done, live int) func(*plan.Observed) {
	return func(o *plan.Observed) { o.Joined, o.Done, o.Live = joined, done, live }
}

func owner(stack string) func(*plan.Observed) {
	return func(o *plan.Observed) { o.Record.Stack = stack }
}

func otherACL(o *plan.Observed) { o.Record.ACL = []string{"world:anyone:r"} }

func terminating(o *plan.Observed) { o.Record.State = job.Terminating }

func strangers(names ...string) func(*plan.Observed) {
	return func(o *plan.Observed) { o.Strangers, o.Live = names, o.Live+len(names) }
}

func workers(n int) func(*job.Job) { return func(j *job.Job) { j.Workers = n } }

func label(k, v string) func(*job.Job) {
	return func(j *job.Job) { j.Labels = map[string]string{k: v} }
}

func onComplete(c job.OnComplete) func(*job.Job) {
	return func(j *job.Job) { j.Lifecycle.OnComplete = c }
}

func failIfRunning(j *job.Job) { j.Lifecycle.OnRunning = job.Fail }

func protect(j *job.Job) { j.Lifecycle.Protect = true }

func classic(joined, live int) *plan.Observed {
	return &plan.Observed{Classic: true, Joined: joined, Live: live}
}

func foreign() *plan.Observed {
	return &plan.Observed{Foreign: true, Problem: "12 bytes that are no roll"}
}

func unreadable() *plan.Observed { return &plan.Observed{Problem: "no permission to read it"} }
