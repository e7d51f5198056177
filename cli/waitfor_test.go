package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/exitcode"
)

// waitThroughOutage starts "muster wait" behind a proxy, and during an outage runs a worker of the job, which
// completes. It returns how the waiting ended after the outage.
func waitThroughOutage(t *testing.T, job string, args ...string) (code int, seen *screen) {
	t.Helper()
	f := newFixture(t, 0, "")
	f.write(t, 0, fmt.Sprintf(`zookeeper {
  session_timeout = "3s"
}
job "again" {
  root    = %[1]q
  workers = 1
}
job "once" {
  root    = %[1]q
  workers = 1
  lifecycle {
    on_complete = "remove"
  }
}
`, f.root))
	f.mustApply(t)
	proxy := newProxy(t, 0)
	wait := f.command(proxy.Addr(), append([]string{"wait", job}, args...)...)
	seen = startOnScreen(t, wait)
	seen.await(t, "ready (0 of 1 joined")
	proxy.Refuse(true)
	proxy.Cut()
	seen.await(t, "no server of ZooKeeper answers")
	expect(t, result(f.worker(servers.Connect(), job, "w", "-q", "--", "/bin/true")), 0)
	proxy.Refuse(false)
	_ = wait.Wait() // the code tells
	return wait.ProcessState.ExitCode(), seen
}

// TestWaitSeesARunThatCompletedDuringAnOutage: the job is ready again, and its record tells of the run.
func TestWaitSeesARunThatCompletedDuringAnOutage(t *testing.T) {
	t.Parallel()
	code, seen := waitThroughOutage(t, "again", "--for", "completed")
	if code != exitcode.Done {
		t.Errorf("code %d\n%s", code, seen)
	}
	seen.await(t, "/again is completed.")
}

// TestWaitDoesNotGuessWhyAJobIsGone: it was removed during an outage, by its last worker or by an apply. Nobody can
// tell.
func TestWaitDoesNotGuessWhyAJobIsGone(t *testing.T) {
	t.Parallel()
	code, seen := waitThroughOutage(t, "once", "--for", "completed,stale")
	if code != exitcode.Incomplete {
		t.Errorf("code %d\n%s", code, seen)
	}
	seen.await(t, "/once is gone: somebody deleted it while it was waited for")
}

// TestWaitKnowsHowARemovedJobEnded: wait is frozen while the run ends, and then finds nothing.
func TestWaitKnowsHowARemovedJobEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end        func(t *testing.T, f fixture, worker *exec.Cmd)
		code       int
		says       string
		workerCode int
	}{
		"completed": {
			func(t *testing.T, f fixture, worker *exec.Cmd) {
				write(t, filepath.Join(f.dir, "go"), "")
			}, exitcode.Done, "/once is completed.", 0,
		},
		"terminated": {
			func(t *testing.T, f fixture, worker *exec.Cmd) {
				expect(t, result(f.command(servers.Connect(), "terminate", "once", "--yes")), 0)
			}, exitcode.Incomplete, "/once is gone: somebody deleted it while it was waited for", 143,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 0, "")
			f.write(t, 0, fmt.Sprintf(`zookeeper {
  session_timeout = "2m"
}
job "once" {
  root    = %q
  workers = 1
  lifecycle {
    on_complete = "remove"
  }
}
`, f.root))
			f.mustApply(t)
			worker := f.worker(servers.Connect(), "once", "w", "--", "/bin/sh", "-c", "until [ -e go ]; do sleep 0.05; done")
			own := startOnScreen(t, worker)
			wait := f.command(servers.Connect(), "wait", "once", "--for", "completed")
			seen := startOnScreen(t, wait)
			seen.await(t, "running (1 of 1 joined")
			sendSignal(t, wait, syscall.SIGSTOP)
			c.end(t, f, worker)
			endsWith(t, worker, own, c.workerCode)
			sendSignal(t, wait, syscall.SIGCONT)
			_ = wait.Wait()
			if code := wait.ProcessState.ExitCode(); code != c.code || !strings.Contains(seen.String(), c.says) {
				t.Errorf("code %d\n%s", code, seen)
			}
		})
	}
}

// TestWaitWithoutAServerAtItsEnd: the code says that no server answered (8), not that the job needs longer (4).
func TestWaitWithoutAServerAtItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "zookeeper {\n  session_timeout = \"3s\"\n}\n")
	f.mustApply(t)
	proxy := newProxy(t, 0)
	wait := f.command(proxy.Addr(), "wait", "j0", "--for", "running", "--timeout", "20s")
	seen := startOnScreen(t, wait)
	seen.await(t, "ready (0 of 2 joined")
	proxy.Refuse(true)
	proxy.Cut()
	endsWith(t, wait, seen, exitcode.Unreachable)
	seen.await(t, "no server of ZooKeeper answers")
}

// TestWatchOutlivesAnOutage: status --watch prints when the last status was read, and goes on in another session.
func TestWatchOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	const remark = "\nZooKeeper does not answer. This is how it was at "
	for name, c := range map[string]struct {
		flags        []string
		ready, stale string
		remarks      int
	}{
		"text": {nil, "/j0  ready", "/j0  stale", 1},
		"json": {[]string{"--json"}, `"ready"`, `"stale"`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 1, `zookeeper {
  session_timeout = "3s"
}
`)
			f.mustApply(t)
			proxy := newProxy(t, 0)
			watch := f.command(proxy.Addr(), append([]string{"status", "--watch"}, c.flags...)...)
			watch.Env = append(watch.Env, "MUSTER_LOG=warn")
			seen := startOnScreen(t, watch)
			seen.await(t, c.ready)
			proxy.Refuse(true)
			proxy.Cut()
			seen.await(t, "zookeeper session ended")
			seen.awaitTimes(t, remark, c.remarks)
			expect(t, result(f.worker(servers.Connect(), "j0", "w", "-q", "--", "/bin/false")), 1, "")
			proxy.Refuse(false)
			seen.await(t, c.stale)
			sendSignal(t, watch, os.Interrupt)
			_ = watch.Wait() // the code tells
			if code := watch.ProcessState.ExitCode(); code != 130 || strings.Count(seen.String(), remark) != c.remarks {
				t.Errorf("code %d\n%s", code, seen)
			}
		})
	}
}
