package cli_test

import (
	"os"
	"strings"
	"testing"
)

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
			if err := watch.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			_ = watch.Wait() // the code tells
			if code := watch.ProcessState.ExitCode(); code != 130 || strings.Count(seen.String(), remark) != c.remarks {
				t.Errorf("code %d\n%s", code, seen)
			}
		})
	}
}
