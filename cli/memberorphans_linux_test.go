package cli_test

import (
	"syscall"
	"testing"
	"time"
)

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
