package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/member"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// TestMemberRunsTheCommandOfALeader: with the environment that the documentation lists, until it is stopped.
func TestMemberRunsTheCommandOfALeader(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", `env | grep ^MUSTER_ | grep -v -e SERVERS -e LOG= | sort | while read -r line; do say "$line"; done
`+obedient)
	cmd, seen := f.memberWithDuties(servers.Connect(), "a", "2.1.0")
	f.awaitLog("begins a", 1)
	var names []string
	for line := range strings.Lines(f.logged()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "MUSTER_EPOCH", "MUSTER_SOCKET":
			value = map[bool]string{true: "set", false: "empty"}[value != ""]
		}
		if strings.HasPrefix(name, "MUSTER_") {
			names = append(names, name+"="+value)
		}
	}
	want := []string{
		"MUSTER_ADDRESS=127.0.0.1:7000", "MUSTER_DUTY=main", "MUSTER_EPOCH=set", "MUSTER_GROUP=shop",
		"MUSTER_IDENTITY=a", "MUSTER_ROOT=" + f.root,
		"MUSTER_SOCKET=set", "MUSTER_VERSION=2.1.0",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsWith(t, cmd, seen, 143)
	if log := f.logged(); !strings.Contains(log, "asked a\nends a\n") {
		t.Errorf("the command was not ended in order:\n%s", log)
	}
	seen.await(t, "muster: exit 143 is muster's: stopped by SIGTERM while no command ran; a of "+
		f.root+"/shop has left")
}

// TestDutyIsHandedOver to a newer version: the old command has ended before the new one begins.
func TestDutyIsHandedOver(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, "leader \"main\" {\n  prefer = \"newest\"\n}")
	f.duty("main", obedient)
	f.memberWithDuties(servers.Connect(), "old", "1.0.0")
	f.awaitLog("begins old", 1)
	f.memberWithDuties(servers.Connect(), "new", "2.0.0")
	f.awaitLog("begins new", 1)
	if want := "begins old\nasked old\nends old\nbegins new\n"; f.logged() != want {
		t.Errorf("got %q, want %q", f.logged(), want)
	}
}

// TestLeaderThatFailsIsBlamed: another member gets the duty.
func TestLeaderThatFailsIsBlamed(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", `say begins $MUSTER_IDENTITY
[ $MUSTER_IDENTITY != a ] || exit 3
while :; do sleep 0.1; done`)
	f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	f.awaitLog("begins b", 1)
}

// TestMemberRunsTicks: with the tick in the environment; the output is kept, and goes on to the member's.
func TestMemberRunsTicks(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, "cron \"tidy\" {\n  schedule = \"@every 1s\"\n  retries = 1\n}")
	f.duty("tidy", `echo "out $MUSTER_ATTEMPT"; echo "err $MUSTER_TICK" >&2; say "$MUSTER_TICK"
[ $MUSTER_ATTEMPT = 2 ]`)
	cmd, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("Z\n", 4)
	seen.await(t, "out 2")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	endsWith(t, cmd, seen, 143)
	s := rig.Dial(t, 0, servers.Addrs()...)
	runs := f.runs(s, "tidy")
	first := runs[len(runs)-1]
	tail := first.Tail
	if first.By != "a" || first.Attempt != 2 || !strings.Contains(tail, "out 2\n") ||
		!strings.Contains(tail, "err "+first.Tick.Format("2006-01-02T15:04:05Z")+"\n") {
		t.Errorf("the first run is recorded as %+v, tail %q", first, tail)
	}
}

// runs are what is recorded of a cron, the newest first.
func (f groupFixture) runs(s *zkconn.Session, duty string) []member.RunRecord {
	f.t.Helper()
	runs, err := member.Runs(f.t.Context(), s, f.root, f.generation(s), duty, 100)
	if err != nil || len(runs) == 0 {
		f.t.Fatalf("runs: %v %v", runs, err)
	}
	return runs
}

// TestMemberEndsWithTheCodeThatSaysWhy it has not joined.
func TestMemberEndsWithTheCodeThatSaysWhy(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	for name, c := range map[string]struct {
		code int
		text string
		args string
	}{
		"version":     {64, `not a version: "new"`, "--group shop --version new"},
		"no_version":  {64, "--version is missing", "--group shop"},
		"no_group":    {64, "--group: ", "--version 1"},
		"no_command":  {64, "--can is for the command", "--group shop --version 1 --can main"},
		"no_duties":   {64, "--duties: ", "--group shop --version 1 --duties nowhere"},
		"address":     {64, `"7000" is not HOST:PORT`, "--group shop --version 1 --address 7000"},
		"not_there":   {74, "no such group", "--group x --version 1 --join-timeout 1s"},
		"wait_held":   {72, "another process holds", "--group shop --version 1 --join-timeout 1s"},
		"held":        {72, "another process holds", "--group shop --version 1 --takeover fail"},
		"not_found":   {127, "nowhere", "--group shop --version 1 -- ./nowhere"},
		"unreachable": {8, "", "--group shop --version 1 --join-timeout 1s --servers " + refusingAddr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"member", "--root", f.root, "--identity", "a"}, strings.Fields(c.args)...)
			got := result(f.command(servers.Connect(), args...))
			if got.code != c.code || !strings.Contains(got.stderr, c.text) {
				t.Errorf("got %d, want %d and %q:\n%s", got.code, c.code, c.text, got.stderr)
			}
		})
	}
}

// TestFilesThatAreNoDuties are named: not executable, no name of a duty, no file. Hidden files are nothing.
func TestFilesThatAreNoDuties(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	f.duty("a:b", obedient)
	f.duty(".hidden", obedient)
	dir := filepath.Join(f.dir, "duties")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "README"), []byte("x"), 0o644), os.Mkdir(filepath.Join(dir, "lib"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("begins a", 1)
	for _, text := range []string{"README is no duty of this member: it is not executable", "lib is no duty",
		"a:b is no duty"} {
		seen.await(t, text)
	}
	if strings.Contains(seen.String(), "hidden") {
		t.Errorf("a hidden file is named:\n%s", seen)
	}
}
