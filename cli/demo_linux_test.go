package cli_test

import (
	"bytes"
	"context"
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
)

// TestDemo runs the README's first command with what this machine has. docs/demo.txt is what it printed once; -update
// records it anew.
func TestDemo(t *testing.T) {
	out := runDemo(t, "PATH="+os.Getenv("PATH"), "ZOOKEEPER_HOME="+os.Getenv("ZOOKEEPER_HOME"))
	_, err := exec.LookPath("redis-server")
	if err == nil && !strings.Contains(out, "\n669 of 5000 are prime\n") {
		t.Errorf("the batch was not counted:\n%s", out)
	}
	const file = "../docs/demo.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.TrimLeft(out, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, got := demoSteps(read(t, file)), demoSteps(out)
	if err != nil { // the rest is about a queue, and about deleting it
		at := slices.IndexFunc(got, func(line string) bool { return strings.HasPrefix(line, "# a queue is left out") })
		want, got = want[:max(at, 0)], got[:max(at, 0)]
	}
	if d := cmp.Diff(want, got); d != "" || len(got) < 30 {
		t.Errorf("%s is not of this demo: go test ./cli -run 'TestDemo$' -update (-recorded +now):\n%s", file, d)
	}
}

var (
	demoStep = regexp.MustCompile(`(?m)^(\$ |# |Plan: |Applied |\[exit code ).*$`)
	demoPID  = regexp.MustCompile(`(/muster-demo-|\$ kill)[ \d-]+`)
)

// demoSteps are the lines of a demo that are the same each time: what it does, and what came of it.
func demoSteps(out string) []string {
	return demoStep.FindAllString(demoPID.ReplaceAllString(out, "$1"), -1)
}

// TestDemoNeedsNothing runs it without Java, ZooKeeper and Redis, with the programs that every system has. sed is like
// that of macOS: -i needs a suffix.
func TestDemoNeedsNothing(t *testing.T) {
	tools := t.TempDir()
	for _, name := range []string{
		"bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "rm", "seq", "sh", "sleep", "tail",
		"touch", "uniq",
	} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(tools, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sed, err := exec.LookPath("sed")
	if err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\n[ \"$1\" != -i ] || { echo \"sed: -i has no suffix\" >&2; exit 1; }\nexec %s \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "sed"), fmt.Appendf(nil, script, sed), 0o755); err != nil {
		t.Fatal(err)
	}
	out := runDemo(t, "PATH="+tools, "REDIS_URL=redis://"+refusingAddr+"/0") // somebody else's
	for _, line := range []string{
		"It is embedded in this command: in memory, for trying things out, never for production.",
		"# a queue is left out: it needs a Redis, 7 or newer, and none is here",
	} {
		if !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
}

// runDemo runs the demo. It leaves no process and no file. The limit is for a busy machine: it takes half a minute.
func runDemo(t *testing.T, env ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, "../examples/demo.sh")
	cmd.Env = append(env, "MUSTER="+filepath.Join(bin, "muster"), "TMPDIR="+temp, "HOME="+os.Getenv("HOME"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up then
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n# done: no process and no file is left\n") {
		t.Errorf("demo: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "garbage is left") {
		t.Errorf("it leaves something behind:\n%s", out)
	}
	if regexp.MustCompile(`demo\.sh: line |command not found`).Match(out) {
		t.Errorf("the shell itself has something to say:\n%s", out)
	}
	// A worker died, and was started again.
	for _, seen := range []string{`degraded +\S+ +4 of 4 +3 +0 +0 `, `running +\S+ +4 of 4 +4 +0 +1 `} {
		if !regexp.MustCompile(`(?m)^  ` + seen).Match(out) {
			t.Errorf("status --watch did not see %s:\n%s", seen, out)
		}
	}
	if left := processesOf(t, temp); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	return string(out)
}

// processesOf lists the processes that were started with dir as their TMPDIR, or with a file below it as an argument.
func processesOf(t *testing.T, dir string) []string {
	var found []string
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(all) == 0 {
		t.Fatalf("no process in /proc: %v", err)
	}
	for _, proc := range all {
		env, _ := os.ReadFile(filepath.Join(proc, "environ")) // unreadable: not ours
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if bytes.Contains(env, []byte("TMPDIR="+dir+"\x00")) || bytes.Contains(args, []byte(dir)) {
			line := bytes.ReplaceAll(args, []byte{0}, []byte{' '})
			found = append(found, fmt.Sprintf("%s: %s", filepath.Base(proc), line))
		}
	}
	return found
}
