package command

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"muster/sim/rig"
)

// TestGuardThatHangsAtTheStart: a command that cannot be executed, since its disk hangs, holds nothing up.
func TestGuardThatHangsAtTheStart(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	until := &Lease{Session: rig.Dial(t, 10*time.Second, servers.Addrs()...)}
	started := make(chan error, 1)
	go func() {
		_, err := StartGuarded(ctx, []string{"/bin/sh", "-c", "exec sleep 1000"}, until,
			Launch{Path: "/bin/true", Argv: []string{"true"}, Environ: os.Environ(), Files: []*os.File{null, null, null}})
		started <- err
	}()
	if err := rig.Receive(t, started, "the end"); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Error(err)
	}
}

// guardCommandVariable makes this test binary the guard of a command.
const guardCommandVariable = "WRAP_TEST_GUARD_COMMAND"

// TestGuardOfAMemberThatIsFrozenAtTheStart: it knows the deadlines from the start on, and ends the command by itself.
func TestGuardOfAMemberThatIsFrozenAtTheStart(t *testing.T) {
	t.Parallel()
	c := newTestCommand(t, "ignores")
	guard := []string{"/usr/bin/env", guardCommandVariable + "=1", c.launch.Path}
	g, err := StartGuarded(t.Context(), guard, &Lease{Session: rig.Dial(t, 10*time.Second, servers.Addrs()...)}, c.launch)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	var r guardReport
	if err := g.reports.SetReadDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	if err := g.lines.Decode(&r); err != nil || r.End == nil || !r.End.Overdue || !r.End.Stopped {
		t.Errorf("%+v %+v %v", r, r.End, err)
	}
}

// TestGuardThatComesTooLate: the member was frozen after it had started the guard, say, and its time is over. The
// command is not started.
func TestGuardThatComesTooLate(t *testing.T) {
	t.Parallel()
	c := newTestCommand(t, "ignores")
	proxy := rig.Proxy(t, servers.Addrs()[0])
	until := &Lease{Session: rig.Dial(t, 2*time.Second, proxy.Addr())}
	proxy.Hang(true)
	rig.Await(t, "the end of the lease", func() bool { return until.Check() != nil })
	guard := []string{"/usr/bin/env", guardCommandVariable + "=1", c.launch.Path}
	g, err := StartGuarded(t.Context(), guard, until, c.launch)
	if err == nil {
		g.close()
	}
	if StartCode(err) != CannotRun || !strings.Contains(err.Error(), errOverdue.Error()) {
		t.Error(err)
	}
}
