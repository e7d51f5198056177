package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/exitcode"
	"muster/plan"
	"muster/report"
	"muster/spec"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExitCodesAreDocumented compares the tables in the docs with package exitcode.
func TestExitCodesAreDocumented(t *testing.T) {
	var want, remedies []string
	for _, row := range exitcode.Table() {
		var codes []string
		for _, code := range row.Codes {
			codes = append(codes, strings.Replace(strconv.Itoa(code), "128", "128+n", 1))
		}
		want = append(want, "| "+strings.Join(codes, ", ")+" | "+row.Meaning+" |")
		remedies = append(remedies, strings.TrimSpace(row.Remedy+" |"))
	}
	rows := regexp.MustCompile(`(?m)^\| [0-9][0-9n+, ]* \| [^|]* \|`)
	for _, file := range []string{"../README.md", "../docs/exit-codes.md"} {
		if d := cmp.Diff(want, rows.FindAllString(read(t, file), -1)); d != "" {
			t.Errorf("%s (-program +page):\n%s", file, d)
		}
	}
	var written []string
	for _, row := range regexp.MustCompile(`(?m)^\| [0-9][^|]*\|[^|]*\| (.*)$`).FindAllStringSubmatch(
		read(t, "../docs/exit-codes.md"), -1) {
		written = append(written, row[1])
	}
	if d := cmp.Diff(remedies, written); d != "" {
		t.Errorf("what to do, in docs/exit-codes.md (-program +page):\n%s", d)
	}
}

func TestEveryKindIsDocumented(t *testing.T) {
	drift, reports := read(t, "../docs/drift.md"), read(t, "../docs/reports.md")
	help := run(t, nil, "drift", "--help").stdout
	for _, k := range plan.DriftKinds() {
		words := regexp.MustCompile(`(?m)^  ` + string(k) + ` +(.*)$`).FindStringSubmatch(help)
		if len(words) != 2 || !strings.Contains(drift, "\n| `"+string(k)+"` | "+words[1]) {
			t.Errorf("docs/drift.md has no row for %s that begins like the help: %q", k, words)
		}
	}
	for _, k := range report.Kinds() {
		if !strings.Contains(reports, "\n| `"+k+"` | ") {
			t.Errorf("docs/reports.md has no row for %s", k)
		}
	}
	metric := regexp.MustCompile(`(?m)^# HELP (\w+)`)
	for _, file := range []string{"plan.prom", "apply.prom", "drift.prom"} {
		for _, m := range metric.FindAllStringSubmatch(read(t, "../report/testdata/"+file), -1) {
			if !strings.Contains(reports, "`"+m[1]+"`") {
				t.Errorf("docs/reports.md does not explain %s", m[1])
			}
		}
	}
}

// TestExampleUsesTheDefaultServer: the commands at the head of the example run without MUSTER_SERVERS.
func TestExampleUsesTheDefaultServer(t *testing.T) {
	port, local := strings.CutPrefix(spec.DefaultServer, "127.0.0.1:")
	first := regexp.MustCompile(`(?m)^#   (.*)$`).FindStringSubmatch(read(t, "../examples/one-job.hcl"))
	if !local || first == nil || !strings.HasPrefix(first[1], "muster dev --port "+port+" ") {
		t.Errorf("default server %s; the example begins with %q", spec.DefaultServer, first)
	}
}

// TestEveryBarrierHasARound: without --round, a script that is started again after a crash would come to the next
// round.
func TestEveryBarrierHasARound(t *testing.T) {
	texts := map[string]string{
		"README.md":      read(t, "../README.md"),
		"barrier --help": run(t, nil, "barrier", "--help").stdout,
		"worker --help":  run(t, nil, "worker", "--help").stdout,
	}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "../examples/*", "../examples/*/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && !info.IsDir() {
				texts[file] = read(t, file)
			}
		}
	}
	barrier := regexp.MustCompile(`muster barrier [a-z].*`)
	checked := 0
	for name, text := range texts {
		for _, call := range barrier.FindAllString(text, -1) {
			if checked++; !strings.Contains(call, " --round ") {
				t.Errorf("%s: %s", name, call)
			}
		}
	}
	if checked < 6 {
		t.Errorf("only %d barriers were found", checked)
	}
}

// TestExamplesUseFlagsThatExist checks the calls of muster in the pipelines and in the docs.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	var files []string
	for _, pattern := range []string{
		"../examples/pipelines/*", "../examples/pipelines/*/*", "../docs/*.md", "../docs/*/*.md",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	joined := regexp.MustCompile(`\\\n\s*|\n\s+(--)`)
	call := regexp.MustCompile("muster (apply|drift|plan|schema|show|status|terminate|validate)\\b([^\n|`&]*)")
	flag := regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
	flags := map[string]string{}
	checked := 0
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue
		}
		for _, c := range call.FindAllStringSubmatch(joined.ReplaceAllString(read(t, file), " $1"), -1) {
			if flags[c[1]] == "" {
				flags[c[1]] = run(t, nil, c[1], "--help").stdout
			}
			for _, f := range flag.FindAllStringSubmatch(c[2], -1) {
				checked++
				if !regexp.MustCompile(f[1] + `\b[^-]`).MatchString(flags[c[1]]) {
					t.Errorf("%s: muster %s has no flag %s", file, c[1], f[1])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d flags were found in %d files", checked, len(files))
	}
}
