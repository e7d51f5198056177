package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
	"muster/spec"
)

// write makes a configuration directory.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load is Load of files that must be right.
func load(t testing.TB, files map[string]string, o spec.Options) *spec.Config {
	t.Helper()
	c, ds := spec.Load(write(t, files), o)
	if c == nil {
		_ = ds.Text(os.Stderr, false)
		t.Fatal("the configuration was rejected")
	}
	return c
}

func TestPlainJob(t *testing.T) {
	c := load(t, map[string]string{"jobs.hcl": `
muster {
  stack = "etl"
}

job "ingest" {
  workers = 4
  timeouts {
    join = "60s"
  }
}
`}, spec.Options{})
	want := job.Default()
	want.Name, want.Address, want.At = "ingest", "job.ingest", "jobs.hcl:6"
	want.Workers = 4
	want.Timeouts.Join = resource.Duration(time.Minute)
	if d := cmp.Diff([]job.Job{want}, spec.Of[job.Job](c)); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	if c.Stack != "etl" || c.StackAt != "jobs.hcl:3" || c.Home != "/.muster" {
		t.Errorf("stack %q at %q, home %q", c.Stack, c.StackAt, c.Home)
	}
}

// findings is what Load says of one file next to a good one.
func findings(t *testing.T, name, text string, o spec.Options) spec.Diagnostics {
	t.Helper()
	files := map[string]string{"jobs.hcl": one}
	files[name] = text
	_, ds := spec.Load(write(t, files), o)
	return ds
}

// FuzzLoad: no text makes Load or its diagnostics panic, be silent about a rejection, or steer the terminal.
func FuzzLoad(f *testing.F) {
	for _, text := range sources(f) {
		f.Add(text, false)
	}
	f.Add(`{"muster": {"stack": "x"}, "job": {"a": {"workers": "${1 + 1}", "labels": {"a": null}}}}`, true)
	f.Add("muster {\n  stack = \"x\"\n}\njob \"a\" {\n  for_each = { for i in range(3) : i => i }\n"+
		"  workers = each.value\n}\n", false)
	f.Add("variable \"v\" {\n"+
		"  type = map(object({ a = optional(list(object({ b = optional(number, 1) })), []) }))\n"+
		"  default = { x = { a = [{}] } }\n}\n", false)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string, json bool) {
		native, inJSON := filepath.Join(dir, "a.hcl"), filepath.Join(dir, "a.hcl.json")
		path, other := native, inJSON
		if json {
			path, other = inJSON, native
		}
		_ = os.Remove(other)
		put(t, path, text)
		c, ds := spec.Load(dir, spec.Options{Now: time.Unix(0, 0), Environ: []string{"MUSTER_VAR_v=" + text}})
		if (c == nil) != ds.HasErrors() {
			t.Fatalf("config %v, findings %v", c, ds)
		}
		var b strings.Builder
		if err := ds.Text(&b, false); err != nil || strings.ContainsAny(b.String(), "\x1b\x07\r") {
			t.Fatalf("%v %q", err, b.String())
		}
		if err := ds.JSON(&b); err != nil {
			t.Fatal(err)
		}
		if !json {
			idempotent(t, []byte(text))
		}
	})
}
