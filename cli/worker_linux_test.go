package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	term.start(t, cmd)
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

// TestNothingOfACommandOutlivesItsWorker kills a worker whose command has started a process of its own. The kernel
// ends the command, and the guard the rest of its group.
func TestNothingOfACommandOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "coordinator" {}`)
	f.write(t, 1, `group "shop" { root = "`+f.root+`" }`)
	f.mustApply(t)
	script := "(while :; do sleep 0.2; done) & echo pid $$ pid $! | tr ' ' '\n' >>" + f.log() + "; wait"
	for i, cmd := range []*exec.Cmd{
		f.command(servers.Connect(), "worker", "--job", "j0", "--root", f.root, "--", "sh", "-c", script),
	} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		f.awaitLog("pid", 2*(i+1))
		kill(t, cmd)
	}
	gone(t, f.pids())
}
