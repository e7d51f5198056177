package golden

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/spec"
)

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
		"unlisted: [/jobs]":                 `key "unlisted" is not the path of a znode`,
		"/jobs/a: {joind: 4}":               "field joind not found",
		"/jobs/a: {record: {wrokers: 4}}":   `/jobs/a: record: json: unknown field "wrokers"`,
		"/jobs/a: {record: {name: b}}":      "/jobs/a: record: its path is /jobs/b",
		"/jobs/gone: {joined: 4}":           "/jobs/gone: record: workers: 0 is not between",
		"/jobs/a: {}\n/jobs/a: {joined: 4}": `"/jobs/a" already defined`,

		"/apps/shop: {record: {workers: 4}}":                `/apps/shop: record: json: unknown field "workers"`,
		"/apps/shop: {record: {leader: {main: {keep: 1}}}}": `/apps/shop: record: json: unknown field "keep"`,
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
	return &spec.Config{Stack: "etl", Jobs: []job.Job{j}, Groups: []group.Group{g}}
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
	recorded := cfg.Jobs[0]
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
	if d := cmp.Diff(map[string]string{"team": "data"}, cfg.Jobs[0].Labels); d != "" {
		t.Errorf("the declaration was changed (-was +is):\n%s", d)
	}
}

// TestUpdateRewritesExpectationsOnly: other sections stay as they are, and no plan.json is added.
func TestUpdateRewritesExpectationsOnly(t *testing.T) {
	const written = why + "\nMore of why.\n-- declared.hcl --\n\nmuster {\n-- observed --\n# a comment\n/jobs/a: {}\n"
	for _, c := range []struct{ before, after, diags, plan, file string }{
		{"", "-- plan.txt --\nnew\n", "", "new\n", "{}\n"},
		{"-- plan.json --\n-- plan.txt --\nold\n", "-- plan.json --\n{}\n-- plan.txt --\nnew\n", "", "new\n", "{}\n"},
		{"-- plan.txt --\nold\n-- plan.json --\n{}\n", "-- diags.txt --\nerror\n", "error\n", "", ""},
	} {
		got := map[string]string{diagsTxt: c.diags, planTxt: c.plan, planJSON: c.file}
		maps.DeleteFunc(got, func(_, text string) bool { return text == "" })
		is := testCase{"a", txtar.Parse([]byte(written + c.before))}.rewritten(got)
		if d := cmp.Diff(written+c.after, string(txtar.Format(is.archive))); d != "" {
			t.Errorf("the case (-want +got):\n%s", d)
		}
	}
}
