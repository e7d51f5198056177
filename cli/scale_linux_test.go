package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/zkstate"
)

// maxMemory limits the memory of plan and apply with 10,000 jobs, in bytes.
const maxMemory = 200 << 20

// TestTenThousandJobs creates 10,000 jobs, plans them without a change, and deletes them. It measures the peak memory
// of each process.
func TestTenThousandJobs(t *testing.T) {
	t.Parallel()
	dir, root := t.TempDir(), "/scale-"+zkstate.NewID()[:12]
	config := filepath.Join(dir, "jobs.hcl")
	write := func(jobs string) {
		t.Helper()
		text := fmt.Sprintf("muster {\n  stack = \"scale\"\n  home = %q\n  roots = [%q]\n}\n%s",
			root+"/home", root+"/jobs", jobs)
		write(t, config, text)
	}
	run := func(name, says string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "muster"), append(args, dir)...)
		cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect())
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		peak, err := peakMemory(cmd.Process.Pid, ended)
		if err != nil || !strings.Contains(stdout.String(), says) {
			t.Fatalf("%s: %v, %s; want it to say %q in:\n%.2000s", name, err, stderr.String(), says, stdout.String())
		}
		t.Logf("%s: %s, %d MB", name, time.Since(start).Round(10*time.Millisecond), peak>>20)
		if peak == 0 || peak > maxMemory {
			t.Errorf("%s used %d MB, more than %d", name, peak>>20, maxMemory>>20)
		}
	}
	write(fmt.Sprintf(`job "many" {
  for_each = toset(flatten([for a in range(100) : [for b in range(100) : format("%%02d%%02d", a, b)]]))
  name = "many-${each.key}"
  root = %q
  workers = 8
  labels = { team = "data" }
}
`, root+"/jobs"))
	run("validate", "10000 jobs", "validate")
	run("plan of creates", "Plan: 10000 to create", "plan", "--out", filepath.Join(t.TempDir(), "plan.json"))
	run("apply of creates", "10000 created", "apply", "--yes")
	run("plan without changes", "No changes. 10000 jobs", "plan", "--detailed-exitcode")
	write("")
	run("apply of deletes", "10000 deleted", "apply", "--yes", "--allow-empty", "--max-delete", "10000")
}

// peakMemory returns the peak memory of a process in bytes, as last read before the process ended. The kernel's number
// for an ended process would include this process at the time of the fork.
func peakMemory(pid int, ended <-chan error) (peak int, err error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, after, found := strings.Cut(string(status), "VmHWM:"); found {
			var kib int
			if _, err := fmt.Sscan(after, &kib); err == nil {
				peak = kib << 10
			}
		}
		select {
		case err := <-ended:
			return peak, err
		case <-tick.C:
		}
	}
}
