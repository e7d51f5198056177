package spec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"muster/docs"
	"muster/spec"
)

func rejected(t *testing.T, files map[string]string) spec.Diagnostics {
	t.Helper()
	c, ds := spec.Load(write(t, files), spec.Options{})
	if c != nil {
		t.Fatal("accepted")
	}
	return ds
}

// TestJSONForm pins the fields that tools read.
func TestJSONForm(t *testing.T) {
	ds := rejected(t, map[string]string{
		"a.hcl": head + "variable \"n\" {\n  type = number\n}\njob \"a\" {\n  workers = var.n / 2\n" +
			"}\n", "a.auto.vars.hcl": "n = 3\n",
	})
	var b strings.Builder
	if err := ds.JSON(&b); err != nil {
		t.Fatal(err)
	}
	want := `{
  "format_version": "1.0",
  "valid": false,
  "error_count": 1,
  "warning_count": 0,
  "diagnostics": [
    {
      "severity": "error",
      "code": "M1203",
      "summary": "workers must be a whole number from 1 to 20000",
      "in": "job \"a\"",
      "range": {
        "filename": "a.hcl",
        "start": {
          "line": 8,
          "column": 13,
          "byte": 82
        },
        "end": {
          "line": 8,
          "column": 22,
          "byte": 91
        }
      },
      "snippet": {
        "code": "  workers = var.n / 2",
        "highlight_start_offset": 12,
        "highlight_end_offset": 21
      },
      "note": "this is 1.5",
      "values": [
        {
          "traversal": "var.n",
          "statement": "is 3",
          "from": "a.auto.vars.hcl:1"
        }
      ],
      "help": "wrap it: ceil(var.n / 2)"
    }
  ]
}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	b.Reset()
	err := (spec.Diagnostics)(nil).JSON(&b)
	if err != nil || !json.Valid([]byte(b.String())) || !strings.Contains(b.String(), `"diagnostics": []`) {
		t.Errorf("of nothing: %s %v", b.String(), err)
	}
}

// TestColour: colour adds escapes and changes nothing else.
func TestColour(t *testing.T) {
	ds := rejected(t, map[string]string{"a.hcl": head + "job \"a\" {\n  workers = 0\n}\njob \"a\" {\n" +
		"  workers = 1\n}\n"})
	var plain, colour strings.Builder
	if err := ds.Text(&plain, false); err != nil {
		t.Fatal(err)
	}
	if err := ds.Text(&colour, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colour.String(), "\x1b[") {
		t.Errorf("plain %q, colour %q", plain.String(), colour.String())
	}
	stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colour.String(), "")
	if d := cmp.Diff(plain.String(), stripped); d != "" {
		t.Errorf("without the escapes (-plain +colour):\n%s", d)
	}
}

// TestNothingSteersTheTerminal: not from sources, names, values or file names.
func TestNothingSteersTheTerminal(t *testing.T) {
	evil := "\x1b]0;x\x07\u202e\u009b31m\x7f\r"
	ds := rejected(t, map[string]string{
		"a" + evil + ".hcl": head + "variable \"n" + evil + "\" {\n}\n# " + evil + "\njob \"a" + evil + "\" {\n" +
			"  workers = \"" + evil + "\" /* " + evil + " */\n}\n",
		"x.auto.vars.hcl": "n = \"" + evil + "\" " + evil + "\n",
	})
	var b strings.Builder
	if err := ds.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexAny(b.String(), "\x1b\x07\u202e\u009b\x7f\r"); i >= 0 || len(ds) == 0 {
		t.Errorf("%q", b.String())
	}
}

// TestLongLines: a generated file with everything on one line is shown in part.
func TestLongLines(t *testing.T) {
	ds := rejected(t, map[string]string{
		"a.hcl": head, "b.hcl.json": `{"locals": {"x": "` + strings.Repeat("x", 5000) +
			`"}, "job": {"a": {"workers": 0, "name": "` + strings.Repeat("n", 5000) + `"}}}`,
	})
	var b strings.Builder
	if err := ds.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 300 {
			t.Errorf("%d bytes: %.80s", len(line), line)
		}
	}
}

// TestCodes: the table is sorted, every code in it is shown by a case or a test of this package, and every code that a
// case shows is in it.
func TestCodes(t *testing.T) {
	known := map[string]bool{}
	var codes []string
	for _, c := range docs.Codes() {
		known[c.Code] = true
		codes = append(codes, c.Code)
		if c.Meaning == "" || known[c.Meaning] {
			t.Errorf("%s means %q", c.Code, c.Meaning)
		}
		known[c.Meaning] = true
	}
	if !slices.IsSorted(codes) || len(slices.Compact(slices.Clone(codes))) != len(codes) {
		t.Errorf("codes %v", codes)
	}
	files, _ := filepath.Glob("testdata/*/*.txtar")
	tests, _ := filepath.Glob("*_test.go")
	shown := map[string]bool{}
	for _, name := range append(files, tests...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`\bM[12][0-9]{3}\b`).FindAllString(string(text), -1) {
			shown[code] = true
			if !known[code] {
				t.Errorf("%s shows %s, which is not in the table", name, code)
			}
		}
	}
	for _, code := range codes {
		if !shown[code] {
			t.Errorf("nothing shows %s", code)
		}
	}
}

// TestLongLine: what a finding shows of a line is bounded, for a generated file can be one line with many findings.
func TestLongLine(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"job": {"x": {"workers": 1}`)
	for i := range 450 {
		fmt.Fprintf(&b, `, "é%d": {"workers": "é"}`, i)
	}
	ds := findings(t, "x.hcl.json", b.String()+"}}", spec.Options{})
	if len(ds) < 900 {
		t.Fatalf("%d findings", len(ds))
	}
	for _, d := range ds {
		if s := d.Snippet; s == nil || len(s.Code) > 3000 || !utf8.ValidString(s.Code) || s.Code[s.Start:s.End] == "" {
			t.Fatalf("%+v", d)
		}
	}
}

// TestNoLineIsForged: neither a name nor a source line makes a line that looks like a finding of its own, or that a
// pipeline takes for a command.
func TestNoLineIsForged(t *testing.T) {
	const forged = "a\nerror[M9999]: forged\n::set-output name=x::y"
	dir := t.TempDir()
	files := map[string]string{
		forged + ".hcl": "x\n",
		"b.hcl":         "locals {\n  x = nofunction(\"##vso[task.complete]\", \"##[error]\") ## text\n}\n",
		"c.hcl":         "job \"a\\nerror[M9998]: forged\" {\n  workers = 0\n}\n",
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, forged+".vars.hcl"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, ds := spec.Load(dir, spec.Options{Vars: []spec.VarInput{{File: filepath.Join(dir, forged+".vars.hcl")}}})
	var b strings.Builder
	if err := ds.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.HasPrefix(line, "error[M999") || strings.HasPrefix(strings.TrimSpace(line), "::") ||
			strings.Contains(line, "##vso[") || strings.Contains(line, "##[") {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(b.String(), ") ## text") {
		t.Errorf("a comment is not shown as it is:\n%s", b.String())
	}
}
