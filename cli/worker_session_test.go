package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muster/dev/fault"
)

// worker is a command that joins a job below the fixture's root.
func (f fixture) worker(servers, job, identity string, more ...string) *exec.Cmd {
	return f.command(servers, append([]string{
		"worker", "--job", job, "--root", f.root, "--identity", identity, "--advertise", "127.0.0.1:7000",
	}, more...)...)
}

// startOnScreen starts a command and returns the screen with its output, or only its standard error if it has another
// standard output.
func startOnScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	seen := newScreen()
	if cmd.Stderr = seen; cmd.Stdout == nil {
		cmd.Stdout = seen
	}
	cmd.WaitDelay = time.Minute // a command that is left behind may hold the pipes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the kill is why
	})
	return seen
}

// jobBlock declares a job of two workers below the fixture's root.
func (f fixture) jobBlock(name, session string) string {
	return fmt.Sprintf(`job %q {
  root    = %q
  workers = 2
  timeouts {
    session = %q
    stale   = "1s"
  }
}
`, name, f.root, session)
}

// TestWorkerWaitsForZooKeeper when it starts, and after it lost its session before it joined. It prints what is wrong.
func TestWorkerWaitsForZooKeeper(t *testing.T) {
	t.Parallel()
	const waiting = "waiting for ZooKeeper (1m40s at most): zookeeper is unreachable: "
	f := newFixture(t, 0, "")
	f.write(t, 0, f.jobBlock("a", "3s"))
	f.mustApply(t)
	makeStale(t, f)
	proxy := newProxy(t, 0)
	proxy.Refuse(true)
	other := f.worker(proxy.Addr(), "a", "other")
	other.Env = append(other.Env, "MUSTER_LOG=warn")
	seen := startOnScreen(t, other)
	seen.await(t, waiting+proxy.Addr()+": hangs up")
	proxy.Refuse(false)
	seen.await(t, "waiting for a new generation")
	proxy.Refuse(true)
	proxy.Cut()
	seen.await(t, "the session is lost; joining again")
	seen.awaitTimes(t, waiting, 2)
	proxy.Refuse(false)
	f.write(t, 0, f.jobBlock("a", "2s"))
	f.mustApply(t)
	seen.await(t, "as worker 0 of 2: other")
}

// makeStale makes job a stale: its worker fails.
func makeStale(t *testing.T, f fixture) {
	t.Helper()
	expect(t, result(f.worker(servers.Connect(), "a", "first", "-q", "--", "/bin/false")), 1, "")
}

// TestJoinTimeoutSpansSessions: a new session does not start it again, also if none can be opened.
func TestJoinTimeoutSpansSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, "")
	f.write(t, 0, f.jobBlock("a", "3s"))
	f.mustApply(t)
	makeStale(t, f)
	proxy := newProxy(t, 0)
	other := f.worker(proxy.Addr(), "a", "other", "--join-timeout", "15s")
	seen := startOnScreen(t, other)
	seen.await(t, "waiting for a new generation")
	proxy.Refuse(true)
	proxy.Cut()
	_ = other.Wait() // the code tells
	code := other.ProcessState.ExitCode()
	if code != 8 || !strings.Contains(seen.String(), "time is over: zookeeper is unreachable") {
		t.Errorf("code %d\n%s", code, seen)
	}
}

// TestOutageWhenTheJobIsCreated: a worker then needs a session with the timeout of the job. It waits for a server, and
// does not take its own older session for another process.
func TestOutageWhenTheJobIsCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, "")
	proxy := newProxy(t, 0)
	seen := startOnScreen(t, f.worker(proxy.Addr(), "a", "w", "--takeover", "fail"))
	seen.await(t, "waiting for the job to be created")
	proxy.Refuse(true)
	f.write(t, 0, f.jobBlock("a", "7s"))
	f.mustApply(t)
	seen.await(t, "waiting for ZooKeeper (")
	proxy.Refuse(false)
	seen.await(t, "as worker 0 of 2: w\n")
}

// TestWorkerClosesItsSession when it cannot join, so that nobody has to wait until the session expires.
func TestWorkerClosesItsSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	for name, c := range map[string]struct {
		job   string
		delay func(op int32, req []byte) bool
		code  int
		says  string
	}{
		"no_job": {"nope", nil, 74, "no such job: waited "},
		"no_record": {
			"j0", func(op int32, _ []byte) bool { return op == fault.OpGetData },
			8, "time is over: zookeeper is unreachable: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, 0)
			if c.delay != nil {
				proxy.AfterReply(func(op int32, req []byte) bool {
					if c.delay(op, req) {
						proxy.Delay(time.Minute)
					}
					return false
				})
			}
			cmd := f.worker(proxy.Addr(), c.job, "w", "--join-timeout", "5s", "--", "/bin/true")
			expect(t, result(cmd), c.code, c.says)
			if n := proxy.Requests()[fault.OpCloseSession]; n != 1 {
				t.Errorf("%d sessions were closed", n)
			}
		})
	}
}
