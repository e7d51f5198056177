package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReaderGone runs each command in a pipe that its reader has closed. muster finishes, writes its reports and prints
// nothing, and a strict shell gets code 1.
func TestReaderGone(t *testing.T) {
	for name, args := range reportingCommands {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "")
			f.mustApply(t)
			f.write(t, 5, "")
			script := `set -euo pipefail
mkfifo ready
{ read -r _ < ready; exec muster "$@"; } | { exec 0<&-; echo > ready; }`
			cmd := f.command(servers.Connect(), append(args, f.reportFlags(t)...)...)
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
			cmd.Path, cmd.Args = lookPath(t, "bash"), append([]string{"bash", "-c", script, "bash"}, cmd.Args[1:]...)
			if got := result(cmd); got != (outcome{code: 1}) {
				t.Errorf("%+v", got)
			}
			f.checkReports(t, 1, "standard output: write ")
			if name == "apply" {
				expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "5 jobs match")
			}
		})
	}
}

// TestReaderOfTheFirstLine: head gets a complete line, and the plan file is complete.
func TestReaderOfTheFirstLine(t *testing.T) {
	f := newFixture(t, 1000, "")
	cmd := f.command(servers.Connect())
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	const script = "set -euo pipefail; muster plan --all --out p.json | head -1"
	cmd.Path, cmd.Args = lookPath(t, "bash"), []string{"bash", "-c", script}
	got := result(cmd)
	if got.code != 1 || !strings.HasPrefix(got.stdout, "muster plan · stack tests · ") || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	expect(t, result(f.command(servers.Connect(), "apply", "p.json")), 0, "Applied 1000 of 1000")
}

// TestReportToAClosedPipe: the other reports say that standard output could not be written. A pipe with a name is not
// standard output.
func TestReportToAClosedPipe(t *testing.T) {
	f := newFixture(t, 1, "")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := f.command(servers.Connect(), "plan",
		"--report", "github=first", "--report", "markdown=-", "--report", "prometheus=last")
	cmd.Stdout = w
	_ = cmd.Run() // the code tells
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("code %d, want 1", code)
	}
	if first := read(t, filepath.Join(f.dir, "first")); !strings.Contains(first, "standard output: ") {
		t.Errorf("the report before it says\n%s", first)
	}
	if last := read(t, filepath.Join(f.dir, "last")); !strings.Contains(last, "} 1\n") {
		t.Errorf("the report after it says\n%s", last)
	}
	cmd = f.command(servers.Connect(), "plan", "--report", "markdown=/dev/fd/3")
	cmd.ExtraFiles = []*os.File{w}
	expect(t, result(cmd), 1, "muster: the markdown report was not written: ", "broken pipe")
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
