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

	"github.com/google/go-cmp/cmp"

	"muster/sim/rig"
	"muster/tasks"
	"muster/tasks/store"
)

// executor is a running executor with a command of f.duty.
func (f queueFixture) executor(servers, identity string, more ...string) (*exec.Cmd, *screen) {
	f.t.Helper()
	cmd := f.process(servers, "executor", identity, more...)
	seen := startOnScreen(f.t, cmd)
	seen.await(f.t, "joined "+f.root+"/primes as "+identity)
	return cmd, seen
}

// script is the path of a command of f.duty.
func (f queueFixture) script(name string) string { return filepath.Join(f.dir, "duties", name) }

// outcomes is what became of the tasks of a batch, by index: the result, or "dead: why".
func (f queueFixture) outcomes(id string) map[int64]string {
	f.t.Helper()
	all := map[int64]string{}
	f.inStore(func(st *store.Queue) {
		for r, err := range tasks.Records(f.t.Context(), st, id, nil) {
			if err != nil {
				f.t.Fatal(err)
			}
			if _, twice := all[r.Index]; twice {
				f.t.Errorf("task %d has two results", r.Index)
			}
			if all[r.Index] = string(r.Result); r.Dead {
				all[r.Index] = "dead: " + r.Error
			}
		}
	})
	return all
}

func (f queueFixture) inStore(look func(st *store.Queue)) {
	f.t.Helper()
	c, err := store.FromEnvironment("redis://"+sharedRedis(f.t).Addr()+"/0", credentials)
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := store.Connect(f.t.Context(), c)
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.Close()
	look(store.New(client, f.generation(), f.root+"/primes"))
}

// numbered is the payloads 0, 1, …, and the same as outcomes.
func numbered(n int) (payloads [][]byte, want map[int64]string) {
	want = map[int64]string{}
	for i := range n {
		payloads, want[int64(i)] = append(payloads, fmt.Append(nil, i)), fmt.Sprint(i)
	}
	return payloads, want
}

func sendSignal(t *testing.T, cmd *exec.Cmd, sig syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// TestExecutor: a process a task, with the environment that the documentation lists, and without what is secret.
func TestExecutor(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "attempts = 2")
	f.duty("do", `case $1 in
fail) echo "disk $MUSTER_ATTEMPT is full" >&2; exit 3;;
never) exit 65;;
env) env | grep ^MUSTER_ | grep -v -e SERVERS -e LOG= | sort;;
*) printf '%s' "$1"; cat;;
esac`)
	f.submit("b", []byte("one"), []byte("fail"), []byte("never"), []byte("env"))
	cmd, seen := f.executor(servers.Connect(), "e", "--until-empty", "--", f.script("do"), "{}")
	endsWith(t, cmd, seen, 0)
	want := map[int64]string{
		0: "one", 1: "dead: exit 3: disk 2 is full", 2: "dead: exit 65",
		3: "MUSTER_ATTEMPT=1\nMUSTER_BATCH=b\nMUSTER_IDENTITY=e\nMUSTER_QUEUE=primes\nMUSTER_ROOT=" + f.root +
			"\nMUSTER_TASK=3\n",
	}
	if d := cmp.Diff(want, f.outcomes("b")); d != "" {
		t.Errorf("outcomes (-want +got):\n%s", d)
	}
	seen.await(t, "tasks: 2 done, 2 attempts failed, 1 dead at once, 0 given back")
}

// TestExecutorLines: two long-lived processes answer the tasks of two executors' worth.
func TestExecutorLines(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	payloads, want := numbered(20000)
	f.submit("b", payloads...)
	first, seenFirst := f.executor(servers.Connect(), "e1", "--lines", "--parallel", "2", "--until-empty", "--", "cat")
	second, seenSecond := f.executor(servers.Connect(), "e2", "--lines", "--max-tasks", "10", "--", "cat")
	endsWith(t, first, seenFirst, 0)
	f.submit("more", payloads[:100]...)
	endsWith(t, second, seenSecond, 0)
	seenSecond.await(t, "tasks: 10 done")
	if d := cmp.Diff(want, f.outcomes("b")); d != "" {
		t.Errorf("outcomes (-want +got):\n%s", d)
	}
}

