package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"muster/dev/zkserver"
	"muster/sim/rig"
)

// TestDeadServer kills or pauses a real server in the middle of each command. The code is 8, every report says why, and
// when the server is back the next apply does the rest.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	e, err := zkserver.Start(context.Background(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
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
func afterTenRequests(proxy *zkserver.Proxy, command string, f func() error) <-chan error {
	done := make(chan error, 1)
	var once sync.Once
	n := 0
	proxy.BeforeSend(func(op int32, _ []byte) bool {
		switch {
		case command == "apply" && op == zkserver.OpMulti:
			n += 2
		case command != "apply" && op != zkserver.OpPing:
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
