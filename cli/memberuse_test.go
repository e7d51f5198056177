package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/dev/zkserver"
	"muster/sim/rig"
)

// withCommand starts a member that leaves its duty to a shell script.
func (f groupFixture) withCommand(servers, identity, script string, more ...string) (*exec.Cmd, *screen) {
	f.t.Helper()
	script = fmt.Sprintf("say() { echo \"$*\" >> %s; }\n%s", f.log(), script)
	cmd := f.member(servers, identity, "1.0.0", append(more, "--", "sh", "-c", script)...)
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
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
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

// TestCommandOfMusterDutyEndsBeforeTheHandOver of its duty.
func TestCommandOfMusterDutyEndsBeforeTheHandOver(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, "leader \"main\" {\n  prefer = \"newest\"\n}")
	f.duty("main", obedient)
	f.withCommand(servers.Connect(), "old", whileHeld(f.sayToo(obedient)), "--can", "main")
	f.awaitLog("begins old", 1)
	f.memberWithDuties(servers.Connect(), "new", "2.0.0")
	f.awaitLog("begins new", 1)
	if want := "begins old\nasked old\nends old\nbegins new\n"; f.logged() != want {
		t.Errorf("got %q, want %q", f.logged(), want)
	}
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
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
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
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("said", 1)
	proxy.Refuse(true)
	proxy.Cut()
	seen.await(t, "the membership is lost")
	proxy.Refuse(false)
	seen.awaitTimes(t, "joined "+f.root+"/shop as a", 2)
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsWith(t, b, seenB, 143)
	f.awaitLog("begins a", 1)
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
	_, rest, _ := strings.Cut(seen.String(), "health is served at ")
	base, _, _ := strings.Cut(rest, "\n")
	get := func(path string) string {
		answer, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", string(body))
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

// TestOutsideOfAMember there is nobody to ask.
func TestOutsideOfAMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		text string
		env  []string
		args []string
	}{
		{64, "works inside a member's command", nil, []string{"duty", "main"}},
		{64, "works inside a member's command", nil, []string{"ready"}},
		{64, "there is no command after --", nil, []string{"duty", "main", "--"}},
		{1, "does not answer", []string{"MUSTER_SOCKET=/nowhere"}, []string{"duty", "main"}},
		{1, "does not answer", []string{"MUSTER_SOCKET=/nowhere"}, []string{"duty", "main", "--", "true"}},
	} {
		if got := run(t, c.env, c.args...); got.code != c.code || !strings.Contains(got.stderr, c.text) {
			t.Errorf("%q: %+v", c.args, got)
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
	rig.Await(t, "requests to the other server", func() bool { return b.Requests()[zkserver.OpSync] > 6 })
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
	if none.code != 1 || none.stdout != "{}\n" {
		t.Errorf("nobody holds it: %+v", none)
	}
	follow := func(more ...string) *screen {
		cmd := f.command(proxy.Addr(), append([]string{"follow", f.root + "/shop/main"}, more...)...)
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
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
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
