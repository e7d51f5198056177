package cli_test

import (
	"fmt"
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
	_ = wait.Wait() // the code tells
	if code := wait.ProcessState.ExitCode(); code != exitcode.Unreachable {
		t.Errorf("code %d\n%s", code, seen)
	}
	seen.await(t, "no server of ZooKeeper answers")
}
