package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/report"
)

// everyReport are the flags for a report of each kind in the bed's directory, where an older one is already.
func (b bed) everyReport(t *testing.T) []string {
	t.Helper()
	var flags []string
	for _, kind := range report.Kinds() {
		if err := os.WriteFile(filepath.Join(b.dir, "r."+kind), []byte(older), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--report", kind+"=r."+kind)
	}
	return flags
}

const older = "an older report\n"

// told fails the test unless each report was written and tells the code, and nothing else was left beside them. The json report of
// a plan that was made is a plan file and has no code.
func (b bed) told(t *testing.T, code int, texts ...string) {
	t.Helper()
	for _, kind := range report.Kinds() {
		got := read(t, filepath.Join(b.dir, "r."+kind))
		want := map[string]string{
			"json":       fmt.Sprintf("\n  \"exit_code\": %d,\n", code),
			"prometheus": fmt.Sprintf("} %d\n", code),
			"markdown":   fmt.Sprintf("(exit code %d: ", code),
			"html":       fmt.Sprintf("Exit code %d: ", code),
			"junit":      "</testsuites>\n",
			"github":     "::",
		}[kind]
		said := append([]string{want}, texts...)
		switch {
		case kind == "json" && strings.Contains(got, `"resource_changes"`):
			said = []string{`"format_version": "1.0"`}
		case kind == "prometheus":
			said = []string{want}
		}
		for _, text := range said {
			if !strings.Contains(got, text) || strings.Contains(got, older) {
				t.Errorf("the %s report does not say %q:\n%.3000s", kind, text, got)
			}
		}
	}
	b.nothingHalfWritten(t)
}

// nothingHalfWritten fails the test if a neighbour of a report was left.
func (b bed) nothingHalfWritten(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(b.dir, ".*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

// commandsOfReports are those that write any, each with something to find.
var commandsOfReports = map[string][]string{
	"plan": {"plan", "--detailed-exitcode"}, "apply": {"apply", "--yes", "--detailed-exitcode", "--parallel", "1"}, "drift": {"drift"},
}
