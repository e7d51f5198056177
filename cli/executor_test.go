package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/tasks"
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
	client, st := f.redis()
	defer client.Close()
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
	return all
}

// numbered is the payloads 0, 1, …, and the same as outcomes.
func numbered(n int) (payloads [][]byte, want map[int64]string) {
	want = map[int64]string{}
	for i := range n {
		payloads, want[int64(i)] = append(payloads, fmt.Append(nil, i)), fmt.Sprint(i)
	}
	return payloads, want
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
	write(t, filepath.Join(f.dir, "go"), "")
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
read task # with --lines it is started before there is one
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

// TestDeadServer kills or pauses a real server in the middle of each command. The code is 8, every report says why, and
// when the server is back the next apply does the rest.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zkserver.Options{})
	s := e.Server(0)
	const short = `zookeeper {
  session_timeout = "3s"
}
`
	for name, args := range reportingCommands {
		for fault, c := range map[string]struct{ end, back func() error }{
			"killed": {s.Kill, func() error { return s.Restart(t.Context()) }},
			"paused": {s.Pause, s.Resume},
		} {
			t.Run(name+"_"+fault, func(t *testing.T) {
				f := newFixture(t, 10, "")
				expect(t, result(f.command(e.Connect(), "apply", "--yes")), 0)
				f.write(t, 30, short)
				proxy := rig.Proxy(t, s.Addr())
				ended := afterTenRequests(proxy, name, c.end)
				got := result(f.command(proxy.Addr(), append(args, f.reportFlags(t)...)...))
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if err := c.back(); err != nil {
					t.Fatal(err)
				}
				expect(t, got, 8, "muster: ", "zookeeper ", "  next: ")
				f.checkReports(t, 8, "zookeeper ")
				if name == "apply" {
					expect(t, got, 8, "Applied ", "  not started  job.j", "next: muster plan")
				}
				f.write(t, 30, "")
				expect(t, result(f.command(e.Connect(), "apply", "--yes")), 0)
				expect(t, result(f.command(e.Connect(), "plan", "--detailed-exitcode")), 0, "30 jobs match")
			})
		}
	}
}

// afterTenRequests calls f once a command has made its tenth request, or an apply its fifth change, and before the
// server has seen it.
func afterTenRequests(proxy *fault.Proxy, command string, f func() error) <-chan error {
	done := make(chan error, 1)
	var once sync.Once
	n := 0
	proxy.BeforeSend(func(op int32, _ []byte) bool {
		switch {
		case command == "apply" && op == fault.OpMulti:
			n += 2
		case command != "apply" && op != fault.OpPing:
			n++
		}
		if n >= 10 {
			once.Do(func() { done <- f() })
		}
		return false
	})
	return done
}

// TestHungServerIsNotALockForDrift: a --wait-lock that ends before the session does must not make drift report an apply
// in the way.
func TestHungServerIsNotALockForDrift(t *testing.T) {
	t.Parallel()
	for _, patience := range []string{"0s", "2s"} {
		for look := range 2 { // at the lock: before the comparison, and after it
			t.Run(fmt.Sprintf("%s_%d", patience, look), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, 5, "")
				f.mustApply(t)
				proxy := newProxy(t, 0)
				looks := 0
				proxy.BeforeSend(func(_ int32, request []byte) bool {
					if bytes.Contains(request, []byte(f.root+"-home/lock/tests")) {
						if looks == look {
							proxy.Hang(true)
						}
						looks++
					}
					return false
				})
				args := append([]string{"drift", "--wait-lock", patience}, f.reportFlags(t)...)
				got := result(f.command(proxy.Addr(), args...))
				expect(t, got, 8, "muster: ", "zookeeper ", "  next: ")
				f.checkReports(t, 8, "zookeeper ")
			})
		}
	}
}

// TestAHostileRedisHarmsOnlyItsQueue: the page, the API and the commands say what it is, and other queues are shown as
// before. When it is a Redis again, all goes on; an executor and a submitter have waited.
func TestAHostileRedisHarmsOnlyItsQueue(t *testing.T) {
	t.Parallel()
	const says = "this Redis does not answer as a Redis does"
	var reply atomic.Pointer[string] // to every request; nil: what Redis says
	liar := rig.Liar(t, sharedRedis(t).Addr(), func(request []string) io.Reader {
		lie := reply.Load()
		if lie == nil || strings.EqualFold(request[0], "hello") && strings.HasPrefix(*lie, "*1\r\n*0") {
			return nil
		}
		return strings.NewReader(*lie)
	})
	_, port, _ := net.SplitHostPort(liar)
	root := "/hostile-" + port
	f := newQueueFixture(t, fmt.Sprintf("}\nqueue \"hostile\" {\n  root = %q\n  redis = \"redis://%s/0\"\n", root,
		liar))
	f.completed("good", []byte("one"))
	config := tasks.SubmitConfig{Root: root, Queue: "hostile", ID: "b", By: "t", Redis: tasks.Access{Getenv: credentials}}
	if _, err := tasks.Submit(t.Context(), f.s, config, tasks.Payloads([]byte("a"))); err != nil {
		t.Fatal(err)
	}
	// eventually repeats a command: on a busy machine so long a reply is not read within the limit.
	eventually := func(want string, args ...string) outcome {
		o := result(f.command(servers.Connect(), args...))
		for i := 0; i < 20 && !strings.Contains(o.stdout+o.stderr, want); i++ {
			o = result(f.command(servers.Connect(), args...))
		}
		return o
	}
	s := startServe(t, f.command(servers.Connect(), "serve", "--listen", "127.0.0.1:0"))
	path := root + "/hostile"
	for _, lie := range []string{
		"*2000000000\r\n", strings.Repeat("*1\r\n", 3_000_000), "$2000000000\r\nx", "%2000000000\r\n", "*1\r\n*0\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		reply.Store(&lie)
		s.says("/resource"+path, says)
		s.says("/api/batches"+path, says)
		if code, body := s.get("/api/batches" + path); code != http.StatusBadGateway {
			t.Errorf("the API: %d %s", code, body)
		}
		if code, body := s.get("/api/batches" + f.root + "/primes"); code != 200 || !strings.Contains(body, "good") {
			t.Errorf("the other queue: %d %s", code, body)
		}
		expect(t, eventually(says, "queue", "batches", path), 3, says)
		expect(t, eventually("next: look what answers there", "queue", "batches", path+"/b", "--timeout", "1s"), 8, says)
		if strings.HasPrefix(lie, "HTTP") {
			break
		}
		reply.Store(nil)
		s.says("/api/batches"+path, `"waiting": 1`)
	}
	start := func(args ...string) *screen {
		cmd := f.command(servers.Connect(), append([]string{args[0], "--root", root}, args[1:]...)...)
		cmd.Stdin = strings.NewReader("two\n")
		seen := startOnScreen(t, cmd)
		seen.await(t, says)
		return seen
	}
	executor := start("executor", "hostile", "--identity", "e", "--parallel", "1", "--", "/bin/true")
	submit := start("submit", "hostile", "--id", "c")
	reply.Store(nil)
	executor.await(t, "joined "+path+" as e")
	submit.await(t, "c\n")
	s.says("/api/batches"+path, `"done": 1`)
}
