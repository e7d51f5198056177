package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate"
)

// fixture is a directory with a configuration, and a root for its jobs that no other test uses.
type fixture struct {
	dir, root string
}

// newFixture writes a configuration of n jobs j0, j1 and so on, followed by more.
func newFixture(t *testing.T, n int, more string) fixture {
	t.Helper()
	f := fixture{dir: t.TempDir(), root: "/t-" + zkstate.NewID()[:12]}
	f.write(t, n, more)
	return f
}

func (f fixture) write(t *testing.T, n int, more string) {
	t.Helper()
	hcl := fmt.Sprintf(`muster {
  stack = "tests"
  home  = "%[1]s-home"
  roots = ["%[1]s"]
}
job "j" {
  for_each = toset([for i in range(%[2]d) : "j${i}"])
  root     = "%[1]s"
  name     = each.key
  workers  = 2
}
%[3]s`, f.root, n, more)
	if err := os.WriteFile(filepath.Join(f.dir, "main.hcl"), []byte(hcl), 0o644); err != nil {
		t.Fatal(err)
	}
}

// command runs the real binary in the directory of the fixture.
func (f fixture) command(servers string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "muster"), args...)
	cmd.Dir = f.dir
	cmd.Env = []string{"MUSTER_SERVERS=" + servers, "USER=tester", "TERM=xterm"}
	return cmd
}

// newProxy starts a proxy to the server that delays every reply.
func newProxy(t *testing.T, by time.Duration) *zkserver.Proxy {
	t.Helper()
	proxy := rig.Proxy(t, servers.Addrs()[0])
	proxy.Delay(by)
	return proxy
}

// screen keeps what a command has written. A command may have it as both streams.
type screen struct {
	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{} // has room for one value, which says that something was written
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Write(b)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.seen.String(), "\r\n", "\n")
}

// await waits until text has been written.
func (s *screen) await(tb testing.TB, text string) {
	tb.Helper()
	s.awaitTimes(tb, text, 1)
}

func (s *screen) awaitTimes(tb testing.TB, text string, n int) {
	tb.Helper()
	late := time.After(3 * time.Minute)
	for strings.Count(s.String(), text) < n {
		select {
		case <-s.more:
		case <-late:
			tb.Fatalf("never saw %q (%d times) in:\n%s", text, n, s)
		}
	}
}
