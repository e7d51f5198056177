package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDemo runs the README's first command, on a ZooKeeper of its own. It leaves no process and no file. The limit is
// for a busy machine: it takes half a minute.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, "../examples/demo.sh")
	cmd.Env = []string{
		"MUSTER=" + filepath.Join(bin, "muster"), "TMPDIR=" + temp,
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "ZOOKEEPER_HOME=" + os.Getenv("ZOOKEEPER_HOME"),
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up then
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n# done: no process and no file is left\n") {
		t.Errorf("demo: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "demo.sh: line ") {
		t.Errorf("the shell itself has something to say:\n%s", out)
	}
	// A worker died, and was started again.
	for _, seen := range []string{`degraded +\S+ +4 of 4 +3 +0 +0 `, `running +\S+ +4 of 4 +4 +0 +1 `} {
		if !regexp.MustCompile(`(?m)^  ` + seen).Match(out) {
			t.Errorf("status --watch did not see %s:\n%s", seen, out)
		}
	}
	if _, err := exec.LookPath("redis-server"); err == nil && !strings.Contains(string(out), "\n669 of 5000 are prime\n") {
		t.Errorf("the batch was not counted:\n%s", out)
	}
	if left := processesOf(t, temp); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
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
