package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/spec"
)

// deep is a text that is so many levels deep.
func deep(levels int, before, each, after string) string {
	return before + strings.Repeat(each, levels) + after
}

// patient is for what may take its time on a busy machine.
func patient() spec.Options {
	return spec.Options{HasCredentials: true, Limits: spec.Limits{Time: time.Hour, Memory: 1 << 40}}
}

// TestDeepBrackets: brackets that are nested too deeply are found before the parser meets them, however they are
// hidden.
func TestDeepBrackets(t *testing.T) {
	const levels = 20_000 // twenty times the limit
	for name, text := range map[string]string{
		"list.hcl":      deep(levels, "locals {\n  x = ", "[", "\n}\n"),
		"call.hcl":      deep(levels, "locals {\n  x = ", "abs(", "\n}\n"),
		"object.hcl":    deep(levels, "locals {\n  x = ", "{x=", "\n}\n"),
		"comment.hcl":   deep(levels, "locals {\n  x = ", "[/*]*/", "\n}\n"),
		"line.hcl":      deep(levels, "locals {\n  x = ", "[ // ]\n", "\n}\n"),
		"string.hcl":    deep(levels, "locals {\n  x = ", "[\"]\",", "\n}\n"),
		"heredoc.hcl":   deep(levels, "locals {\n  x = ", "[<<E\n]\nE\n,", "\n}\n"),
		"escape.hcl":    deep(levels, "locals {\n  x = ", `["$${]",`, "\n}\n"),
		"nested.hcl":    deep(levels, "locals {\n  x = ", `"${`, "\n}\n"),
		"blocks.hcl":    deep(levels, "", "a {\n", ""),
		"brackets.json": deep(levels, `{"locals": {"x": `, "[", "}}"),
		"strings.json":  deep(levels, `{"locals": {"x": `, `["]",`, "}}"),
		"template.json": deep(levels, `{"locals": {"x": "${`, "(", `1}"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.Replace(name, ".json", ".hcl.json", 1)
			ds := findings(t, name, text, patient())
			if len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("%d findings, the first: %.300v", len(ds), first(ds))
			}
			if _, ds := spec.Format([]byte(text), name); len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("Format: %d findings, the first: %.300v", len(ds), first(ds))
			}
		})
	}
}

func first(ds spec.Diagnostics) any {
	if len(ds) == 0 {
		return "none"
	}
	return ds[0].Code + " " + ds[0].Summary
}

// TestDeepInput: the same for values from outside of the configuration.
func TestDeepInput(t *testing.T) {
	variable := "variable \"v\" {\n  type = list(any)\n}\n"
	value := strings.Repeat("[", 20_000)
	o := spec.Options{Vars: []spec.VarInput{{Flag: "v=" + value}}, Limits: patient().Limits}
	ds := findings(t, "v.hcl", variable, o)
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("--var: %.300v", first(ds))
	}
	path := filepath.Join(t.TempDir(), "x.vars.hcl")
	if err := os.WriteFile(path, []byte("v = "+value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ds = findings(t, "v.hcl", variable, spec.Options{Vars: []spec.VarInput{{File: path}}, Limits: patient().Limits})
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("--var-file: %.300v", first(ds))
	}
}

// TestNotDeep: what only looks deep is accepted: brackets in texts and comments, and many things beside one another.
func TestNotDeep(t *testing.T) {
	repeat := func(format string) string {
		var b strings.Builder
		for i := range 3_000 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"texts.hcl": repeat("job \"j%d\" {\n  workers = 1 + 1\n  labels = { note = \"see (OPS-1\" } # ([{\n}\n"),
		"rule.hcl": "# " + strings.Repeat("-", 20_000) + "\n" +
			"/*" + strings.Repeat("*[", 20_000) + "*/\n" + repeat("# %d (\n"),
		"object.hcl":   "locals {\n  x = {\n" + repeat("    k%d : 1 - 1\n") + "  }\n}\n",
		"lists.hcl":    "locals {\n" + repeat("  x%d = [1, -2]\n") + "}\n",
		"template.hcl": "locals {\n  x = \"" + repeat("${-%d}%%{ if true }a%%{ else }b%%{ endif }") + "\"\n}\n",
		"heredoc.hcl":  "locals {\n  x = <<EOT\n" + strings.Repeat("((( -- [ {\n", 10_000) + "EOT\n}\n",
		"minus.hcl":    "locals {\n  x = " + strings.Repeat("- ", 9_000) + "1\n}\n",
		"plus.hcl":     "locals {\n  x = 1" + strings.Repeat(" + 1", 9_000) + "\n}\n",
		"choice.hcl":   "locals {\n  x = " + strings.Repeat("true ? 1 : ", 9_000) + "1\n}\n",
		"nested.hcl":   "locals {\n  x = " + strings.Repeat("[", 990) + strings.Repeat("]", 990) + "\n}\n",
		"text.json": `{"locals": {"x": "` + strings.Repeat("((( -- [ {", 10_000) +
			`", "y": [` + repeat(`[], "${-%d}", `) + `1]}}`,
		"lines.hcl": strings.Repeat("\n", 200_000),
	} {
		name := strings.Replace(name, ".json", ".hcl.json", 1)
		if ds := findings(t, name, text, patient()); len(ds) > 0 {
			t.Errorf("%s: %d findings, the first: %.300v", name, len(ds), first(ds))
		}
	}
}
