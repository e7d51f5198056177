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

	"muster/dev/fault"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestDutyIsHandedOver to a newer version: the old command, of the duty or of "muster duty", has ended before the new
// one begins.
func TestDutyIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(f groupFixture){
		"command_of_the_duty": func(f groupFixture) { f.memberWithDuties(servers.Connect(), "old", "1.0.0") },
		"muster_duty": func(f groupFixture) {
			f.withCommand(servers.Connect(), "old", whileHeld(f.sayToo(obedient)), "--can", "main")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGroupFixture(t, "leader \"main\" {\n  prefer = \"newest\"\n}")
			f.duty("main", obedient)
			start(f)
			f.awaitLog("begins old", 1)
			f.memberWithDuties(servers.Connect(), "new", "2.0.0")
			f.awaitLog("begins new", 1)
			if want := "begins old\nasked old\nends old\nbegins new\n"; f.logged() != want {
				t.Errorf("got %q, want %q", f.logged(), want)
			}
		})
	}
}

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
	sendSignal(t, cmd, syscall.SIGTERM)
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

// generation is that of the group.
func (f groupFixture) generation(s *zkconn.Session) string {
	f.t.Helper()
	return f.generationOf(f.t, s, group.Kind(), "shop")
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
	sendSignal(t, cmd, syscall.SIGUSR1)
	endsWith(t, cmd, seen, 5)
}

// TestReplyOfAJoinIsLost: the session is closed, and the member joins in another one.
func TestReplyOfAJoinIsLost(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	proxy := newProxy(t, 0)
	lost := proxy.DropReply(func(op int32, req []byte) bool { return op == fault.OpMulti })
	_, seen := f.memberWithDuties(proxy.Addr(), "a", "1.0.0")
	<-lost
	seen.await(t, "joining again in another session")
	f.awaitLog("begins a", 1)
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
				sendSignal(t, cmd, syscall.SIGTERM)
			}
			stop()
			if again {
				tick := time.NewTicker(2 * command.Echo) // the same signal sooner is an echo
				defer tick.Stop()
				<-tick.C
				stop()
			}
			endsWith(t, cmd, seen, 143)
			gone(t, f.pids())
		})
	}
}

// withCommand starts a member that leaves its duty to a shell script.
func (f groupFixture) withCommand(servers, identity, script string, more ...string) (*exec.Cmd, *screen) {
	f.t.Helper()
	cmd := f.member(servers, identity, "1.0.0", append(more, "--", "sh", "-c", f.sayToo(script))...)
	return cmd, startOnScreen(f.t, cmd)
}

// TestCommandAsksForItsDuty: with "muster duty". The member holds it while the command lives, whose exit code it has.
func TestCommandAsksForItsDuty(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, "leader \"main\" {}\nleader \"other\" {}")
	s := rig.Dial(t, 0, servers.Addrs()...)
	cmd, seen := f.withCommand(servers.Connect(), "a", `muster duty other; say other $?
until epoch=$(muster duty main); do sleep 0.1; done
say "held by $MUSTER_IDENTITY since $epoch"
muster duty main -- sh -c 'exit $(( MUSTER_EPOCH == '$epoch' ? 7 : 1 ))'; say inside $?
trap 'exit 9' USR1
while :; do sleep 0.1; done`, "--can", "main")
	f.awaitLog("inside 7", 1)
	if log := f.logged(); !strings.Contains(log, "other 1\n") || !strings.Contains(log, "held by a since ") {
		t.Errorf("the command said\n%s", log)
	}
	if got := f.holder(s, "main"); got != "a" {
		t.Errorf("the holder is %q", got)
	}
	sendSignal(t, cmd, syscall.SIGUSR1)
	endsWith(t, cmd, seen, 9)
	if got := f.holder(s, "main"); got != "" {
		t.Errorf("the holder is %q when the member has left", got)
	}
}

// whileHeld is a script that runs a stubborn or obedient command whenever the duty is held.
func whileHeld(script string) string {
	return `cat > work.sh <<'END'
` + script + `
END
while :; do muster -q duty main -- sh work.sh; sleep 0.1; done`
}

// sayToo is what a script needs to write to the log.
func (f groupFixture) sayToo(script string) string {
	return fmt.Sprintf("say() { echo \"$*\" >> %s; }\n%s", f.log(), script)
}

// TestCommandOfMusterDutyEndsWithTheMember that is frozen or killed.
func TestCommandOfMusterDutyEndsWithTheMember(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"frozen": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGroupFixture(t, `leader "main" {}`)
			cmd, _ := f.withCommand(servers.Connect(), "a", whileHeld(f.sayToo(stubborn)), "--can", "main")
			f.awaitLog("begins a", 1)
			pids := f.pids()
			sendSignal(t, cmd, sig)
			gone(t, pids)
			if sig == syscall.SIGSTOP {
				_ = cmd.Process.Signal(syscall.SIGCONT)
			}
		})
	}
}

// TestMemberThatIsNotReady gets no duty before its command says so; then also after a lost session.
func TestMemberThatIsNotReady(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	proxy := newProxy(t, 0)
	cmd, seen := f.withCommand(proxy.Addr(), "a", `trap 'muster ready; say said' USR1
say waits
while :; do sleep 0.1; done`, "--duties", "duties", "--ready", "explicit")
	f.awaitLog("waits", 1)
	b, seenB := f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	f.awaitLog("begins b", 1) // a was there first, and sits before it
	if log := f.logged(); strings.Contains(log, "begins a") {
		t.Fatalf("not ready, and\n%s", log)
	}
	sendSignal(t, cmd, syscall.SIGUSR1)
	f.awaitLog("said", 1)
	proxy.Refuse(true)
	proxy.Cut()
	seen.await(t, "the membership is lost")
	proxy.Refuse(false)
	seen.awaitTimes(t, "joined "+f.root+"/shop as a", 2)
	sendSignal(t, b, syscall.SIGTERM)
	endsWith(t, b, seenB, 143)
	f.awaitLog("begins a", 1)
}

