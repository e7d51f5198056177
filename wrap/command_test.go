package wrap

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muster/sim/needs"
)

func TestCommandsThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		command string
		code    int
	}{
		"not_in_path":       {"no-such-command-anywhere", 127},
		"no_such_file":      {filepath.Join(dir, "missing"), 127},
		"no_interpreter":    {write("orphan", "#!/no/such/interpreter\n", 0o755), 127},
		"not_executable":    {write("plain", "#!/bin/sh\n", 0o644), 126},
		"a_directory":       {dir, 126},
		"not_a_program":     {write("noise", "\x7fNOT", 0o755), 126},
		"file_in_the_way":   {filepath.Join(dir, "plain", "x"), 126},
		"empty_script_name": {"", 127},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := lookUp(c.command)
			if err == nil {
				_, err = start(launch{path: path, argv: []string{c.command}})
			}
			if err == nil {
				t.Fatal("it runs")
			}
			if code := startCode(err); code != c.code {
				t.Errorf("code %d for %v, want %d", code, err, c.code)
			}
		})
	}
}

// initVariable makes this test binary process 1 of a pid namespace that wraps a shell.
const initVariable = "WRAP_TEST_INIT"

// zombies is a shell script whose children leave their own children behind. Process 1 gets those, and the shell
// waits until it has reaped them all: none is left whose state is Z. Its own exit status must still arrive.
const zombies = `
for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'exit 3' &) ; done
while grep -ls '^State:[[:space:]]*Z' /proc/[0-9]*/status >/dev/null; do :; done
echo reaped $PPID
exit 5`

// asInit is what process 1 does; its exit code is the command's.
func asInit(script string) {
	path, err := lookUp("sh")
	if err != nil {
		panic(err)
	}
	files := []*os.File{nil, os.Stdout, os.Stderr}
	c, err := start(launch{path, []string{"sh", "-c", script}, os.Environ(), "", files, false})
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, Signals()...)
	s := supervisor{command: c, grace: short}
	os.Exit(s.run(context.Background(), signals).code())
}

func TestProcessOneReapsOrphansAndKeepsTheStatus(t *testing.T) {
	out, err := inNamespace(t, zombies).Output()
	if code := exitOf(t, err); code != 5 || string(out) != "reaped 1\n" {
		t.Errorf("code %d, want 5; output %q", code, out)
	}
}

// TestProcessOneIsTold: nothing happens to a process 1 that handles no signal. This one does, and passes it on.
func TestProcessOneIsTold(t *testing.T) {
	cmd := inNamespace(t, `trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	signalChildOf(t, cmd.Process.Pid, syscall.SIGTERM) // unshare itself only waits
	if code := exitOf(t, cmd.Wait()); code != 6 {
		t.Errorf("code %d, want 6", code)
	}
}

// inNamespace is this test binary as process 1 that runs script.
func inNamespace(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	unshare := needs.Unshare(t, []string{"--pid", "--fork", "--mount-proc", "--kill-child"}, "true")
	cmd := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], os.Args[0])...)
	cmd.Env = append(os.Environ(), initVariable+"="+script)
	cmd.Stderr = os.Stderr
	return cmd
}

// exitOf is the code behind an error of Wait.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// signalChildOf signals the only child of a process.
func signalChildOf(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	out, err := exec.Command(needs.Program(t, "pgrep", "procps"), "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err == nil {
		err = syscall.Kill(child, sig)
	}
	if err != nil {
		t.Fatal(err)
	}
}
