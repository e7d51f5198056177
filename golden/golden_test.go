// Package golden pins what declarations and observations give: one directory a case, named after the behaviour. It holds
// tests only.
//
// A case is a configuration (declared.hcl, whose first line says why the case exists, or an example) and what was
// observed (observed.json, a plan.State), with the plan they give as text and as a plan file; or a configuration that
// is refused, with its diagnostics. Run the tests with -update to write the expectations anew, then read the difference.
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/report"
	"muster/spec"
)

var update = flag.Bool("update", false, "write what is expected anew")

// examplePrefix starts the name of a case whose configuration is an example: example_a_b is examples/a/b.
const examplePrefix = "example_"

// cases lists the directories.
func cases(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, e := range readDir(t, ".") {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func readDir(t *testing.T, dir string) []fs.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// configuration is where the HCL of a case is.
func configuration(name string) string {
	if example, ok := strings.CutPrefix(name, examplePrefix); ok {
		return filepath.Join("..", "examples", strings.ReplaceAll(example, "_", "/"))
	}
	return name
}

// load reads the configuration of a case as a machine would that has credentials.
func load(name string) (*spec.Config, spec.Diagnostics) {
	return spec.Load(configuration(name), spec.Options{
		Version: "0.1.0", HasCredentials: true, Now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	})
}

// observe reads what a case observed.
func observe(t *testing.T, name string) plan.State {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(name, "observed.json"))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var have plan.State
	if err := dec.Decode(&have); err != nil {
		t.Fatalf("observed.json: %v", err)
	}
	return have
}

// want is what a configuration declares.
func want(c *spec.Config) plan.Want {
	return plan.Want{Stack: c.Stack, TakeOver: c.TakeOver, Jobs: c.Jobs}
}

// outputs are the files that a case's inputs give.
func outputs(t *testing.T, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	c, diags := load(name)
	if len(diags) > 0 {
		var text bytes.Buffer
		if err := diags.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		files["diags.txt"] = text.String()
	}
	if c == nil {
		return files
	}
	have := observe(t, name)
	p := plan.Diff(want(c), have)
	p.ID, p.Roots = "p1", c.Searched() // a real plan has a random id
	var text bytes.Buffer
	if err := report.Plan(&text, p, report.Options{}); err != nil {
		t.Fatal(err)
	}
	file, err := plan.Encode(plan.Saved{Created: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), MusterVersion: "0.1.0", Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	files["plan.txt"], files["plan.json"] = text.String(), string(file)
	checkLaws(t, want(c), have)
	return files
}

func TestGolden(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			got := outputs(t, name)
			if *update {
				rewrite(t, name, got)
			}
			for _, file := range slices.Sorted(maps.Keys(got)) {
				body, err := os.ReadFile(filepath.Join(name, file))
				if err != nil {
					t.Errorf("%v: run the tests of golden with -update, and read what they wrote", err)
					continue
				}
				if d := cmp.Diff(string(body), got[file]); d != "" {
					t.Errorf("%s (-want +got):\n%s", file, d)
				}
			}
			for _, e := range readDir(t, name) {
				if _, ok := got[e.Name()]; !ok && !input(name, e.Name(), got) {
					t.Errorf("%s belongs to no case like this one", e.Name())
				}
			}
		})
	}
}

// input reports whether a case with these outputs reads the file.
func input(name, file string, got map[string]string) bool {
	if file == "observed.json" {
		return got["plan.txt"] != ""
	}
	return configuration(name) == name && (strings.HasSuffix(file, ".hcl") || strings.HasSuffix(file, ".hcl.json"))
}

// rewrite makes a case's expectations what it gives now.
func rewrite(t *testing.T, name string, got map[string]string) {
	t.Helper()
	for _, file := range []string{"diags.txt", "plan.txt", "plan.json"} {
		path := filepath.Join(name, file)
		var err error
		if text, ok := got[file]; ok {
			err = os.WriteFile(path, []byte(text), 0o644)
		} else if err = os.Remove(path); os.IsNotExist(err) {
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryCaseSaysWhyItExists(t *testing.T) {
	for _, name := range cases(t) {
		if configuration(name) != name {
			continue // an example explains itself
		}
		body, err := os.ReadFile(filepath.Join(name, "declared.hcl"))
		if err != nil {
			t.Error(err)
			continue
		}
		if line, _, _ := strings.Cut(string(body), "\n"); len(strings.TrimSpace(strings.TrimPrefix(line, "#"))) < 20 || line[0] != '#' {
			t.Errorf("%s: the first line of declared.hcl does not say why the case exists: %q", name, line)
		}
	}
}

// TestEveryRowOfBothTablesHasACase: each status, and each reason, in the plan of some case.
func TestEveryRowOfBothTablesHasACase(t *testing.T) {
	statuses, reasons, refused := map[plan.Status]bool{}, map[plan.Reason]bool{}, 0
	classic := map[plan.Status]bool{}
	for _, name := range cases(t) {
		c, _ := load(name)
		if c == nil {
			refused++
			continue
		}
		for _, r := range plan.Diff(want(c), observe(t, name)).Rows {
			statuses[r.Old.Status()] = true
			reasons[r.Reason] = true
			if r.Old != nil && r.Old.Classic {
				classic[r.Old.Status()] = true
			}
		}
	}
	for _, s := range plan.Statuses() {
		if !statuses[s] {
			t.Errorf("no case has a job whose status is %q", s)
		}
	}
	for _, s := range []plan.Status{plan.Running, plan.Stale, plan.Ready} {
		if !classic[s] {
			t.Errorf("no case has a classic job whose status is %q", s)
		}
	}
	for _, r := range plan.Reasons() {
		if !reasons[r] {
			t.Errorf("no case has a row whose reason is %q", r)
		}
	}
	if refused < 25 {
		t.Errorf("%d cases have a configuration that is refused, want at least 25", refused)
	}
}

func TestEveryExampleHasACase(t *testing.T) {
	examples := filepath.Join("..", "examples")
	missing := map[string]bool{}
	err := filepath.WalkDir(examples, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && (strings.HasSuffix(path, ".hcl") || strings.HasSuffix(path, ".hcl.json")) {
			missing[filepath.Dir(path)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) < 5 {
		t.Errorf("%d examples, want at least 5", len(missing))
	}
	for _, name := range cases(t) {
		delete(missing, configuration(name))
	}
	for _, dir := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s has no case: make a directory named %s… with its observed.json", dir, examplePrefix)
	}
}

func TestExamplesAreFormatted(t *testing.T) {
	for _, pattern := range []string{"../examples/*/*.hcl", "../examples/*/*/*.hcl"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			formatted, diags := spec.Format(body, file)
			if diags.HasErrors() || !bytes.Equal(body, formatted) {
				t.Errorf("%s is not as muster fmt writes it (%v)", file, diags)
			}
		}
	}
}

// TestObservedRecordsVerify: a record whose digest does not fit is drift, so only a case about that may have one.
func TestObservedRecordsVerify(t *testing.T) {
	for _, name := range cases(t) {
		if c, _ := load(name); c == nil || strings.Contains(name, "edited") {
			continue
		}
		for path, o := range observe(t, name).Jobs {
			if o.Record != nil && o.Record.Edited() {
				t.Errorf("%s: the record of %s has the digest %s, want %s", name, path, o.Record.Digest, o.Record.Sum())
			}
			if o.Record != nil && o.Record.Job.Path() != path {
				t.Errorf("%s: the record of %s is that of %s", name, path, o.Record.Job.Path())
			}
		}
	}
}
