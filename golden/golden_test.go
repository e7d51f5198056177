// Package golden holds cases: a configuration and what was observed in ZooKeeper, with the plan as text, or with the
// diagnostics if the configuration is refused. A case is one file, <case>.txtar, named after the behaviour that it
// shows. docs/testing.md says how to add one. The package holds tests only.
package golden

import (
	"bytes"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

var update = flag.Bool("update", false, "rewrite the expectations of the cases")

func TestGolden(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			got := c.outputs(t)
			if *update {
				c = c.rewritten(got)
				if err := os.WriteFile(c.file(), txtar.Format(c.archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, d := range c.differences(got) {
				t.Error(d)
			}
		})
	}
}

// TestEveryPlanFitsTheSchema checks the plan file of every case, also of those without a plan.json.
func TestEveryPlanFitsTheSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("../cli/schema/plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases(t) {
		file, ok := c.outputs(t)[planJSON]
		if !ok {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(file))
		if err == nil {
			err = schema.Validate(doc)
		}
		if err != nil {
			t.Errorf("%s: %v", c.file(), err)
		}
	}
}

// TestEveryRowOfBothTablesHasACase: there is a case for each status and one for each reason.
func TestEveryRowOfBothTablesHasACase(t *testing.T) {
	statuses, reasons, refused := map[string]bool{}, map[plan.Reason]bool{}, 0
	classic := map[resource.Status]bool{}
	for _, c := range cases(t) {
		cfg, _ := c.load(t)
		if cfg == nil {
			refused++
			continue
		}
		for _, r := range plan.Diff(want(cfg), c.have(t, cfg)).Rows {
			statuses[planfile.KindOf(r, kinds()).Name+" "+string(r.Old.Status())] = true
			reasons[r.Reason] = true
			if r.Old != nil && r.Old.Classic {
				classic[r.Old.Status()] = true
			}
		}
	}
	for _, k := range []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} {
		for _, s := range k.Statuses {
			if !statuses[k.Name+" "+string(s)] {
				t.Errorf("no case has a %s whose status is %q", k.Name, s)
			}
		}
	}
	for _, s := range []resource.Status{job.Running, resource.StatusStale, resource.StatusReady} {
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
			if dir := filepath.Dir(path); dir != examples {
				path = dir
			}
			missing[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) < 5 {
		t.Errorf("%d examples, want at least 5", len(missing))
	}
	for _, c := range cases(t) {
		delete(missing, c.example())
	}
	for _, dir := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s has no case: write one whose section %s names it", dir, example)
	}
}

func TestExamplesAreFormatted(t *testing.T) {
	for _, pattern := range []string{"../examples/*.hcl", "../examples/*/*.hcl"} {
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
