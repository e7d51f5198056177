package differ

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkmodel"
	"muster/dev/zkserver"
	"muster/sim/needs"
)

// TestKazooCannotTellTheModel: the recipes of kazoo, a client in Python that others wrote, come to the same results on
// the model as on a real server: locks, elections, barriers, queues and more, with several clients, some of which die.
func TestKazooCannotTellTheModel(t *testing.T) {
	t.Parallel()
	python := needs.Program(t, "python3", "python3")
	const module = "/usr/lib/python3/dist-packages/kazoo"
	if _, err := os.Stat(module); err != nil {
		needs.Missing(t, "no %s (apt-get install python3-kazoo)", module)
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		python = "/usr/bin/python3" // Debian's own, which has the module
	}
	results := make(chan string, 1)
	model, server := modelAddr(t), realAddr(t)
	go func() { results <- recipes(t, python, model) }()
	want := recipes(t, python, server)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(<-results, "\n")); diff != "" {
		t.Errorf("results differ (-real server +model):\n%s", diff)
	}
	if n := strings.Count(want, "\n"); n < 100 {
		t.Errorf("only %d lines:\n%s", n, want)
	}
}

func realAddr(t *testing.T) string {
	ensemble, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ensemble.Stop(); err != nil {
			t.Error(err)
		}
	})
	return ensemble.Connect()
}

func modelAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := zkmodel.New(zkmodel.Options{MinTimeout: leastTimeout, MaxTimeout: mostTimeout})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// recipes runs testdata/recipes.py and returns what it printed.
func recipes(t *testing.T, python, addr string) string {
	begun := time.Now()
	cmd := exec.CommandContext(t.Context(), python, "testdata/recipes.py", addr)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts a process
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Errorf("recipes.py %s: %v\n%s\n%s", addr, err, out.String(), messages.String())
	}
	t.Logf("%d lines in %.1f s", bytes.Count(out.Bytes(), []byte("\n")), time.Since(begun).Seconds())
	return out.String()
}
