package spec_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/resource/job"
	"muster/spec"
)

// TestExamples: every file of examples that holds HCL loads, and every directory below it, without a finding, and every
// file is formatted.
func TestExamples(t *testing.T) {
	const examples = "../examples"
	found := map[string]int{}
	err := filepath.WalkDir(examples, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".hcl") {
			return err
		}
		if dir := filepath.Dir(path); dir != examples {
			found[dir]++
		} else {
			found[path]++
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, ds := spec.Format(src, path)
		if len(ds) > 0 || !bytes.Equal(src, out) {
			t.Errorf("%s is not formatted: %v\n%s", path, ds, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string][]string{}
	for dir := range found {
		c, ds := spec.Load(dir, spec.Options{
			HasCredentials: true, Version: "0.1.0", Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		})
		if len(ds) > 0 {
			_ = ds.Text(os.Stderr, false)
			t.Fatalf("%s has findings", dir)
		}
		name := strings.TrimSuffix(filepath.Base(dir), ".hcl")
		for _, j := range spec.Of[job.Job](c) {
			jobs[name] = append(jobs[name], j.Address)
		}
	}
	want := map[string][]string{
		"one-job": {"job.hello"}, "regions": {`job.ingest["eu"]`, `job.ingest["us"]`, "job.merge"},
		"team-a": {"job.clicks", "job.sessions"}, "team-b": {"job.billing", "job.report"},
		"classic": {"job.wordcount", "job.terasort"}, "guarded": {"job.ledger", "job.audit"},
	}
	for name, addresses := range want {
		if !slices.Equal(jobs[name], addresses) {
			t.Errorf("%s declares %v, want %v", name, jobs[name], addresses)
		}
	}
}

// TestRegionsInProduction: the variable file of the example does what its comment says.
func TestRegionsInProduction(t *testing.T) {
	dir := "../examples/regions"
	c, ds := spec.Load(dir, spec.Options{Vars: []spec.VarInput{{File: dir + "/prod.vars.hcl"}}})
	if c == nil {
		_ = ds.Text(os.Stderr, false)
		t.Fatal("rejected")
	}
	if c.Stack != "regions-prod" || len(spec.Of[job.Job](c)) != 4 || spec.Of[job.Job](c)[3].Workers != 6 ||
		spec.Of[job.Job](c)[0].Path() != "/jobs/prod/ingest-ap" {
		t.Errorf("%+v", c)
	}
}