// TestExecutorDies: nothing of its commands outlives it, and another executor does what it had.
func TestExecutorDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how  []string
		ends func(t *testing.T, cmd *exec.Cmd)
	}{
		"process":        {nil, kill},
		"lines":          {[]string{"--lines"}, kill},
		"process_frozen": {nil, func(t *testing.T, cmd *exec.Cmd) { sendSignal(t, cmd, syscall.SIGSTOP) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("first", stubborn)
			payloads, want := numbered(4)
			f.submit("b", payloads...)
			more := append(c.how, "--log-level", "debug", "--parallel", "2", "--", f.script("first"))
			cmd, seen := f.executor(servers.Connect(), "e1", more...)
			cmd.WaitDelay = 10 * time.Second // what goes on has its output
			f.awaitLog("pid ", 4)
			seen.awaitTimes(t, "a command was started", 2) // said when the guard knows its process group
			pids := f.pids()
			t.Cleanup(func() {
				if t.Failed() {
					send(t, syscall.SIGKILL, pids...)
				}
			})
			c.ends(t, cmd)
			other, seenOther := f.executor(servers.Connect(), "e2", "--", "cat")
			rig.Await(t, "all results", func() bool { return len(f.outcomes("b")) == len(want) })
			if strings.HasSuffix(name, "frozen") {
				sendSignal(t, cmd, syscall.SIGCONT)
				seen.await(t, "joining again")
			}
			gone(t, pids)
			if d := cmp.Diff(want, f.outcomes("b")); d != "" {
				t.Errorf("outcomes (-want +got):\n%s", d)
			}
			sendSignal(t, other, syscall.SIGTERM)
			endsWith(t, other, seenOther, 143)
		})
	}
}

// TestExecutorIsStopped: its commands are asked to end, and their tasks go back uncharged, whatever they end with. A
// second signal does not wait.
func TestExecutorIsStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command string
		signals []syscall.Signal
		code    int
		how     []string
	}{
		"in_order": {obedient, []syscall.Signal{syscall.SIGTERM}, 143, nil},
		"at_once":  {stubborn, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 130, nil},
		"lines":    {obedient, []syscall.Signal{syscall.SIGTERM}, 143, []string{"--lines"}},
		"lines_at_once": {
			stubborn, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 130, []string{"--lines"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("do", c.command)
			payloads, want := numbered(2)
			f.submit("b", payloads...)
			cmd, seen := f.executor(servers.Connect(), "e", append(c.how, "--parallel", "1", "--", f.script("do"))...)
			f.awaitLog("begins e", 1)
			begun := time.Now()
			for _, sig := range c.signals {
				sendSignal(t, cmd, sig)
				f.awaitLog("asked ", 1) // signals sent at once may arrive in another order
			}
			endsWith(t, cmd, seen, c.code)
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("took %s: the grace is 20 s", took)
			}
			gone(t, f.pids())
			if b := f.inRedis("b"); b.Done != 0 || b.Dead != 0 {
				t.Errorf("in redis: %+v", b)
			}
			f.duty("do", `[ $MUSTER_ATTEMPT = 1 ] && cat`)
			last, seenLast := f.executor(servers.Connect(), "last", "--until-empty", "--", f.script("do"))
			endsWith(t, last, seenLast, 0)
			if d := cmp.Diff(want, f.outcomes("b")); d != "" {
				t.Errorf("outcomes (-want +got):\n%s", d)
			}
		})
	}
}

// TestExecutorPauses: between SIGTSTP and SIGCONT it takes nothing, and what it has goes on.
func TestExecutorPauses(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.duty("do", `say begins; until [ -e go ]; do sleep 0.1; done; cat`)
	f.submit("b", []byte("0"))
	cmd, seen := f.executor(servers.Connect(), "e", "--parallel", "2", "--", f.script("do"))
	f.awaitLog("begins", 1)
	sendSignal(t, cmd, syscall.SIGTSTP)
	seen.await(t, "takes no more tasks")
	f.submit("b2", []byte("1"))
	if err := os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the first result", func() bool { return f.outcomes("b")[0] == "0" })
	if b := f.inRedis("b2"); b.Done > 0 || strings.Count(f.logged(), "begins") != 1 {
		t.Errorf("%+v; log %s", b, f.logged())
	}
	sendSignal(t, cmd, syscall.SIGCONT)
	rig.Await(t, "the second result", func() bool { return f.outcomes("b2")[0] == "1" })
	sendSignal(t, cmd, syscall.SIGTERM)
	endsWith(t, cmd, seen, 143)
}

