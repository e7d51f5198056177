package plan_test

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
	rec := resource.Record{Stack: stack, Generation: "g1", State: resource.StateOpen, Op: "op1"}
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

func otherACL(o *resource.Observed) { o.Record.ACL = []string{"world:anyone:r"} }

func terminating(o *resource.Observed) { o.Record.State = resource.StateTerminating }

func strangers(names ...string) func(*resource.Observed) {
	return func(o *resource.Observed) { o.Strangers, o.Live = names, o.Live+len(names) }
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

func classic(joined, live int) *resource.Observed {
	return &resource.Observed{Classic: true, Counts: job.Counts(joined, 0), Live: live}
}

func foreign() *resource.Observed {
	return &resource.Observed{Foreign: true, Problem: "12 bytes that are no roll"}
}

func unreadable() *resource.Observed { return &resource.Observed{Problem: "no permission to read it"} }

// declare puts j into rec as apply does.
func declare(rec *resource.Record, j job.Job) {
	if err := rec.Declare(j); err != nil {
		panic(err) // a job always encodes
	}
}

// declarations is Want.Declared for these jobs.
func declarations(jobs ...job.Job) []resource.Declaration {
	var ds []resource.Declaration
	for _, j := range jobs {
		ds = append(ds, j)
	}
	return ds
}

// declaration is Row.New for j; nil if nothing is declared.
func declaration(j *job.Job) resource.Declaration {
	if j == nil {
		return nil
	}
	return *j
}

// editJob changes what a Record declares, and keeps its old digest.
func editJob(edit func(*job.Job)) func(*resource.Record) {
	return func(r *resource.Record) {
		digest, j := r.Digest, job.Of(r)
		edit(&j)
		declare(r, j)
		r.Digest = digest
	}
}
