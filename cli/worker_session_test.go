package cli_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// worker is a command that joins a job below the fixture's root.
func (f fixture) worker(servers, job, identity string, more ...string) *exec.Cmd {
	return f.command(servers, append([]string{
		"worker", "--job", job, "--root", f.root, "--identity", identity, "--advertise", "127.0.0.1:7000",
	}, more...)...)
}

// startOnScreen starts a command and returns the screen with its output.
func startOnScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	seen := newScreen()
	cmd.Stdout, cmd.Stderr = seen, seen
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

// sessionOf returns the session of a live znode.
func sessionOf(t *testing.T, s *zkconn.Session, live string) int64 {
	t.Helper()
	stat, there, err := s.Exists(t.Context(), live)
	if err != nil || !there {
		t.Fatalf("%s: %v, %v", live, there, err)
	}
	return stat.EphemeralOwner
}

// consLine returns the line about a session in the server's answer to "cons". It has the timeout.
func consLine(t *testing.T, session int64) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", servers.Addrs()[0], 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var all []byte
	if _, err = io.WriteString(conn, "cons"); err == nil {
		all, err = io.ReadAll(conn)
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, fmt.Sprintf("sid=0x%x,", session)) {
			return line
		}
	}
	t.Fatalf("no session 0x%x in\n%s", session, all)
	return ""
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

// TestWaitingWorkerTakesTheSessionTimeoutOfTheRecord: when it started there was no Record, or another one.
func TestWaitingWorkerTakesTheSessionTimeoutOfTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, "")
	s := rig.Dial(t, 0, servers.Addrs()...)
	first := f.worker(servers.Connect(), "a", "first")
	seen := startOnScreen(t, first)
	seen.await(t, "waiting for the job to be created: "+f.root+"/a (1m")
	f.write(t, 0, f.jobBlock("a", "7s"))
	f.mustApply(t)
	seen.await(t, "as worker 0 of 2: first")
	if line := consLine(t, sessionOf(t, s, f.root+"/a/first")); !strings.Contains(line, "to=7000,") {
		t.Errorf("the record says 7 s: %s", line)
	}
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // the job is stale now
	seen = startOnScreen(t, f.worker(servers.Connect(), "a", "other"))
	seen.await(t, "waiting for a new generation")
	f.write(t, 0, f.jobBlock("a", "6s"))
	f.mustApply(t)
	seen.await(t, "as worker 0 of 2: other")
	if line := consLine(t, sessionOf(t, s, f.root+"/a/other")); !strings.Contains(line, "to=6000,") {
		t.Errorf("the record says 6 s now: %s", line)
	}
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
			"j0", func(op int32, _ []byte) bool { return op == zkserver.OpGetData },
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
			if n := proxy.Requests()[zkserver.OpCloseSession]; n != 1 {
				t.Errorf("%d sessions were closed", n)
			}
		})
	}
}

// TestTimeoutInsideTheCommand: muster barrier and muster wait end with 70 at their timeout, while the worker has no
// session.
func TestTimeoutInsideTheCommand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, "")
	f.write(t, 0, f.jobBlock("a", "4s"))
	f.mustApply(t)
	proxy := newProxy(t, 0)
	script := `echo begun; read line
muster barrier x --timeout 1s; echo "barrier $?"
muster wait --timeout 1s; echo "wait $?"`
	cmd := f.worker(proxy.Addr(), "a", "w", "--", "sh", "-c", script)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	seen := startOnScreen(t, cmd)
	seen.await(t, "begun")
	proxy.Refuse(true)
	proxy.Cut()
	fmt.Fprintln(input, "go on")
	seen.await(t, "wait 70")
	for _, text := range []string{
		"s at barrier x, and its outcome is not known: this worker lost its session with ZooKeeper",
		"  next: check the worker's connection to ZooKeeper and ask again, with --round, for an arrival stands",
		"barrier 70\n", "and it is not known whether all 2 workers have joined",
	} {
		if !strings.Contains(seen.String(), text) {
			t.Errorf("no %q in\n%s", text, seen)
		}
	}
	proxy.Refuse(false)
}
