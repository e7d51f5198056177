package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/plan"
	"muster/resource/job"
)

// schemaOf compiles a schema that muster prints. A strict one also refuses keys that the schema does not describe:
// readers must accept such keys, but muster must describe all that it writes.
func schemaOf(t *testing.T, name string, strict bool) *jsonschema.Schema {
	t.Helper()
	got := run(t, nil, "schema", name)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("schema %s: %+v", name, got)
	}
	doc := parseJSON(t, []byte(got.stdout))
	if strict {
		doc = withoutExtraKeys(doc)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("muster:"+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("muster:" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withoutExtraKeys forbids undescribed keys in every object of a schema.
func withoutExtraKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = withoutExtraKeys(value)
		}
		if _, object := v["properties"].(map[string]any); object && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	case []any:
		for i := range v {
			v[i] = withoutExtraKeys(v[i])
		}
	}
	return v
}

func parseJSON(t *testing.T, text []byte) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%.500s", err, text)
	}
	return doc
}

// TestGoldenReportsFitTheSchemas checks reports with every kind of row, outcome and finding.
func TestGoldenReportsFitTheSchemas(t *testing.T) {
	for file, schema := range map[string]string{
		"../report/testdata/plan.json": "plan", "../report/testdata/nasty.json": "plan",
		"../report/testdata/apply.json": "apply", "../report/testdata/nasty_apply.json": "apply",
		"../report/testdata/drift.json": "drift",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaOf(t, schema, true).Validate(parseJSON(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	cases, err := filepath.Glob("../golden/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	plans := 0
	schema := schemaOf(t, "plan", true)
	for _, file := range cases {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range ar.Files {
			if section.Name != "plan.json" {
				continue
			}
			plans++
			if err := schema.Validate(parseJSON(t, section.Data)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if plans < 10 {
		t.Errorf("%d plans", plans)
	}
}

// TestRealOutputFitsTheSchemas runs the commands with a real server and without one.
func TestRealOutputFitsTheSchemas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, `defaults {
  labels = { team = "data" }
}`)
	file := filepath.Join(t.TempDir(), "out.json")
	for _, c := range []struct {
		schema string
		code   int
		args   []string
	}{
		{"plan", 0, []string{"plan", "--report", "json=" + file}},
		{"plan", 0, []string{"plan", "--out", file}},
		{"drift", 2, []string{"drift", "--report", "json=" + file}},
		{"apply", 0, []string{"apply", "--yes", "--report", "json=" + file}},
		{"apply", 0, []string{"apply", "--yes", "--report", "json=" + file}},
		{"drift", 0, []string{"drift", "--report", "json=" + file}},
		{"drift", 8, []string{"drift", "--servers", refusingAddr, "--report", "json=" + file}},
		{"apply", 8, []string{"apply", "--yes", "--servers", refusingAddr, "--report", "json=" + file}},
	} {
		args := append([]string{"-C", f.dir}, c.args...)
		if got := run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, args...); got.code != c.code {
			t.Fatalf("%v: %+v", c.args, got)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaOf(t, c.schema, true).Validate(parseJSON(t, text)); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, text)
		}
	}
	got := run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, "-C", f.dir, "plan", "--format", "json")
	if err := schemaOf(t, "plan", true).Validate(parseJSON(t, []byte(got.stdout))); err != nil {
		t.Errorf("plan --format json: %v", err)
	}
	got = run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, "-C", f.dir, "history", "--json")
	if err := schemaOf(t, "history", true).Validate(parseJSON(t, []byte(got.stdout))); err != nil {
		t.Errorf("history --json: %v\n%s", err, got.stdout)
	}
}

// TestSchemasNameEveryWord: the enums of the schemas are exactly the words of the program.
func TestSchemasNameEveryWord(t *testing.T) {
	words := func(name string, at ...string) []string {
		v := parseJSON(t, []byte(run(t, nil, "schema", name).stdout))
		for _, key := range append(at, "enum") {
			v = v.(map[string]any)[key]
		}
		var all []string
		for _, word := range v.([]any) {
			all = append(all, word.(string))
		}
		slices.Sort(all)
		return all
	}
	checkSame(t, "action_reason", words("plan", "$defs", "row", "properties", "action_reason"), plan.Reasons())
	checkSame(t, "kind", words("drift", "$defs", "finding", "properties", "kind"), plan.DriftKinds())
	checkSame(t, "status", words("plan", "$defs", "row", "properties", "status"), job.Kind().Statuses)
	checkSame(t, "status", words("apply", "$defs", "outcome", "properties", "status"), job.Kind().Statuses)
	checkSame(t, "status", words("drift", "$defs", "finding", "properties", "status"), job.Kind().Statuses)
}

func checkSame[T ~string](t *testing.T, what string, got []string, words []T) {
	t.Helper()
	var want []string
	for _, word := range words {
		want = append(want, string(word))
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestSchemasRefuseWhatIsNotADocument: a schema that accepts everything would pass the tests above.
func TestSchemasRefuseWhatIsNotADocument(t *testing.T) {
	for _, name := range []string{"plan", "apply", "drift", "validate"} {
		s := schemaOf(t, name, false)
		for _, text := range []string{
			`{}`, `[]`, `{"format_version":"2.0"}`,
			`{"format_version":"1.0","command":"` + name + `","muster_version":"","problems":[],"exit_code":"0"}`,
		} {
			if s.Validate(parseJSON(t, []byte(text))) == nil {
				t.Errorf("the schema of %s accepts %s", name, text)
			}
		}
	}
	if got := run(t, nil, "schema", "plna"); got.code != 64 {
		t.Errorf("got %+v", got)
	}
}
