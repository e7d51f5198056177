package report_test

import (
	"errors"
	"fmt"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

// run holds what all runs of the tests have in common.
func run(command string, code int) report.Run {
	return report.Run{
		Kinds:   []resource.Kind{job.Kind()},
		Command: command, Config: "prod", Dir: "deploy/prod", Version: "0.1.0",
		Servers: []string{"zk1:2181", "zk2:2181"},
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 41 * time.Millisecond, ExitCode: code,
	}
}

func planRun() report.Run {
	r := run("plan", 2)
	p := sample()
	p.ID = "1234"
	r.Plan = &p
	r.Problems = []report.Problem{{
		Warning: true, Code: "M1405", At: "jobs.hcl:3", Summary: "everything is open to anyone", Detail: "3 | acl",
		Next: "acl = [...]",
	}}
	r.Saved = &planfile.Saved{Created: r.Started, Plan: p}
	return r
}

func applyRun() report.Run {
	r := run("apply", 4)
	p := sample()
	create, replace, remove := p.Rows[0], p.Rows[1], p.Rows[2]
	r.Plan = &p
	r.Outcomes = []apply.Outcome{
		{Row: create, Result: apply.Applied, Took: 12 * time.Millisecond},
		{Row: replace, Result: apply.Waiting},
		{Row: remove, Result: apply.Refused, Took: 3 * time.Millisecond,
			Err: fmt.Errorf("job %s: %w: a worker joined: 10.0.3.40:7000", remove.Path, plan.ErrMoved)},
	}
	r.By = "runner@build-7"
	r.Who = history.Who{Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=2"}
	return r
}

// driftRun has a finding of each kind, an ignored one, an unlisted root and an unreadable job.
func driftRun() report.Run {
	named := func(name string, at int) job.Job {
		return declared(name, 4, func(j *job.Job) { j.At = fmt.Sprintf("jobs.hcl:%d", at) })
	}
	old := func(name string, joined, done, live int, edits ...func(*resource.Record)) resource.Observed {
		o := recorded(named(name, 0), joined, done, live)
		o.Record.By, o.Record.Applied = "ci@runner", "2026-03-01T00:00:00Z"
		for _, edit := range edits {
			edit(o.Record)
		}
		return o
	}
	p := plan.Diff(plan.Want{Stack: stack, Declared: declarations(
		named("clean", 1), named("gone", 2), named("died", 3), named("edited", 4), named("limping", 5),
		named("covered", 6), named("relabelled", 7), named("hidden", 8),
		declared("due", 8, func(j *job.Job) { j.Labels = map[string]string{"team": "data"} }),
	)}, plan.State{Ensemble: "e1", Unlisted: []string{"/jobs/old"}, Found: map[string]resource.Observed{
		"/jobs/prod/clean":   old("clean", 4, 0, 4),
		"/jobs/prod/died":    old("died", 4, 1, 0),
		"/jobs/prod/limping": old("limping", 4, 0, 3),
		"/jobs/prod/edited":  old("edited", 0, 0, 0, editJob(func(j *job.Job) { j.Workers = 40 })),
		"/jobs/prod/due":     old("due", 0, 0, 0),
		"/jobs/prod/relabelled": old("relabelled", 0, 0, 0, func(r *resource.Record) {
			editJob(func(j *job.Job) { j.Labels = map[string]string{"a": "b"} })(r)
			r.Sign()
		}),
		"/jobs/prod/covered": {Foreign: true, Problem: "12 bytes that are no roll"},
		"/jobs/prod/left":    old("left", 0, 0, 0),
		"/jobs/prod/theirs":  old("theirs", 0, 0, 0, func(r *resource.Record) { r.Stack = "other"; r.Sign() }),
		"/jobs/prod/hidden":  {Problem: "no permission to read it"},
	}})
	p.Roots = []string{"/jobs/old", "/jobs/prod"}
	d := p.Drift([]plan.Ignore{{
		Address: "job.relabelled", Fields: []string{"labels"}, Until: "2027-01-31", Reason: "OPS-1412 | relabelling",
		At: "drift.hcl:3",
	}})
	r := run("drift", 2)
	r.Plan, r.Drift, r.FailOn = &p, &d, plan.FailingKinds()
	return r
}

func failedRun() report.Run {
	r := run("plan", 1)
	r.Problems = []report.Problem{
		{Code: "M1203", At: "jobs.hcl:31", Summary: "workers must be a whole number from 1 to 20000",
			Detail: "31 |   workers = 1.5\n   |             ^^^ this is 1.5", Next: "wrap it: ceil(1.5)"},
		{Code: "M1101", At: "jobs.hcl:40", Summary: "a job of this name is declared twice"},
	}
	return r
}

// nasty is text with control sequences and markup of every format.
const nasty = "a|b<script>alert('x')</script>&amp;`````\n::error file=x::%0A\x1b[31m\"\\ -->@all]]>{{.}}\u202e\xff"

// nastyRun has nasty text in every place that a user or ZooKeeper fills.
func nastyRun() report.Run {
	evil := declared("evil", 3, func(j *job.Job) {
		j.Address, j.At = `job.x["`+nasty+`"]`, "a,b:%\n.hcl:7"
		j.Labels = map[string]string{"k|" + nasty: nasty}
	})
	have := plan.State{Found: map[string]resource.Observed{
		"/jobs/prod/evil":     {Foreign: true, Problem: nasty},
		"/jobs/prod/" + nasty: recorded(declared("tmp", 2), 0, 0, 0),
	}}
	p := plan.Diff(plan.Want{Stack: stack, Declared: declarations(evil)}, have)
	p.Stack, p.Roots, p.Unlisted = nasty, []string{nasty}, []string{nasty}
	r := run("plan", 3)
	r.Config, r.Servers, r.Dir = nasty, []string{nasty}, nasty
	r.Plan = &p
	r.Problems = []report.Problem{{Code: nasty, At: nasty, Summary: nasty, Detail: nasty, Next: nasty}}
	r.Saved = &planfile.Saved{Created: r.Started, Plan: p}
	return r
}

// nastyApply has nasty text in the errors of a server.
func nastyApply() report.Run {
	r := nastyRun()
	r.Command = "apply"
	r.By, r.Who = nasty, history.Who{Actor: nasty, CI: nasty, Commit: nasty, URL: "https://ci.example/(<x>)?a=|`&b=*_"}
	for _, row := range r.Plan.Rows {
		r.Outcomes = append(r.Outcomes, apply.Outcome{Row: row, Result: apply.Failed, Err: errors.New(nasty)})
	}
	return r
}

func runs() map[string]report.Run {
	return map[string]report.Run{
		"plan": planRun(), "apply": applyRun(), "drift": driftRun(), "failed": failedRun(),
		"nasty": nastyRun(), "nasty_apply": nastyApply(),
	}
}
