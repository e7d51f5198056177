// Package golden holds cases: a configuration and what was observed in ZooKeeper, with the plan as text, or with the
// diagnostics if the configuration is refused. A case is one file, <case>.txtar, named after the behaviour that it
// shows. docs/testing.md says how to add one. The package holds tests only.
package golden

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

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
	return plan.Want{Stack: cfg.Stack, TakeOver: cfg.TakeOver, Declared: cfg.Declared}
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
			o.Members, o.Strangers, o.Results = nil, nil, nil
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

const (
	why  = "A line that says why this case exists.\n"
	head = why + "-- declared.hcl --\n"
)

// TestSectionsThatAreRefused: a case with a wrong section fails, and the message names the section.
func TestSectionsThatAreRefused(t *testing.T) {
	got := map[string]string{planTxt: "the plan\n", planJSON: "{}\n"}
	for name, c := range map[string]struct {
		text string
		got  map[string]string
		want string
	}{
		"no_why":             {"Short.\n-- declared.hcl --\n", nil, "the first line does not say why the case exists"},
		"unknown":            {head + "-- observed.json --\n", nil, "section observed.json is not known"},
		"variables_unread":   {head + "-- prod.vars.hcl --\n", nil, "section prod.vars.hcl is not known"},
		"twice":              {head + "-- declared.hcl --\n", nil, "section declared.hcl stands twice"},
		"nothing_declared":   {why + "-- observed --\n", nil, "section declared.hcl is missing, or section example"},
		"declared_twice":     {head + "-- example --\none-job.hcl\n", nil, "section example stands beside a configuration"},
		"no_plan":            {head + "-- observed --\n", got, "section plan.txt is missing: run"},
		"no_diagnostics":     {head, map[string]string{diagsTxt: "error\n"}, "section diags.txt is missing: run"},
		"plan_of_a_refusal":  {head + "-- plan.txt --\n", nil, "section plan.txt: this configuration gives none"},
		"other_plan":         {head + "-- plan.txt --\nold\n", got, "section plan.txt (-want +got):"},
		"refused_and_found":  {head + "-- observed --\n", nil, "section observed: the configuration is refused"},
		"other_file_of_plan": {head + "-- plan.txt --\nthe plan\n-- plan.json --\n", got, "section plan.json (-want"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := testCase{name, txtar.Parse([]byte(c.text))}
			got := strings.Join(refused.differences(c.got), "\n")
			if err := refused.check(); err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestFactsThatAreRefused: the message names the key, and the path if there is one.
func TestFactsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"jobs/a: {}":                        `key "jobs/a" is not the path of a znode`,
		"unlisted: {}":                      `key "unlisted" is not the path of a znode`,
		"/jobs/a: {joind: 4}":               `unknown field "joind"`,
		"/jobs/a: {record: {wrokers: 4}}":   `/jobs/a: record: unknown field "wrokers"`,
		"/jobs/a: {record: {name: b}}":      "/jobs/a: record: its path is /jobs/b",
		"/jobs/gone: {joined: 4}":           "/jobs/gone: record: workers: 0 is not between",
		"/jobs/a: {}\n/jobs/a: {joined: 4}": `"/jobs/a" already defined`,

		"/apps/shop: {record: {workers: 4}}":                `/apps/shop: record: unknown field "workers"`,
		"/apps/shop: {record: {leader: {main: {keep: 1}}}}": `/apps/shop: record: unknown field "keep"`,
		"/apps/shop: {record: {cron: {main: {}}}}":          "/apps/shop: record: cron.main.schedule: it is empty",
		"/apps/x: {kind: lamp}":                             `/apps/x: record: the kind "lamp" is not known`,
	} {
		if _, err := readObserved(text, oneJob()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// oneJob declares /jobs/a, and the group /apps/shop.
func oneJob() *spec.Config {
	j := job.Default()
	j.Name, j.Root, j.Address, j.At, j.Workers = "a", "/jobs", "job.a", "declared.hcl:6", 4
	j.Labels = map[string]string{"team": "data"}
	g := group.Default()
	g.Name, g.Root, g.Address = "shop", "/apps", "group.shop"
	g.Add(group.NewDuty(group.Leader, "main"))
	return &spec.Config{Stack: "etl", Declared: []resource.Declaration{j, g}}
}

// TestFactsThatAreLeftOut have their defaults: a path without facts is a job as declared, with the right digest.
func TestFactsThatAreLeftOut(t *testing.T) {
	cfg := oneJob()
	observe := func(text string) resource.Observed {
		have, err := readObserved(text, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return have.Found["/jobs/a"]
	}
	o := observe("/jobs/a:")
	recorded := spec.Of[job.Job](cfg)[0]
	recorded.At = ""
	if d := cmp.Diff(recorded, job.Of(o.Record)); d != "" {
		t.Errorf("the recorded job (-declared +recorded):\n%s", d)
	}
	if o.Status() != resource.StatusReady || o.Record.Stack != "etl" || o.Record.Edited() {
		t.Errorf("%+v is not a ready job of the stack etl", o)
	}
	if !observe("/jobs/a: {edited: true}").Record.Edited() {
		t.Error("a record that was edited verifies")
	}
	if o := observe("/jobs/a: {joined: 4, live: 2, strangers: [notes]}"); len(o.Members) != 2 || o.Live != 3 {
		t.Errorf("two workers and a stranger are %+v", o)
	}
	observe("/jobs/a: {record: {labels: {env: prod}}}")
	if d := cmp.Diff(map[string]string{"team": "data"}, spec.Of[job.Job](cfg)[0].Labels); d != "" {
		t.Errorf("the declaration was changed (-was +is):\n%s", d)
	}
}