// health is the URL at which a process serves its health.
func health(t *testing.T, seen *screen) string {
	t.Helper()
	seen.await(t, "health is served at http://")
	_, rest, _ := strings.Cut(seen.String(), "health is served at ")
	url, _, _ := strings.Cut(rest, "\n")
	return url
}

// TestHealthOfAMember: whether it holds a duty, and counts.
func TestHealthOfAMember(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, "leader \"main\" {}\ncron \"tidy\" {\n  schedule = \"@every 1s\"\n}\n")
	f.duty("main", obedient)
	f.duty("tidy", "say tidied")
	cmd := f.member(servers.Connect(), "a", "1.0.0", "--duties", "duties", "--http", "127.0.0.1:0")
	seen := startOnScreen(t, cmd)
	f.awaitLog("begins a", 1)
	f.awaitLog("tidied", 2)
	base := health(t, seen)
	get := func(path string) string {
		code, body := httpGet(base + path)
		return fmt.Sprint(code, " ", body)
	}
	for path, want := range map[string]string{
		"/live": "200 ", "/ready": "200 running", "/duty/main": "200 held ", "/duty/tidy": "200 held ",
		"/duty/other": "503 not held",
	} {
		if got := get(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	metrics := get("/metrics")
	for _, want := range []string{
		`muster_member_held{duty="main"} 1`, `muster_member_held{duty="tidy"} 1`,
		`muster_member_runs_total{duty="tidy",result="succeeded"}`, "muster_member_takeover_seconds_count 2",
		`muster_member_joined 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in\n%s", want, metrics)
		}
	}
}

// TestCommandIsStoppedOnLoss if that is asked for.
func TestCommandIsStoppedOnLoss(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	proxy := newProxy(t, 0)
	cmd, seen := f.withCommand(proxy.Addr(), "a", stubborn, "--on-loss", "stop")
	f.awaitLog("begins a", 1)
	proxy.Hang(true)
	gone(t, f.pids())
	endsWith(t, cmd, seen, 8)
	proxy.Hang(false)
}

// TestSilentServerCostsNoDuty: the member finds another server before its commands are asked to end.
func TestSilentServerCostsNoDuty(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.declareWith("12s", `leader "main" {}`) // on a busy machine most of 4 s is soon over
	f.duty("main", obedient)
	a, b := newProxy(t, 0), newProxy(t, 0)
	b.Refuse(true)
	_, seen := f.memberWithDuties(a.Addr()+","+b.Addr(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	b.Refuse(false)
	a.Hang(true)
	rig.Await(t, "requests to the other server", func() bool { return b.Requests()[fault.OpSync] > 6 })
	if log := f.logged(); log != "begins a\n" {
		t.Errorf("the command did not go on:\n%s\n%s", log, seen)
	}
	a.Hang(false)
}

// TestLeaderIsFollowed through a change of the leader and a lost session.
func TestLeaderIsFollowed(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	proxy := newProxy(t, 0)
	none := result(f.command(servers.Connect(), "follow", f.root+"/shop/main", "--once", "--json"))
	if none.code != 3 || none.stdout != "{}\n" {
		t.Errorf("nobody holds it: %+v", none)
	}
	follow := func(more ...string) *screen {
		cmd := f.command(proxy.Addr(), append([]string{"follow", f.root + "/shop/main"}, more...)...)
		return startOnScreen(t, cmd)
	}
	lines := follow()
	beside := follow("--", "sh", "-c", `trap 'echo stopped; exit 0' TERM
echo "with $MUSTER_LEADER_IDENTITY at $MUSTER_LEADER_ADDRESS"; while :; do sleep 0.1; done`)
	hup := follow("--on-change", "hup", "--", "sh", "-c", `trap 'echo another' HUP
echo "first $MUSTER_LEADER_IDENTITY"; while :; do sleep 0.1; done`)
	a, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	beside.await(t, "with a at 127.0.0.1:7000")
	hup.await(t, "first a")
	lines.await(t, "127.0.0.1:7000 ")
	sendSignal(t, a, syscall.SIGTERM)
	endsWith(t, a, seen, 143)
	beside.await(t, "stopped")
	proxy.Refuse(true)
	proxy.Cut()
	f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	f.awaitLog("begins b", 1)
	proxy.Refuse(false)
	beside.await(t, "with b at")
	hup.await(t, "another")
	lines.awaitTimes(t, "127.0.0.1:7000 ", 2)
	once := result(f.command(servers.Connect(), "follow", "shop/main", "--root", f.root, "--once"))
	if once.code != 0 || !strings.HasSuffix(lines.String(), once.stdout) {
		t.Errorf("once: %+v; before: %s", once, lines)
	}
	for _, bad := range []string{"shop", "/shop", "a/b/c", "shop/"} {
		if got := result(f.command(servers.Connect(), "follow", bad)); got.code != 64 {
			t.Errorf("follow %s: %+v", bad, got)
		}
	}
	if got := result(f.command(servers.Connect(), "follow", filepath.Join(f.root, "x/y"))); got.code != 74 {
		t.Errorf("follow what is not there: %+v", got)
	}
}
