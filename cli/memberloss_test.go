package cli_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/wrap"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// generation is that of the group.
func (f groupFixture) generation(s *zkconn.Session) string {
	f.t.Helper()
	body, _, err := s.Get(f.t.Context(), znode.Record(group.KindName, f.root, "shop"))
	if err != nil {
		f.t.Fatal(err)
	}
	rec, err := znode.DecodeRecordAt(group.Kind(), resource.Join(f.root, "shop"), body)
	if err != nil {
		f.t.Fatal(err)
	}
	return rec.Generation
}

// holder is who holds a duty; empty: nobody.
func (f groupFixture) holder(s *zkconn.Session, duty string) string {
	f.t.Helper()
	body, _, err := s.Get(f.t.Context(), znode.Held(f.root, f.generation(s), duty))
	if err != nil {
		return ""
	}
	h, err := znode.Decode[znode.Holder](body)
	if err != nil {
		f.t.Fatal(err)
	}
	return h.Identity
}

// TestGuardThatIsKilled takes the command with it. The member goes on, and nothing is left.
func TestGuardThatIsKilled(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", "sleep 3 # until its guard has said that it runs\nsay guard $PPID\n"+stubborn)
	f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	f.awaitLog("pid ", 2)
	pids := f.pids()
	guard, err := os.FindProcess(f.numberAfter("guard "))
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, pids)
	f.awaitLog("begins a", 2) // after a pause, since it is the only member
	gone(t, pids)
}

// TestMemberThatIsCutOff ends its commands at two thirds of the session timeout, joins as a new member, and goes on.
// Its own command goes on all the time.
func TestMemberThatIsCutOff(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", stubborn)
	proxy := newProxy(t, 0)
	cmd := f.member(proxy.Addr(), "a", "1.0.0", "--duties", "duties", "--",
		"sh", "-c", `trap "exit 5" USR1; echo "main command"; while :; do sleep 0.1; done`)
	seen := startOnScreen(t, cmd)
	seen.await(t, "main command")
	f.awaitLog("begins a", 1)
	f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	pids := f.pids()
	proxy.Hang(true)
	if took := gone(t, pids); took > 3900*time.Millisecond || took < 1900*time.Millisecond {
		t.Errorf("the commands ended after %s, want two thirds of 4 s", took)
	}
	f.awaitLog("begins b", 1)
	proxy.Hang(false)
	seen.awaitTimes(t, "joined "+f.root+"/shop as a", 2)
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	endsWith(t, cmd, seen, 5)
}

// TestReplyOfAJoinIsLost: the session is closed, and the member joins in another one.
func TestReplyOfAJoinIsLost(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	proxy := newProxy(t, 0)
	lost := proxy.DropReply(func(op int32, req []byte) bool { return op == zkserver.OpMulti })
	_, seen := f.memberWithDuties(proxy.Addr(), "a", "1.0.0")
	<-lost
	seen.await(t, "joining again in another session")
	f.awaitLog("begins a", 1)
}

// TestMemberThatIsRemoved by hand ends its commands and joins again.
func TestMemberThatIsRemoved(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", stubborn)
	_, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	s := rig.Dial(t, 0, servers.Addrs()...)
	pids := f.pids()
	if err := s.Delete(t.Context(), znode.Live(f.root, "shop", "a"), 0); err != nil {
		t.Fatal(err)
	}
	gone(t, pids)
	seen.awaitTimes(t, "joined "+f.root+"/shop as a", 2)
	f.awaitLog("begins a", 2)
}

// TestStubbornCommandIsKilled when the drain timeout of the group is over, and at once by a second signal.
func TestStubbornCommandIsKilled(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"drain": false, "second_signal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drain := map[bool]string{false: "1s", true: "10m"}[again]
			f := newGroupFixture(t, "leader \"main\" {\n}\n")
			f.write(t, 0, fmt.Sprintf("group \"shop\" {\n  root = %q\n  settle = \"1ms\"\n  leader \"main\" {}\n"+
				"  timeouts {\n    drain = %q\n  }\n}\n", f.root, drain))
			f.mustApply(t)
			f.duty("main", stubborn)
			cmd, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
			f.awaitLog("begins a", 1)
			stop := func() {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			if again {
				tick := time.NewTicker(2 * wrap.Echo) // the same signal sooner is an echo
				defer tick.Stop()
				<-tick.C
				stop()
			}
			endsWith(t, cmd, seen, 143)
			gone(t, f.pids())
		})
	}
}
