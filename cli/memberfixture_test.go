package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/sim/rig"
)

// groupFixture is a group "shop" in a root of its own, and a directory with the commands of its duties.
type groupFixture struct {
	fixture
	t *testing.T
}

// newGroupFixture applies a group with these blocks. It settles at once; its sessions last for 4 s.
func newGroupFixture(t *testing.T, blocks string) groupFixture {
	t.Helper()
	f := groupFixture{newFixture(t, 0, ""), t}
	if err := os.Mkdir(filepath.Join(f.dir, "duties"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.declare(blocks)
	return f
}

func (f groupFixture) declare(blocks string) {
	f.t.Helper()
	f.declareWith("4s", blocks)
}

// declareWith is declare with another session timeout.
func (f groupFixture) declareWith(session, blocks string) {
	f.t.Helper()
	f.write(f.t, 0, fmt.Sprintf(`group "shop" {
  root   = %q
  settle = "1ms"
  timeouts {
    session = %q
    drain   = "20s"
    join    = "60s"
  }
%s
}
`, f.root, session, blocks))
	f.mustApply(f.t)
}

// duty writes the command of a duty, a shell script. It appends to the log what it says.
func (f groupFixture) duty(name, script string) {
	f.t.Helper()
	text := fmt.Sprintf("#!/bin/sh\nsay() { echo \"$*\" >> %s; }\n%s\n", f.log(), script)
	if err := os.WriteFile(filepath.Join(f.dir, "duties", name), []byte(text), 0o755); err != nil {
		f.t.Fatal(err)
	}
}

func (f groupFixture) log() string { return filepath.Join(f.dir, "log") }

// logged is what the commands have said.
func (f groupFixture) logged() string {
	text, err := os.ReadFile(f.log())
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return string(text)
}

// awaitLog waits until the commands have said a text n times.
func (f groupFixture) awaitLog(text string, n int) {
	f.t.Helper()
	rig.Await(f.t, fmt.Sprintf("%q, %d times, in the log", text, n), func() bool {
		return strings.Count(f.logged(), text) >= n
	})
}

// member is a command that joins the group.
func (f groupFixture) member(servers, identity, version string, more ...string) *exec.Cmd {
	cmd := f.command(servers, append([]string{
		"member", "--group", "shop", "--root", f.root, "--identity", identity, "--version", version,
	}, more...)...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "MUSTER_LOG=warn")
	return cmd
}

// memberWithDuties is a running member that does the duties of the directory.
func (f groupFixture) memberWithDuties(servers, identity, version string) (*exec.Cmd, *screen) {
	f.t.Helper()
	cmd := f.member(servers, identity, version, "--duties", "duties", "--address", "127.0.0.1:7000")
	seen := startOnScreen(f.t, cmd)
	seen.await(f.t, "joined "+f.root+"/shop as "+identity)
	return cmd, seen
}

// endsWith waits for the end of a command and checks its code.
func endsWith(t *testing.T, cmd *exec.Cmd, seen *screen, want int) {
	t.Helper()
	_ = cmd.Wait() // the code says it
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d:\n%s", got, want, seen)
	}
}

// pids reads the numbers after each "pid" in the log.
func (f groupFixture) pids() []int {
	f.t.Helper()
	var all []int
	for line := range strings.Lines(f.logged()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "pid "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				f.t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// gone waits until none of the processes is there, and returns how long that took.
func gone(t *testing.T, pids []int) time.Duration {
	t.Helper()
	begun := time.Now()
	rig.Await(t, fmt.Sprintf("the end of %v", pids), func() bool {
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	return time.Since(begun)
}

// stubborn is a command that goes on after SIGINT and SIGTERM, and so does what it has started.
const stubborn = `trap 'say asked $MUSTER_IDENTITY' INT TERM
(trap '' TERM; say pid $(exec sh -c 'echo $PPID'); while :; do sleep 0.2; done) &
say pid $$
say begins $MUSTER_IDENTITY
while :; do sleep 0.2; done`

// obedient is a command that ends half a second after SIGTERM.
const obedient = `trap 'say asked $MUSTER_IDENTITY; sleep 0.5; say ends $MUSTER_IDENTITY; exit 0' TERM
say begins $MUSTER_IDENTITY
while :; do sleep 0.1; done`

// numberAfter is the number in the first line of the log that starts so.
func (f groupFixture) numberAfter(start string) int {
	f.t.Helper()
	for line := range strings.Lines(f.logged()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), start); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				f.t.Fatal(err)
			}
			return n
		}
	}
	f.t.Fatalf("no %q in %s", start, f.logged())
	return 0
}
