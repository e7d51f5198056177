package golden

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/resource/testkind"
	"muster/spec"
)

// The sections of a case. Other files belong to its configuration.
const (
	declared = "declared.hcl"
	example  = "example"   // a folder or a file of examples, instead of a configuration
	observed = "observed"  // what was found in ZooKeeper: see facts
	diagsTxt = "diags.txt" // why the configuration is refused
	planTxt  = "plan.txt"
	planJSON = "plan.json" // optional: for a plan file that shows something new
)

// expectations are the sections that -update writes.
func expectations() []string { return []string{diagsTxt, planTxt, planJSON} }

// testCase is one file of this folder.
type testCase struct {
	name    string // of the file, without its suffix
	archive *txtar.Archive
}

// cases reads every case.
func cases(t *testing.T) []testCase {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".go" {
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			t.Errorf("%s is neither a case nor a test", e.Name())
			continue
		}
		c := readCase(t, name)
		if err := c.check(); err != nil {
			t.Errorf("%s: %v", c.file(), err)
			continue
		}
		all = append(all, c)
	}
	return all
}

const suffix = ".txtar"

func (c testCase) file() string { return c.name + suffix }

func readCase(t *testing.T, name string) testCase {
	t.Helper()
	c := testCase{name: name}
	var err error
	if c.archive, err = txtar.ParseFile(c.file()); err != nil {
		t.Fatal(err)
	}
	return c
}

// configures reports whether muster reads a file of this name without a flag.
func configures(file string) bool {
	return regexp.MustCompile(`^[\w-]+(\.auto\.vars)?\.hcl(\.json)?$`).MatchString(file)
}

// check says what is wrong with the list of sections.
func (c testCase) check() error {
	const shortest = 20
	why, _, _ := strings.Cut(string(c.archive.Comment), "\n")
	if len(strings.TrimSpace(why)) < shortest {
		return fmt.Errorf("the first line does not say why the case exists: %q", why)
	}
	known := append(expectations(), example, observed)
	seen := map[string]bool{}
	configured := false
	for _, s := range c.archive.Files {
		switch {
		case seen[s.Name]:
			return fmt.Errorf("section %s stands twice", s.Name)
		case !configures(s.Name) && !slices.Contains(known, s.Name):
			return fmt.Errorf("section %s is not known", s.Name)
		}
		seen[s.Name] = true
		configured = configured || configures(s.Name)
	}
	switch {
	case seen[example] && configured:
		return fmt.Errorf("section %s stands beside a configuration", example)
	case !seen[example] && !seen[declared]:
		return fmt.Errorf("section %s is missing, or section %s", declared, example)
	}
	return nil
}

// section returns the text of a section and whether the case has it.
func (c testCase) section(name string) (string, bool) {
	for _, s := range c.archive.Files {
		if s.Name == name {
			return string(s.Data), true
		}
	}
	return "", false
}

// example returns the folder or file of the example that the case is about; it is empty if there is none.
func (c testCase) example() string {
	text, ok := c.section(example)
	if !ok {
		return ""
	}
	return filepath.Join("..", "examples", strings.TrimSpace(text))
}

