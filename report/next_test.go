package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/report"
)

// TestPasteRepeatsWhatWasGiven: a command in a next step has what the user gave right behind its name, and nothing else
// in the step changes.
func TestPasteRepeatsWhatWasGiven(t *testing.T) {
	given := report.Given{
		"apply":     {Words: "-C prod"},
		"terminate": {Words: "-C prod --servers zk:2181", Root: "--root /jobs/prod"},
		"state":     {},
		"state rm":  {Words: "-C prod"},
		"worker":    {Words: "--servers zk:2181", Root: "--root /jobs/prod"},
	}
	for step, want := range map[string]string{
		"muster apply": "muster apply -C prod",
		"muster terminate report && muster apply, or apply again after the run": "muster terminate -C prod --servers " +
			"zk:2181 --root /jobs/prod report && muster apply -C prod, or apply again after the run",
		"muster apply; muster apply":           "muster apply -C prod; muster apply -C prod",
		"(muster apply makes it)":              "(muster apply -C prod makes it)",
		"muster state rm KEY":                  "muster state rm -C prod KEY",
		"muster state":                         "muster state",
		"muster terminate /jobs/a":             "muster terminate -C prod --servers zk:2181 /jobs/a",
		"muster terminate '/jobs/a b'":         "muster terminate -C prod --servers zk:2181 '/jobs/a b'",
		"muster worker --job a --root /r -- C": "muster worker --servers zk:2181 --job a --root /r -- C",
		"muster worker a; --root /r":           "muster worker --servers zk:2181 --root /jobs/prod a; --root /r",
		"muster apply --help":                  "muster apply --help",
		"muster dance; mustered apply":         "muster dance; mustered apply",
		"another muster applies it":            "another muster applies it",

		// A name is never taken for a command.
		"muster apply 'x; muster apply'":      "muster apply -C prod 'x; muster apply'",
		`muster apply 'it'\''s muster apply'`: `muster apply -C prod 'it'\''s muster apply'`,
		"it's; muster apply":                  "it's; muster apply -C prod",
		"":                                    "",
	} {
		if d := cmp.Diff(want, given.Paste(step)); d != "" {
			t.Errorf("%q (-want +got):\n%s", step, d)
		}
	}
	if got := report.Given(nil).Paste("muster apply"); got != "muster apply" {
		t.Errorf("nothing was given, and it became %q", got)
	}
}

// TestStepLinesKeepCommandsWhole: a step that does not fit has a line for each thing that can be done.
func TestStepLinesKeepCommandsWhole(t *testing.T) {
	const long = "muster terminate -C somewhere/far/away --servers zk-1:2181,zk-2:2181 report && muster apply"
	for step, want := range map[string][]string{
		"muster apply":             {"muster apply"},
		long:                       {long},
		long + ", or apply again":  {long, "or apply again"},
		"ask; " + long + " 'a; b'": {"ask", long + " 'a; b'"},
		long + ";":                 {long},
		"a, b, or c: " + long:      {"a, b", "or c: " + long},
		"declare it with protect = false, apply, and then remove the declaration again": {
			"declare it with protect = false, apply, and then remove the declaration again",
		},
	} {
		if d := cmp.Diff(want, report.StepLines(step, 60)); d != "" {
			t.Errorf("%q (-want +got):\n%s", step, d)
		}
	}
}