// TestExecutorIsCutOff: it keeps working while ZooKeeper is silent. When its session is over, its commands are killed,
// and it joins again.
func TestExecutorIsCutOff(t *testing.T) {
	t.Parallel()
	for _, how := range [][]string{nil, {"--lines"}} {
		t.Run(strings.Join(append(how, "x"), ""), func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("do", `if [ ! -e again ]; then : >again
`+stubborn+`
fi; cat`)
			f.submit("b", []byte("0"))
			proxy := newProxy(t, 0)
			cmd, seen := f.executor(proxy.Addr(), "e", append(how, "--parallel", "1", "--", f.script("do"))...)
			f.awaitLog("begins e", 1)
			pids := f.pids()
			proxy.Hang(true)
			seen.await(t, "the membership is lost")
			gone(t, pids)
			proxy.Hang(false)
			rig.Await(t, "the result", func() bool { return f.outcomes("b")[0] == "0" })
			if n := f.inRedis("b").Falls; n > 1 {
				t.Errorf("falls: %d", n)
			}
			sendSignal(t, cmd, syscall.SIGTERM)
			endsWith(t, cmd, seen, 143)
		})
	}
}

// TestExecutorOfACancelledBatch: the command is ended, and the executor goes on.
func TestExecutorOfACancelledBatch(t *testing.T) {
	t.Parallel()
	for _, how := range [][]string{nil, {"--lines"}} {
		t.Run(strings.Join(append(how, "x"), ""), func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t, "")
			f.duty("do", `if [ ! -e again ]; then : >again
say pid $$
sleep 1000
fi; cat`)
			f.submit("b", []byte("0"), []byte("1"))
			cmd, seen := f.executor(servers.Connect(), "e", append(how, "--parallel", "1", "--", f.script("do"))...)
			f.awaitLog("pid ", 1)
			o, err := tasks.NewOperator(t.Context(), f.s, tasks.OperatorConfig{
				Root: f.root, Queue: "primes", By: "tester", Redis: tasks.Access{Getenv: credentials},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if err := o.Cancel(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			gone(t, f.pids())
			f.submit("b2", []byte("0"))
			rig.Await(t, "the next batch", func() bool { return f.outcomes("b2")[0] == "0" })
			sendSignal(t, cmd, syscall.SIGTERM)
			endsWith(t, cmd, seen, 143)
		})
	}
}

// TestExecutorOfABrokenCommand: one that never works ends the executor, and charges nothing.
func TestExecutorOfABrokenCommand(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.submit("b", []byte("0"))
	f.duty("broken", "echo no such database >&2; exit 3")
	cmd, seen := f.executor(servers.Connect(), "e", "--lines", "--", f.script("broken"))
	endsWith(t, cmd, seen, 126)
	seen.await(t, "no such database")
	f.duty("gone", "rm $0; cat") // it is there once
	f.submit("b2", []byte("0"))
	cmd, seen = f.executor(servers.Connect(), "e", "--parallel", "1", "--", f.script("gone"))
	endsWith(t, cmd, seen, 127)
	f.duty("first_attempt", "[ $MUSTER_ATTEMPT = 1 ] && cat")
	last, seenLast := f.executor(servers.Connect(), "last", "--until-empty", "--", f.script("first_attempt"))
	endsWith(t, last, seenLast, 0)
	if f.outcomes("b")[0]+f.outcomes("b2")[0] != "00" {
		t.Errorf("outcomes %v, %v", f.outcomes("b"), f.outcomes("b2"))
	}
}

// TestExecutorUsage: what is wrong is said with what to do, and nothing is started.
func TestExecutorUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, "")
	for args, c := range map[string]struct {
		code int
		text string
	}{
		"":                             {64, "executor needs the name of a queue"},
		"primes":                       {64, "needs a command after --"},
		"primes --parallel 0 -- cat":   {64, "--parallel 0 is not between 1 and 1000"},
		"primes --max-tasks -1 -- cat": {64, "--max-tasks -1 is negative"},
		"primes --lines=xml -- cat":    {64, `--lines "xml" is none of`},
		"primes -- there-is-no-such-":  {127, "there-is-no-such-"},
		"primes --join-timeout 4s --root /none -- cat": {74, "no such queue"},
	} {
		cmd := f.command(servers.Connect(), append([]string{"executor"}, strings.Fields(args)...)...)
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput() // the code says it
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.text) {
			t.Errorf("executor %s: exit %d, want %d and %q:\n%s", args, code, c.code, c.text, out)
		}
	}
}
