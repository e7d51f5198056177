package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/sim/soak"
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
			if n%3 != v && !soak.Long() {
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

// TestCodesOfStateAndOperations: what each command ends with, inside the command of a duty.
func TestCodesOfStateAndOperations(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.declareWith("20s", `leader "main" {}`) // when a session is lost, the script begins again
	f.script("steps.sh", `muster step s -- echo recorded
muster step s -- echo recorded 2>/dev/null; say step twice $?
muster step large -- head -c 65537 /dev/zero >/dev/null 2>&1; say large output $?
muster step largest -- head -c 65536 /dev/zero | wc -c | while read -r n; do say $n bytes; done
muster step fails -- sh -c 'exit 9'; say step that fails $?
muster op o -- true 2>/dev/null; say second runner $?
muster op abort o 2>/dev/null; say abort while it runs $?
exit $CODE`)
	f.script("other.sh", `[ "$(muster step s -- echo recorded)" = recorded ] && say adopted`)
	f.duty("main", `t() { name=$1; shift; "$@" 2>> errors; say "$name" $?; }
t get-none muster state get k
printf 'a\0b' | muster state put k; say put $?
[ "$(muster state get k | od -An -c | tr -d ' ')" = 'a\0b' ] && say same bytes
head -c 16777217 /dev/zero > big; t too-large muster state put k big
head -c 300000 /dev/zero > file; t put-file muster state put other file
muster state get other | cmp - file && say same file
muster state list | awk '{print $1, $2, $4}' | while read -r line; do say listed $line; done
t bad-key muster state put a/b file
t no-file muster state put k nowhere
MUSTER_EPOCH=1 t former muster state put k file
MUSTER_EPOCH=x t no-epoch muster state put k file
t rm muster state rm other
t rm-again muster state rm other
t no-op muster op abort o
t step-outside muster step s -- true
CODE=5 t open muster op o -- sh steps.sh
CODE=6 t other-environment muster op o -- sh steps.sh
t other-script muster op o -- sh other.sh
t list muster op list
t adopt muster op o --adopt -- sh other.sh
t closed muster op abort o
t not-found muster op o -- ./nowhere
CODE=5 t open-again muster op o -- sh steps.sh
MUSTER_EPOCH=1 t former-op muster op o -- true
t abort muster op abort o
say end
while :; do sleep 0.2; done`)
	_, seen := f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("end\n", 1)
	once := "step twice 64\nlarge output 73\n65536 bytes\nstep that fails 9\nsecond runner 6\nabort while it runs 6\n"
	want := "get-none 74\nput 0\nsame bytes\ntoo-large 73\nput-file 0\nsame file\nlisted k 3 a\nlisted other 300000 a\n" +
		"bad-key 64\nno-file 1\nformer 72\nno-epoch 64\nrm 0\nrm-again 74\nno-op 74\nstep-outside 64\n" +
		once + "open 5\n" + once + "other-environment 6\nother-script 7\nlist 0\nadopted\nadopt 0\nclosed 74\n" +
		"not-found 127\n" + once + "open-again 5\nformer-op 72\nabort 0\nend\n"
	if d := cmp.Diff(want, f.logged()); d != "" {
		errors, _ := os.ReadFile(filepath.Join(f.dir, "errors"))
		t.Errorf("codes (-want +got):\n%s\n%s", d, errors)
	}
	if out := seen.String(); strings.Count(out, "recorded\n") != 3 {
		t.Errorf("the output of a step was not passed on, or not printed again:\n%s", out)
	}
}

// TestAnOperationWhoseScriptCannotBeExecutedEnds: nothing of it was done, so any script may begin it. One with a step
// that has begun stays open.
func TestAnOperationWhoseScriptCannotBeExecutedEnds(t *testing.T) {
	t.Parallel()
	f := newGroupFixture(t, `leader "main" {}`)
	f.declareWith("20s", `leader "main" {}`) // when a session is lost, the script begins again
	f.duty("main", `t() { name=$1; shift; "$@" 2>> errors; say "$name" $?; say open $(muster op list | cut -d' ' -f1); }
echo nonsense > program; chmod +x program
printf '#!/nowhere/sh\n' > script; chmod +x script
t no-program muster op a -- ./program
t no-interpreter muster op b -- ./script
t in-its-script muster op c -- sh -c 'exit 126'
t not-found-in-it muster op d -- sh -c './nowhere'
t other-script muster op a -- true
t begun muster op e -- sh -c 'muster step s -- true; ./nowhere'
t resumed muster op e --adopt -- ./program
say end
while :; do sleep 0.2; done`)
	f.memberWithDuties(servers.Connect(), "a", "1.0.0")
	f.awaitLog("end\n", 1)
	want := "no-program 126\nopen\nno-interpreter 127\nopen\nin-its-script 126\nopen\nnot-found-in-it 127\nopen\n" +
		"other-script 0\nopen\nbegun 127\nopen e\nresumed 126\nopen e\nend\n"
	if d := cmp.Diff(want, f.logged()); d != "" {
		errors, _ := os.ReadFile(filepath.Join(f.dir, "errors"))
		t.Errorf("codes (-want +got):\n%s\n%s", d, errors)
	}
}
