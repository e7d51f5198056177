package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/sim/rig"
	"muster/zkstate"
)

// example is an example of a group, applied below a root of its own. All its processes have temp as their TMPDIR.
type example struct {
	dir, root, temp string
	env             []string
}

// newExample applies an example. Its processes get env too.
func newExample(t *testing.T, name string, env ...string) example {
	t.Helper()
	dir, err := filepath.Abs("../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	e := example{dir: dir, root: "/t-" + zkstate.NewID()[:12], temp: t.TempDir(), env: env}
	t.Cleanup(func() { // after those of the members, which end then
		rig.Await(t, "the end of all processes of "+name, func() bool { return len(processesOf(t, e.temp)) == 0 })
	})
	if out, err := e.command("muster", "apply", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return e
}

// command is a program of temp, or muster, or one of the system's, in the folder of the example.
func (e example) command(program string, args ...string) *exec.Cmd {
	path := []string{e.temp, bin, os.Getenv("PATH")}
	if program == "muster" {
		program = filepath.Join(bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = e.dir
	cmd.WaitDelay = time.Minute
	cmd.Env = append([]string{
		"MUSTER_SERVERS=" + servers.Connect(), "MUSTER_VAR_root=" + e.root, "ROOT=" + e.root, "TMPDIR=" + e.temp,
		"PATH=" + strings.Join(path, ":"),
	}, e.env...)
	return cmd
}

// member starts a member of a group. It is killed at the end of the test.
func (e example) member(t *testing.T, group, identity, version string, more ...string) (*exec.Cmd, *screen) {
	t.Helper()
	cmd := e.command("muster", append([]string{
		"member", "--group", group, "--root", e.root, "--identity", identity, "--version", version,
	}, more...)...)
	return cmd, startOnScreen(t, cmd)
}

// kill kills a process, and waits for it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the kill is why
}

// with lists the processes below temp that have a variable in their environment: a line for each, with its number and
// its arguments. Processes that have ended are not listed.
func (e example) with(t *testing.T, variable string) (found map[int]string) {
	t.Helper()
	found = map[int]string{}
	for _, line := range processesOf(t, e.temp) {
		id, args, _ := strings.Cut(line, ": ")
		env, _ := os.ReadFile("/proc/" + id + "/environ") // it has ended: empty
		if pid, err := strconv.Atoi(id); err != nil {
			t.Fatal(err)
		} else if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			found[pid] = args
		}
	}
	return found
}

// send sends a signal to a process of this test. It may have ended.
func send(t *testing.T, signal syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("%v to %d: %v", signal, pid, err)
		}
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
