package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/spec"
)

// TestTooDeep: no text exhausts the stack of the parser or of the evaluation, however its depth is made or hidden. Without
// the limit each of these would end the process.
func TestTooDeep(t *testing.T) {
	deep := func(a, b, c string) string { return a + strings.Repeat(b, 100_000) + c }
	template := "locals {\n  x = \"%s\"\n}\n"
	for name, text := range map[string]string{
		"minus.hcl":       deep("locals {\n  x = ", "-", "1\n}\n"),
		"not.hcl":         deep("locals {\n  x = ", "! ", "true\n}\n"),
		"lines.hcl":       deep("locals {\n  x = {for k, v in {} : k =>\n", "-\n", "1}\n}\n"),
		"plus.hcl":        deep("locals {\n  x = 1", "+1", "\n}\n"),
		"conditional.hcl": deep("locals {\n  x = ", "true ? 1 : ", "1\n}\n"),
		"index.hcl":       deep("locals {\n  x = local.y", "[local.z]", "\n}\n"),
		"splat.hcl":       deep("locals {\n  x = local.y", "[*]", "\n}\n"),
		"scoped.hcl":      deep("locals {\n  x = a", "::a", "(1)\n}\n"),
		"comment.hcl":     deep("locals {\n  x = ", "[/*]*/", "\n}\n"),
		"line.hcl":        deep("locals {\n  x = ", "[ // ]\n", "\n}\n"),
		"string.hcl":      deep("locals {\n  x = ", "[\"]\",", "\n}\n"),
		"heredoc.hcl":     deep("locals {\n  x = ", "[<<E\n]\nE\n,", "\n}\n"),
		"escape.hcl":      deep("locals {\n  x = ", `["$${]",`, "\n}\n"),
		"nested.hcl":      deep("locals {\n  x = ", `"${`, "\n}\n"),
		"if.hcl":          fmt.Sprintf(template, deep("", "%{ if true }", "")),
		"for.hcl":         fmt.Sprintf(template, deep("", "%{~ for x in [1] }a%{ endif }", "")),
		"mismatch.hcl":    deep("locals {\n  x = ", "[)", "\n}\n"),
		"blocks.hcl":      deep("", "a {\n", ""),
		"brackets.json":   deep(`{"locals": {"x": `, "[", "}}"),
		"strings.json":    deep(`{"locals": {"x": `, `["]",`, "}}"),
		"template.json":   deep(`{"locals": {"x": "${`, "-", `1}"}}`),
		"escaped.json":    deep(`{"locals": {"x": "${`, `\u005b`, `}"}}`),
		"type.json":       deep(`{"variable": {"x": {"type": "`, "list(", `"}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.Replace(name, ".json", ".hcl.json", 1)
			ds := findings(t, name, text, spec.Options{})
			if len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("%d findings, the first: %.300v", len(ds), first(ds))
			}
			if strings.HasPrefix(name, "type") {
				return // for Format it is a string
			}
			if _, ds := spec.Format([]byte(text), name); len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("Format: %d findings, the first: %.300v", len(ds), first(ds))
			}
		})
	}
}

// TestTooDeepValue: the same for values from outside of the configuration.
func TestTooDeepValue(t *testing.T) {
	t.Parallel()
	variable := "variable \"v\" {\n  type = list(any)\n}\n"
	for _, value := range []string{strings.Repeat("[", 120_000), "[" + strings.Repeat("-", 120_000) + "1]"} {
		ds := findings(t, "v.hcl", variable, spec.Options{Vars: []spec.VarInput{{Flag: "v=" + value}}})
		if len(ds) != 1 || ds[0].Code != "M1005" {
			t.Errorf("--var: %.300v", first(ds))
		}
		path := filepath.Join(t.TempDir(), "x.vars.hcl")
		if err := os.WriteFile(path, []byte("v = "+value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ds = findings(t, "v.hcl", variable, spec.Options{Vars: []spec.VarInput{{File: path}}})
		if len(ds) != 1 || ds[0].Code != "M1005" {
			t.Errorf("--var-file: %.300v", first(ds))
		}
	}
}

// TestNotTooDeep: what only looks deep is accepted: brackets in texts and comments, and many things beside one another.
func TestNotTooDeep(t *testing.T) {
	t.Parallel()
	repeat := func(format string) string {
		var b strings.Builder
		for i := range 12_000 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"texts.hcl":    repeat("job \"j%d\" {\n  workers = 1 + 1\n  labels = { note = \"see (OPS-1\" } # ([{\n}\n"),
		"indented.hcl": repeat("  job \"j%d\" {\n    workers = 1 + 1\n    labels = { note = \"see (OPS-1\" } # ([{\n    }\n"),
		"rule.hcl":     "# " + strings.Repeat("-", 20_000) + "\n/*" + strings.Repeat("*[", 20_000) + "*/\n" + repeat("# %d (\n"),
		"object.hcl":   "locals {\n  x = {\n" + repeat("    k%d : 1 - 1\n") + "  }\n}\n",
		"lists.hcl":    "locals {\n" + repeat("  x%d = [1, -2]\n") + "}\n",
		"template.hcl": "locals {\n  x = \"" + repeat("${-%d}") + strings.Repeat("%{ if true }a%{ endif }", 450) + "\"\n}\n",
		"heredoc.hcl":  "locals {\n  x = <<EOT\n" + strings.Repeat("((( -- [ {\n", 10_000) + "EOT\n}\n",
		"minus.hcl":    "locals {\n  x = " + strings.Repeat("- ", 900) + "1\n}\n",
		"plus.hcl":     "locals {\n  x = 1" + strings.Repeat(" + 1", 900) + "\n}\n",
		"choice.hcl":   "locals {\n  x = " + strings.Repeat("true ? 1 : ", 450) + "1\n}\n",
		"nested.hcl":   "locals {\n  x = " + strings.Repeat("[", 900) + strings.Repeat("]", 900) + "\n}\n",
		"text.json":    `{"locals": {"x": "` + strings.Repeat("((( -- [ {", 10_000) + `", "y": [` + repeat(`[], "${-%d}", `) + `1]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := strings.Replace(name, ".json", ".hcl.json", 1)
			if ds := findings(t, name, text, spec.Options{HasCredentials: true}); len(ds) > 0 {
				t.Errorf("%d findings, the first: %.300v", len(ds), first(ds))
			}
		})
	}
}
