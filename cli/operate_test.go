package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/sim/rig"
)

// operate runs a command in the directory of the group and checks its code, and that it printed each text.
func (f groupFixture) operate(code int, args string, texts ...string) {
	f.t.Helper()
	expect(f.t, result(f.command(servers.Connect(), strings.Fields(args)...)), code, texts...)
}

// showing runs a command until what it prints matches a pattern.
func (f groupFixture) showing(args, pattern string) {
	f.t.Helper()
	shown := regexp.MustCompile(pattern)
	rig.Await(f.t, args+" shows "+pattern, func() bool {
		return shown.MatchString(result(f.command(servers.Connect(), strings.Fields(args)...)).stdout)
	})
}

// TestRunOfACron: an operator's run by a real member, that is done, fails, cannot be accepted, and whose end is
// awaited.
func TestRunOfACron(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `
  leader "main" {}
  cron "nightly" {
    schedule = "0 0 29 2 *"
    retries  = 0
  }`)
	f.duty("nightly", `echo report of ${MUSTER_TICK:-nobody}; test ! -e broken || { echo no disk; exit 3; }`)
	f.operate(64, "run shop/main", "is a leader")
	f.operate(74, "run shop/nigthly", "did you mean nightly?")
	f.operate(4, "run shop/nightly", "no member of the group is live")
	f.memberWithDuties(servers.Connect(), "a", "1.0")
	f.showing("explain shop/nightly", "by hand 1  done ")
	f.operate(0, "run shop/nightly --wait", "the run is done on a with exit code 0", "report of nobody\n")
	f.operate(0, "run shop/nightly", "shop/nightly: the run ")
	f.operate(0, "handover shop/nightly --unpin", "not pinned; a has it")
	if err := os.WriteFile(filepath.Join(f.dir, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.operate(1, "run shop/nightly --wait", "the run failed on a with exit code 3", "no disk\n")
	f.showing("status shop", `nightly  by hand 4  failed  [0-9]+[sm] +3 `)
	f.showing("status shop --json", `"asked_by": "tester@`)
	f.operate(0, "pause shop/nightly", "paused")
	f.operate(4, "run shop/nightly", "the duty is paused by tester@", "next: muster resume ")
	f.operate(0, "resume shop/nightly", "resumed; ")
	f.showing("explain shop/nightly", "by hand 5  failed")
}

// TestHandoverOfALeader between real members: the holder is asked, its command gets TERM, and the other begins.
func TestHandoverOfALeader(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", obedient)
	f.memberWithDuties(servers.Connect(), "a", "1.0")
	f.awaitLog("begins a", 1)
	f.memberWithDuties(servers.Connect(), "b", "1.0")
	f.operate(0, "handover shop/main --to b", "/shop/main: ") // a may have handed it over already
	f.awaitLog("begins b", 1)
	if got := f.logged(); !strings.Contains(got, "asked a\nends a\nbegins b\n") {
		t.Errorf("the commands said:\n%s", got)
	}
	f.showing("status shop", "main: pinned to b")
	f.showing("explain shop/main", "because       the duty is pinned to it")
}
