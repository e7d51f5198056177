package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"muster/report"
	"muster/sim/needs"
)

// TestFullStandardOutput: the command finishes, its reports and its plan file are complete, and the code is 1.
func TestFullStandardOutput(t *testing.T) {
	full := needs.FullDevice(t)
	for name, args := range reportingCommands {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "")
			f.mustApply(t)
			f.write(t, 5, "")
			if name == "plan" {
				args = append(args, "--out", "p.json")
			}
			var stderr strings.Builder
			cmd := f.command(servers.Connect(), append(args, f.reportFlags(t)...)...)
			cmd.Stdout, cmd.Stderr = full, &stderr
			_ = cmd.Run() // the code tells
			expect(t, outcome{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1,
				"muster: standard output: write /dev/stdout: no space left on device", "\n  next: "+map[bool]string{
					true: "muster history", false: "free some space"}[name == "apply"])
			f.checkReports(t, 1, "no space left on device")
			if name == "plan" {
				expect(t, result(f.command(servers.Connect(), "apply", "p.json")), 0, "Applied 3 of 3")
			}
			if name != "drift" {
				expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "5 jobs match")
			}
		})
	}
}

// TestFullDisk runs commands on a full disk. Older plan files and reports are as before, nothing is half written, and
// the code is 1.
func TestFullDisk(t *testing.T) {
	unshare := needs.Unshare(t, []string{"--mount", "--propagation", "private"},
		"mount", "-t", "tmpfs", "disk", t.TempDir())
	for name, args := range map[string][]string{
		"plan":     {"plan", "--detailed-exitcode"},
		"plan_out": {"plan", "--detailed-exitcode", "--out", "disk/p.json"},
		"apply":    {"apply", "--yes"},
		"drift":    {"drift"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "")
			f.mustApply(t)
			f.write(t, 60, "") // the output does not fit the last block of a full disk
			args := append(args, "--report", "json=r.json")
			for _, kind := range report.Formats() {
				args = append(args, "--report", kind+"=disk/r."+kind)
			}
			got, after := f.onFullDisk(t, unshare, args)
			expect(t, got, 1, "no space left on device")
			var names []string
			for _, kind := range report.Formats() {
				expect(t, got, 1, "muster: the "+kind+" report was not written: ")
				names = append(names, "r."+kind)
			}
			want := "fill\np.json\n" + strings.Join(names, "\n") + "\n" + strings.Repeat(olderReport, 7)
			if after != want {
				t.Errorf("on the disk is\n%s\nwant\n%s", after, want)
			}
			if whole := read(t, filepath.Join(f.dir, "r.json")); !strings.HasSuffix(whole, "}\n") {
				t.Errorf("the report elsewhere is\n%s", whole)
			}
			if strings.HasPrefix(name, "apply") {
				expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "60 jobs match")
			}
		})
	}
}

// onFullDisk runs muster with older files on a full disk, which only this process sees. It returns what is on the disk
// afterwards: the names, then the contents.
func (f fixture) onFullDisk(t *testing.T, unshare, args []string) (outcome, string) {
	t.Helper()
	script := `set -eu
older='` + strings.TrimSpace(olderReport) + `'
mkdir disk
mount -t tmpfs -o size=64k disk disk
for kind in ` + strings.Join(report.Formats(), " ") + `; do echo "$older" > disk/r.$kind; done
echo "$older" > disk/p.json
cat /dev/zero > disk/fill 2> /dev/null || true
code=0
"$@" || code=$?
ls -A disk > after
cat disk/p.json disk/r.* >> after
exit $code`
	cmd := f.command(servers.Connect())
	program := cmd.Path
	cmd.Path, cmd.Args = unshare[0], append(append(unshare, "sh", "-c", script, "sh", program), args...)
	got := result(cmd)
	return got, read(t, filepath.Join(f.dir, "after"))
}
