package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/cli"
)

var update = flag.Bool("update", false, "rewrite the output of commands in docs, and the index of diagnostics")

// page is a page of docs that can be run. One shell writes the files and runs the commands of the page, in its order.
// The name of a file stands before it, in backticks and with a colon. HCL with a muster block and no name is jobs.hcl.
// A comment that starts with "situation" holds commands that prepare the page and print nothing. The processes in
// $workers are stopped at the end.
type page struct {
	lines []string
	parts []part
}

// part is a file or a command of a page.
type part struct {
	file, text string // file is empty if it is a command
	from, to   int    // the lines of its output, or of the text of the file
	shown      bool   // the page shows it: it is no preparation
}

var fileHeading = regexp.MustCompile("^`([^`]+)`:$")

func readPage(t *testing.T, file string) page {
	t.Helper()
	p := page{lines: strings.Split(read(t, file), "\n")}
	for i := 0; i < len(p.lines); i++ {
		kind, ok := strings.CutPrefix(p.lines[i], "```")
		situation := p.lines[i] == "<!-- situation"
		if !ok && !situation {
			continue
		}
		first := i + 1
		for i++; i < len(p.lines) && p.lines[i] != "```" && p.lines[i] != "-->"; i++ {
		}
		text := strings.Join(p.lines[first:i], "\n")
		name := ""
		if m := fileHeading.FindStringSubmatch(p.lines[max(0, first-3)]); m != nil {
			name = m[1]
		}
		switch {
		case situation:
			p.parts = append(p.parts, part{text: text})
		case kind == "console":
			p.addCommands(first, i)
		case name != "":
			p.parts = append(p.parts, part{file: name, text: text + "\n", from: first, to: i})
		case kind == "hcl" && strings.Contains(text, "muster {"):
			p.parts = append(p.parts, part{file: "jobs.hcl", text: text + "\n", from: first, to: i})
		}
	}
	return p
}

// addCommands adds the commands of a block, each with its output.
func (p *page) addCommands(from, to int) {
	for i := from; i < to; {
		s := part{text: strings.TrimPrefix(p.lines[i], "$ "), shown: true}
		for i++; i < to && strings.HasSuffix(p.lines[i-1], `\`); i++ {
			s.text += "\n" + p.lines[i]
		}
		for s.from = i; i < to && !strings.HasPrefix(p.lines[i], "$ "); i++ {
		}
		s.to = i
		p.parts = append(p.parts, s)
	}
}

const partEnd = "--- end of a part ---"

// run runs the parts in an empty directory and returns what each printed. The pages show the server 127.0.0.1:2181 and
// the user ann@laptop.
func (p page) run(t *testing.T, connect string) []string {
	t.Helper()
	shown, dir := t.TempDir(), t.TempDir()
	script := "exec 2>&1\ntrap 'kill $workers 2>/dev/null; wait' EXIT\ntrap 'exit 143' TERM\n"
	for i, s := range p.parts {
		if s.file != "" {
			file := filepath.Join(shown, fmt.Sprint(i))
			if err := os.WriteFile(file, []byte(s.text), 0o644); err != nil {
				t.Fatal(err)
			}
			script += fmt.Sprintf("mkdir -p $(dirname %s) && cp %s %[1]s; echo '%[3]s'\n", s.file, file, partEnd)
			continue
		}
		script += fmt.Sprintf("%s\n(code=$?; echo '%s'; exit $code)\n", s.text, partEnd) // the next command may show $?
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir, "USER=ann",
		"MUSTER_SERVERS=" + connect, "MUSTER_ZK_AUTH=digest:etl:secret",
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	host, _ := os.Hostname() // empty after an error, as in muster
	asShown := strings.NewReplacer(connect, "127.0.0.1:2181", "ann@"+host, "ann@laptop",
		cli.Version+"-dev", cli.Version) // as a release says it
	printed := strings.Split(asShown.Replace(string(bytes.TrimSpace(out))), partEnd)
	if len(printed) != len(p.parts)+1 {
		t.Fatalf("the shell ended early: %v\n%s", err, out)
	}
	return printed
}

// check compares the output of the commands with the page. With -update it rewrites the page.
func (p page) check(t *testing.T, file string, printed []string) {
	t.Helper()
	for i := len(p.parts) - 1; i >= 0; i-- { // from the end, so that the line numbers hold
		s := p.parts[i]
		got := strings.Trim(printed[i], "\n")
		if s.file != "" || !s.shown {
			if got != "" {
				t.Errorf("%s: before anything is shown:\n%s", file, got)
			}
			continue
		}
		want := strings.Trim(strings.Join(p.lines[s.from:s.to], "\n"), "\n")
		d := cmp.Diff(withoutVariations(want), withoutVariations(got))
		switch {
		case d != "" && !*update:
			t.Errorf("%s:%d: %s (-shown +printed):\n%s", file, s.from, s.text, d)
		case d != "":
			lines := strings.Split(got, "\n")
			if p.lines[s.to] != "```" {
				lines = append(lines, "")
			}
			p.lines = slices.Replace(p.lines, s.from, s.to, lines...)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(p.lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	unique  = regexp.MustCompile(`\b(\d{4}-\d\d-\d\dT[\d:]+Z|[0-9a-f]{32})\b`)
	elapsed = regexp.MustCompile(` +[\d.]+ (ms|s|days ago)\b`)
	waited  = regexp.MustCompile(`\b(waiting|waited) [\d.]+s\b`)
	aged    = regexp.MustCompile(` +\d{1,3}[smhd] +`) // a column of a table, or "3s ago"
	nth     = regexp.MustCompile(`^  \[\d+(/\d+\])`)
)

// withoutVariations removes what differs in every run: times, durations, the line breaks that follow from them, and the
// order of changes.
func withoutVariations(text string) string {
	text = waited.ReplaceAllString(text, "$1 Ns")
	text = aged.ReplaceAllString(text, " N ")
	text = unique.ReplaceAllString(strings.ReplaceAll(text, "·\n  ", "· "), "*")
	lines := strings.Split(elapsed.ReplaceAllString(text, " N $1"), "\n")
	for from := 0; from < len(lines); from++ {
		to := from
		for ; to < len(lines) && nth.MatchString(lines[to]); to++ {
			lines[to] = nth.ReplaceAllString(lines[to], "  [N$1")
		}
		slices.Sort(lines[from:to])
		from = to
	}
	return strings.Join(lines, "\n")
}