// load reads the configuration as muster does with credentials.
func (c testCase) load(t *testing.T) (*spec.Config, spec.Diagnostics) {
	t.Helper()
	o := spec.Options{Version: "0.1.0", HasCredentials: true, Now: today()}
	if dir := c.example(); dir != "" {
		return spec.Load(dir, o)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // so that diagnostics with the folder of the configuration do not differ
	defer t.Chdir(here)
	if err := os.Mkdir(c.name, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.archive.Files {
		if !configures(s.Name) {
			continue
		}
		if err := os.WriteFile(filepath.Join(c.name, s.Name), s.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return spec.Load(c.name, o)
}

func today() time.Time { return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) }

// want returns what a configuration declares. To keep plan.json short, its home is not recorded.
func want(cfg *spec.Config) plan.Want {
	return plan.Want{Stack: cfg.Stack, TakeOver: cfg.TakeOver, Declared: cfg.Declared()}
}

// have returns what was observed. As in a real run, it names the children of a job znode only if its row is blocked or
// left running, and what members have saved only if its row deletes some of it.
func (c testCase) have(t *testing.T, cfg *spec.Config) plan.State {
	t.Helper()
	text, ok := c.section(observed)
	if !ok {
		t.Fatalf("section %s is missing", observed)
	}
	have, err := readObserved(text, cfg)
	if err != nil {
		t.Fatalf("section %s: %v", observed, err)
	}
	for _, r := range plan.Diff(want(cfg), have).Rows {
		if r.Old == nil {
			continue
		}
		o := *r.Old
		if a := r.Action(); a != plan.Blocked && a != plan.LeftRunning {
			o.Members, o.Strangers = nil, nil
		}
		if len(r.Loss()) == 0 {
			o.Saved = nil
		}
		have.Found[r.Path] = o
	}
	return have
}

// outputs returns the expectations that follow from the other sections. It also checks the laws of all plans.
func (c testCase) outputs(t *testing.T) map[string]string {
	t.Helper()
	got := map[string]string{}
	cfg, diags := c.load(t)
	if len(diags) > 0 {
		var text bytes.Buffer
		if err := diags.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		got[diagsTxt] = text.String()
	}
	if cfg == nil {
		return got
	}
	have := c.have(t, cfg)
	p := plan.Diff(want(cfg), have)
	p.ID, p.Roots = "p1", cfg.Searched() // a real plan has a random id
	var text bytes.Buffer
	opts := report.Options{}
	if len(p.Changes()) > 0 {
		opts.Next = "muster apply" // as the command line prints it
	}
	if err := report.Plan(&text, p, opts); err != nil {
		t.Fatal(err)
	}
	file, err := planfile.Encode(kinds(), planfile.Saved{Created: today(), MusterVersion: "0.1.0", Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	got[planTxt], got[planJSON] = text.String(), string(file)
	checkLaws(t, want(cfg), have)
	return got
}

// differences returns the diffs between the expectations and got. A case need not have a plan.json.
func (c testCase) differences(got map[string]string) []string {
	var ds []string
	for _, name := range expectations() {
		want, kept := c.section(name)
		text, given := got[name]
		switch {
		case kept && !given:
			ds = append(ds, fmt.Sprintf("section %s: this configuration gives none", name))
		case given && !kept && name != planJSON:
			ds = append(ds, fmt.Sprintf("section %s is missing: run go test ./golden -update and read it", name))
		case kept && want != text:
			ds = append(ds, fmt.Sprintf("section %s (-want +got):\n%s", name, cmp.Diff(want, text)))
		}
	}
	if _, ok := c.section(observed); ok && got[planTxt] == "" {
		ds = append(ds, fmt.Sprintf("section %s: the configuration is refused, so nothing is observed", observed))
	}
	return ds
}

// rewritten returns the case with got as its expectations and all other sections unchanged.
func (c testCase) rewritten(got map[string]string) testCase {
	files := slices.Clone(c.archive.Files)
	for _, name := range expectations() {
		text, given := got[name]
		i := slices.IndexFunc(files, func(s txtar.File) bool { return s.Name == name })
		switch {
		case i >= 0 && given:
			files[i].Data = []byte(text)
		case i >= 0:
			files = slices.Delete(files, i, i+1)
		case given && name != planJSON:
			files = append(files, txtar.File{Name: name, Data: []byte(text)})
		}
	}
	return testCase{c.name, &txtar.Archive{Comment: c.archive.Comment, Files: files}}
}

// kinds returns the kinds that cases and tests declare.
func kinds() []resource.Kind {
	return []resource.Kind{job.Kind(), group.Kind(), queue.Kind(), testkind.Kind()}
}
