package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"

	"github.com/google/go-cmp/cmp"
)

const stack = "etl-prod"

func declared(name string, workers int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Name, j.Root, j.Workers = name, "/jobs/prod", workers
	j.Address, j.At = "job."+name, "jobs.hcl:52"
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func recorded(j job.Job, joined, done, live int) resource.Observed {
	rec := resource.Record{Stack: stack, Generation: "g1", State: resource.StateOpen, Op: "op1"}
	declare(&rec, j)
	return resource.Observed{Record: &rec, Counts: job.Counts(joined, done), Live: live}
}

// sample is a plan with a create, a replace, a delete, a blocked row and fifteen unchanged rows.
func sample() plan.Plan {
	ingest := declared("ingest-us", 24, func(j *job.Job) { j.Address, j.At = `job.ingest["us"]`, "jobs.hcl:29" })
	want := plan.Want{Stack: stack, Declared: declarations(
		ingest, declared("nightly", 12), declared("report", 16, func(j *job.Job) { j.At = "jobs.hcl:71" }),
	)}
	live := recorded(declared("report", 8), 8, 0, 5)
	for i := range 5 {
		live.Members = append(live.Members, fmt.Sprintf("10.0.3.%d:7000", 11+i))
	}
	have := plan.State{Found: map[string]resource.Observed{
		"/jobs/prod/nightly": recorded(declared("nightly", 8), 8, 5, 0),
		"/jobs/prod/report":  live,
		"/jobs/prod/tmp-backfill": recorded(
			declared("tmp-backfill", 2, func(j *job.Job) { j.Address = "job.tmp" }), 2, 0, 0),
	}}
	for i := range 15 {
		j := declared(fmt.Sprintf("same-%02d", i), 4)
		want.Declared = append(want.Declared, j)
		have.Found[j.Path()] = recorded(j, 0, 0, 0)
	}
	p := plan.Diff(want, have)
	p.Roots = []string{"/jobs/prod"}
	return p
}

// text is the text that f writes.
func text(t *testing.T, f func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := f(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// asRecorded compares got with a file in testdata, or writes it there with -update.
func asRecorded(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got); -update rewrites it:\n%s", name, d)
	}
}

var took = 41 * time.Millisecond

// editJob changes what a Record declares, and keeps its old digest.
func editJob(edit func(*job.Job)) func(*resource.Record) {
	return func(r *resource.Record) {
		digest, j := r.Digest, job.Of(r)
		edit(&j)
		declare(r, j)
		r.Digest = digest
	}
}

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
