package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/docs"
	"muster/spec"
)

const diagnosticsDir = "../docs/diagnostics"

var (
	diagnosticCode = regexp.MustCompile(`\bM[12]\d{3}\b`)
	diagnosticLine = regexp.MustCompile(`(?m)^(?:error|warning)\[(M\d+)\]: `)
)

// TestEveryDiagnosticHasAPage: the codes in the source and of the pages are the same.
func TestEveryDiagnosticHasAPage(t *testing.T) {
	var paged, used []string
	for _, c := range docs.Codes() {
		paged = append(paged, c.Code)
	}
	sources, err := filepath.Glob("../spec/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		if !strings.HasSuffix(file, "_test.go") {
			used = append(used, diagnosticCode.FindAllString(read(t, file), -1)...)
		}
	}
	slices.Sort(used)
	if d := cmp.Diff(paged, slices.Compact(used)); d != "" {
		t.Errorf("codes (-with a page in docs/diagnostics +in the source of spec):\n%s", d)
	}
}

// TestDiagnosticPages: what a page shows first gives its code and no other. What it shows last is valid.
func TestDiagnosticPages(t *testing.T) {
	for _, c := range docs.Codes() {
		t.Run(c.Code, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(diagnosticsDir, c.Code+".md")
			p := readPage(t, file)
			printed := p.run(t, servers.Connect())
			var codes []string
			for _, m := range diagnosticLine.FindAllStringSubmatch(strings.Join(printed, "\n"), -1) {
				codes = append(codes, m[1])
			}
			if !slices.Equal(slices.Compact(codes), []string{c.Code}) {
				t.Errorf("%s shows %v", file, codes)
			}
			last := strings.TrimSpace(printed[len(p.parts)-1])
			if !strings.HasPrefix(last, "Valid: ") || strings.Contains(last, "\n") {
				t.Errorf("%s ends with something that is not valid:\n%s", file, last)
			}
			p.checkFormatted(t, file)
			p.check(t, file, printed)
			if d := cmp.Diff(read(t, file), run(t, nil, "explain", c.Code).stdout); d != "" && !*update {
				t.Errorf("muster explain %s (-page +printed):\n%s", c.Code, d)
			}
		})
	}
}

// checkFormatted checks that the last version of each file on the page is as muster fmt writes it.
func (p page) checkFormatted(t *testing.T, file string) {
	t.Helper()
	last := map[string]part{}
	for _, s := range p.parts {
		if strings.HasSuffix(s.file, ".hcl") {
			last[s.file] = s
		}
	}
	for _, s := range last {
		formatted, diags := spec.Format([]byte(s.text), s.file)
		if d := cmp.Diff(s.text, string(formatted)); d != "" || diags.HasErrors() {
			t.Errorf("%s:%d: not as muster fmt writes it (-shown +formatted):\n%s%v", file, s.from, d, diags)
		}
	}
}

// TestIndexOfDiagnostics: docs/diagnostics.md lists exactly the codes.
func TestIndexOfDiagnostics(t *testing.T) {
	const file = diagnosticsDir + ".md"
	groups := map[string]string{
		"M10": "Files", "M11": "Syntax", "M12": "Jobs and their values", "M13": "Blocks and arguments",
		"M14": "Variables", "M15": "Expressions", "M16": "The blocks muster and zookeeper",
		"M17": "Ignored drift", "M18": "Warnings", "M19": "Groups and their duties", "M20": "Queues",
	}
	have := read(t, file)
	intro, _, _ := strings.Cut(have, "\n## ")
	var b strings.Builder
	b.WriteString(intro)
	group := ""
	for _, c := range docs.Codes() {
		if g := groups[c.Code[:3]]; g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| code | meaning |\n|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| [%s](diagnostics/%[1]s.md) | %s |\n", c.Code, c.Meaning)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(b.String(), have); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}
