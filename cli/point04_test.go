package cli_test

import (
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// TestPoint04LockGoesWithAKilledApply: the lock of a killed apply is gone after its session timeout and a tick of the
// server. TestPoint04KillApply checks that the next plan has what is left.
func TestPoint04LockGoesWithAKilledApply(t *testing.T) {
	t.Parallel()
	const timeout, tick, slack = 2 * time.Second, 2 * time.Second, 30 * time.Second // slack for a busy machine
	f := newFixture(t, 100, "zookeeper {\n  session_timeout = \"2s\"\n}\n")
	proxy := newProxy(t, 20*time.Millisecond)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := newScreen()
	cmd := f.command(proxy.Addr(), "apply", "--yes", "--parallel", "1")
	cmd.Stdout, cmd.Stderr = seen, seen
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen.await(t, "[  3/100] ")
	places, _, gone, err := s.ChildrenW(t.Context(), f.root+"-home/lock/tests")
	if err != nil || len(places) != 1 {
		t.Fatalf("%v %v", places, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_ = cmd.Wait() // killed
	select {
	case <-gone:
		t.Logf("gone after %s", time.Since(start).Round(time.Millisecond))
	case <-time.After(timeout + tick + slack):
		t.Fatalf("the lock is still there %s after its holder was killed", time.Since(start))
	}
	expect(t, result(f.command(servers.Connect(), "apply", "--yes", "--lock-timeout", "0s")), 0, " updated.\n")
	expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "100 jobs match")
}
