package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"muster/report"
)

// reportFlags returns the flags for a report of each kind. It writes an older file in the place of each.
func (f fixture) reportFlags(t *testing.T) []string {
	t.Helper()
	var flags []string
	for _, kind := range report.Formats() {
		write(t, filepath.Join(f.dir, "r."+kind), olderReport)
		flags = append(flags, "--report", kind+"=r."+kind)
	}
	return flags
}

const olderReport = "an older report\n"

// checkReports checks that each report was written and has the code and the texts, and that there are no temporary
// files. The JSON report of a plan is a plan file, which has neither.
func (f fixture) checkReports(t *testing.T, code int, texts ...string) {
	t.Helper()
	for _, kind := range report.Formats() {
		got := read(t, filepath.Join(f.dir, "r."+kind))
		want := map[string]string{
			"json":       fmt.Sprintf("\n  \"exit_code\": %d,\n", code),
			"prometheus": fmt.Sprintf("} %d\n", code),
			"markdown":   fmt.Sprintf("(exit code %d: ", code),
			"html":       fmt.Sprintf("Exit code %d: ", code),
			"junit":      "</testsuites>\n",
			"github":     "::",
		}[kind]
		contains := append([]string{want}, texts...)
		switch {
		case kind == "json" && strings.Contains(got, `"resource_changes"`):
			contains = []string{`"format_version": "1.0"`}
		case kind == "prometheus":
			contains = []string{want}
		}
		for _, text := range contains {
			if !strings.Contains(got, text) || strings.Contains(got, olderReport) {
				t.Errorf("the %s report does not say %q:\n%.3000s", kind, text, got)
			}
		}
	}
	f.checkNoTempFiles(t)
}

// checkNoTempFiles checks that no temporary file was left beside the reports.
func (f fixture) checkNoTempFiles(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(f.dir, ".*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

// reportingCommands maps the commands that write reports to arguments with which they find something.
var reportingCommands = map[string][]string{
	"plan":  {"plan", "--detailed-exitcode"},
	"apply": {"apply", "--yes", "--detailed-exitcode", "--parallel", "1"},
	"drift": {"drift"},
}
