package cli_test

import (
	"syscall"
	"testing"
	"time"
)

// A guard that is frozen does not do what its member says. So the member does it.

// TestFrozenGuardOfAMemberThatIsCutOff: the command ends before another member has the duty.
func TestFrozenGuardOfAMemberThatIsCutOff(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.declareWith("12s", `leader "main" {}`)
	f.duty("main", "say guard $PPID\n"+stubborn)
	proxy := newProxy(t, 0)
	cmd := f.member(proxy.Addr(), "a", "1.0.0", "--duties", "duties")
	seen := startOnScreen(t, cmd)
	f.awaitLog("begins a", 1)
	f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	pids := f.pids()
	stopGuard(t, f)
	proxy.Hang(true)
	if took := gone(t, pids); took > 11900*time.Millisecond {
		t.Errorf("the commands went on for %s, want less than the session timeout of 12 s", took)
	}
	f.awaitLog("begins b", 1)
	proxy.Hang(false)
	seen.awaitTimes(t, "joined "+f.root+"/shop as a", 2)
}

// TestFrozenGuardOfAMemberThatLeaves: its command is killed when the drain is over.
func TestFrozenGuardOfAMemberThatLeaves(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", "say guard $PPID\n"+stubborn)
	cmd, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	pids := f.pids()
	stopGuard(t, f)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if took := gone(t, pids); took > 40*time.Second {
		t.Errorf("the commands went on for %s, with a drain of 20 s", took)
	}
	endsWith(t, cmd, seen, 143)
}

// stopGuard freezes the guard of the first command.
func stopGuard(t *testing.T, f groupFixture) {
	t.Helper()
	if err := syscall.Kill(f.numberAfter("guard "), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
