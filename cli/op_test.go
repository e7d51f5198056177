package cli_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/sim/rig"
)

// script writes a shell script beside the configuration. It appends to the log what it says.
func (f groupFixture) script(name, body string) {
	f.t.Helper()
	write(f.t, filepath.Join(f.dir, name), f.sayToo(body)+"\n")
}

// TestOperationIsResumed: a checkpoint of three steps is killed with SIGKILL in each step, before or after its work:
// the member, its muster op, or its muster step; at each moment one of them, or with MUSTER_SOAK=1 all. Another member
// goes on at that step, and does no other again.
func TestOperationIsResumed(t *testing.T) {
	t.Parallel()
	for v, victim := range []string{"member", "op", "step"} {
		for n, at := range []string{"one before", "one after", "two before", "two after", "three before", "three after"} {
			if n%3 != v && !rig.Long() {
				continue
			}
			t.Run(victim+" "+at, func(t *testing.T) {
				t.Parallel()
				operationIsResumed(t, victim, at)
			})
		}
	}
}

func operationIsResumed(t *testing.T, victim, at string) {
	f := newGroupFixture(t, `leader "main" {}`)
	f.duty("main", `muster op checkpoint -- sh checkpoint.sh || exit $?
say closed by $MUSTER_IDENTITY
while :; do sleep 0.2; done`)
	f.script("checkpoint.sh", `say op $PPID
one=$(muster step one -- sh work.sh one) || exit $?
two=$(muster step two -- sh work.sh two) || exit $?
three=$(muster step three -- sh work.sh three) || exit $?
say outputs $one $two $three`)
	f.script("work.sh", `stop() {
	[ "$MUSTER_IDENTITY/$*" = "a/`+at+`" ] || return 0
	say step $PPID; say stops
	while :; do sleep 0.1; done
}
say $1 begins, by $MUSTER_IDENTITY, again $MUSTER_STEP_AGAIN
stop $1 before
say did $1
stop $1 after
echo out-$1`)
	a, _ := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("stops", 1)
	f.memberWithDuties(servers.Connect(), "b", "1.0.0")
	pid := a.Process.Pid
	if victim != "member" {
		pid = f.numberAfter(victim + " ")
	}
	// On a slow machine the member may have lost its lease meanwhile, which has ended the process too.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	f.awaitLog("closed by b", 1)
	log := f.logged()
	for _, step := range []string{"one", "two", "three"} {
		want := 1
		if at == step+" after" {
			want = 2
		}
		if got := strings.Count(log, "did "+step+"\n"); got != want {
			t.Errorf("%s was done %d times, want %d", step, got, want)
		}
		again := strings.HasPrefix(at, step+" ")
		if got := strings.Contains(log, step+" begins, by b, again 1\n"); got != again {
			t.Errorf("%s was begun again by b: %t, want %t", step, got, again)
		}
	}
	if !strings.Contains(log, "outputs out-one out-two out-three\n") {
		t.Error("the outputs are missing")
	}
	if t.Failed() {
		t.Log(log)
	}
	got := result(f.command(servers.Connect(), "op", "list", "--group", "shop", "--duty", "main", "--root", f.root))
	if got.code != 0 || got.stdout != "" {
		t.Errorf("open operations: %+v", got)
	}
}
