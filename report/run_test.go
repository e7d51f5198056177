package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

var update = flag.Bool("update", false, "rewrite the expected reports in testdata")

func extension(kind string) string {
	switch kind {
	case "junit":
		return "xml"
	case "markdown":
		return "md"
	case "prometheus":
		return "prom"
	}
	return kind
}

func TestReportsAreAsRecorded(t *testing.T) {
	for name, r := range runs() {
		for _, kind := range report.Kinds() {
			t.Run(name+"_"+kind, func(t *testing.T) {
				got := makeReport(t, r, kind)
				file := filepath.Join("testdata", name+"."+extension(kind))
				if *update {
					if err := os.WriteFile(file, got, 0o666); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(string(want), string(got)); d != "" {
					t.Errorf("report (-want +got); -update rewrites it:\n%s", d)
				}
				if again := makeReport(t, runs()[name], kind); !bytes.Equal(got, again) {
					t.Error("a second report of the same run is another")
				}
			})
		}
	}
}

func makeReport(t *testing.T, r report.Run, kind string) []byte {
	t.Helper()
	b, err := r.Make(kind)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnknownKind(t *testing.T) {
	if _, err := planRun().Make("pdf"); err == nil || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("error = %v", err)
	}
}

func TestReportsHoldNoControlCharacters(t *testing.T) {
	for name, r := range runs() {
		for _, kind := range report.Kinds() {
			for i, c := range string(makeReport(t, r, kind)) {
				if c < 0x20 && c != '\n' || c >= 0x7f && c < 0xa0 || c == '\u202e' || c == '\ufffd' {
					t.Errorf("%s %s: %q at byte %d", name, kind, c, i)
				}
			}
		}
	}
}

func TestJUnitIsXMLAndItsCountsAreRight(t *testing.T) {
	type counts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	want := map[string]counts{
		"plan": {20, 1, 0, 0}, "apply": {20, 2, 0, 1}, "drift": {12, 5, 0, 2}, "failed": {1, 0, 1, 0},
	}
	for name, r := range runs() {
		body := makeReport(t, r, "junit")
		var doc struct {
			counts
			Suites []struct {
				counts
				Cases []struct {
					Failure []string `xml:"failure"`
					Error   []string `xml:"error"`
					Skipped []string `xml:"skipped"`
				} `xml:"testcase"`
			} `xml:"testsuite"`
		}
		dec := xml.NewDecoder(bytes.NewReader(body))
		if err := dec.Decode(&doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rest := body[dec.InputOffset():]; string(rest) != "\n" {
			t.Errorf("%s: something follows the document: %q", name, rest)
		}
		var sum counts
		for _, s := range doc.Suites {
			var suite counts
			for _, c := range s.Cases {
				suite.Tests++
				suite.Failures += len(c.Failure)
				suite.Errors += len(c.Error)
				suite.Skipped += len(c.Skipped)
			}
			if suite != s.counts {
				t.Errorf("%s: a suite says %+v and has %+v", name, s.counts, suite)
			}
			sum.Tests += suite.Tests
			sum.Failures += suite.Failures
			sum.Errors += suite.Errors
			sum.Skipped += suite.Skipped
		}
		if sum != doc.counts {
			t.Errorf("%s: the document says %+v and has %+v", name, doc.counts, sum)
		}
		if w, ok := want[name]; ok && doc.counts != w {
			t.Errorf("%s: %+v, want %+v", name, doc.counts, w)
		}
	}
}

// TestPrometheusFormat reads the metrics as node-exporter's textfile collector does.
func TestPrometheusFormat(t *testing.T) {
	for name, r := range runs() {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(makeReport(t, r, "prometheus")))
		if err != nil || len(families) < 5 {
			t.Errorf("%s: %d families, %v", name, len(families), err)
		}
		for _, f := range families {
			if f.GetHelp() == "" || f.GetType() != dto.MetricType_GAUGE {
				t.Errorf("%s: %s is a %s, help %q", name, f.GetName(), f.GetType(), f.GetHelp())
			}
			series := map[string]bool{}
			for _, m := range f.Metric {
				labels := ""
				for _, l := range m.Label {
					labels += fmt.Sprintf("%s=%q,", l.GetName(), l.GetValue())
				}
				if series[labels] || m.TimestampMs != nil {
					t.Errorf("%s: %s{%s} comes twice, or with a time", name, f.GetName(), labels)
				}
				series[labels] = true
			}
		}
	}
}

func TestGitHubAnnotations(t *testing.T) {
	command := regexp.MustCompile(`^::(error|warning|notice) (file=[^:,]+,(line=\d+,)?)?title=[^:,]*::`)
	for name, r := range runs() {
		perKind := map[string]int{}
		for line := range strings.Lines(string(makeReport(t, r, "github"))) {
			m := command.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: not an annotation: %q", name, line)
				continue
			}
			perKind[m[1]]++
		}
		for kind, n := range perKind {
			if n > 10 {
				t.Errorf("%s: %d annotations of kind %s; GitHub shows 10", name, n, kind)
			}
		}
	}
}

// TestPageIsSelfContained: a browser fetches nothing else. The link to the run of the pipeline is only followed by who
// clicks on it.
func TestPageIsSelfContained(t *testing.T) {
	link := regexp.MustCompile(`<a href="https://ci\.example/[^"]*" rel="noreferrer">`)
	outside := regexp.MustCompile(`(?i)\b(src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttp`)
	for name, r := range runs() {
		page := link.ReplaceAllString(string(makeReport(t, r, "html")), "")
		if at := outside.FindString(page); at != "" {
			t.Errorf("%s: the page refers to something outside: %s", name, at)
		}
		if n := strings.Count(page, "<script"); n > 1 {
			t.Errorf("%s: %d scripts: something was not escaped", name, n)
		}
	}
}

func TestJSONReports(t *testing.T) {
	for name, r := range runs() {
		var doc map[string]any
		if err := json.Unmarshal(makeReport(t, r, "json"), &doc); err != nil || doc["format_version"] != "1.0" {
			t.Errorf("%s: %v, %v", name, err, doc["format_version"])
		}
	}
	if _, err := planfile.Decode([]resource.Kind{job.Kind()}, makeReport(t, planRun(), "json")); err != nil {
		t.Errorf("the report of a plan is no plan file: %v", err)
	}
}

// TestDriftFitsItsWidth: on a terminal no line is wider, not even that of the counts.
func TestDriftFitsItsWidth(t *testing.T) {
	r := driftRun()
	got := text(t, func(b *strings.Builder) error {
		return report.Drift(b, *r.Plan, *r.Drift, r.FailOn, report.Options{Servers: r.Servers, Took: r.Took, Width: 80})
	})
	if !strings.Contains(strings.Join(strings.Fields(got), " "), report.DriftCounts(*r.Drift)) {
		t.Errorf("no counts: %s", got)
	}
	for line := range strings.Lines(got) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("a line is wider than 80 columns: %s", line)
		}
	}
}

func TestDriftText(t *testing.T) {
	r := driftRun()
	got := text(t, func(b *strings.Builder) error {
		return report.Drift(b, *r.Plan, *r.Drift, r.FailOn, report.Options{Servers: r.Servers, Took: r.Took})
	})
	file := filepath.Join("testdata", "drift.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}
