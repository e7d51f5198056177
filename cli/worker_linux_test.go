package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/sim/needs"
)

// mustApply applies the configuration of the fixture.
func (f fixture) mustApply(t *testing.T) {
	t.Helper()
	if out, err := f.command(servers.Connect(), "apply", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestCommandOwnsItsTerminal: it reads what a user types and gets the interrupt of the keyboard. Afterwards the shell
// has the terminal again.
func TestCommandOwnsItsTerminal(t *testing.T) {
	f := newFixture(t, 1, "")
	f.mustApply(t)
	term := newTerminal(t)
	script := fmt.Sprintf(`%s worker --job j0 --root %s --identity w0 -- \
	sh -c 'read x; echo "it reads $x"; exec sleep 1000'
echo "code $?"; read y; echo "the shell reads $y"`, filepath.Join(bin, "muster"), f.root)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script) // its end sends SIGHUP to all at the terminal
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "MUSTER_SERVERS="+servers.Connect())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term.await(t, "as worker 0 of 2: w0")
	fmt.Fprintln(term.user, "typed")
	term.await(t, "it reads typed")
	fmt.Fprint(term.user, "\x03") // Ctrl-C
	term.await(t, "ended by SIGINT")
	term.await(t, "code 130")
	fmt.Fprintln(term.user, "more")
	term.await(t, "the shell reads more")
	_ = cmd.Wait() // the text tells
}

// TestWorkerAsProcessOne reaps zombies, has the exit code of its command, and passes a signal on.
func TestWorkerAsProcessOne(t *testing.T) {
	f := newFixture(t, 1, "")
	f.mustApply(t)
	unshare := needs.Unshare(t, []string{"--pid", "--fork", "--mount-proc", "--kill-child"}, "true")
	script := `trap 'exit 6' TERM
for i in 1 2 3 4 5; do (sh -c 'exit 3' &) ; done
while grep -ls '^State:[[:space:]]*Z' /proc/[0-9]*/status >/dev/null; do :; done
muster self && echo "process $PPID"
kill -TERM 1
while :; do sleep 0.1; done`
	args := append(unshare, filepath.Join(bin, "muster"), "worker",
		"--job", "j0", "--root", f.root, "--identity", "w0", "--", "sh", "-c", script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect(), "PATH="+bin+":"+os.Getenv("PATH"))
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	_ = cmd.Run() // the code tells
	want := fmt.Sprintf("worker 0 of 2 of %s/j0: w0\nprocess 1\n", f.root)
	if code := cmd.ProcessState.ExitCode(); code != 6 || out.String() != want {
		t.Errorf("code %d, want 6; output %q, want %q\n%s", code, out.String(), want, stderr.String())
	}
}

// TestNothingOfADutyOutlivesItsMember kills a member whose duty has started processes in groups of their own: one by
// itself, and one as the script of an operation. The guard kills these, too.
func TestNothingOfADutyOutlivesItsMember(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "coordinator" {}`)
	f.duty("coordinator", `say pid $$
setsid sh -c 'echo pid $$ >>`+f.log()+`; while :; do sleep 0.2; done' &
muster op checkpoint -- sh -c '(sh -c "echo pid \$\$ >>`+f.log()+`; while :; do sleep 0.2; done"; :); :'`)
	cmd, _ := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("pid ", 3)
	pids := f.pids()
	t.Cleanup(func() {
		if t.Failed() {
			send(t, syscall.SIGKILL, pids...)
		}
	})
	cmd.WaitDelay = 10 * time.Second // what goes on has its output
	kill(t, cmd)
	gone(t, pids)
}
