package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/dev/zkserver"
	"muster/sim/soak"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// world is a ZooKeeper, and what was started with it. Everything ends with the test.
type world struct {
	t        *testing.T
	dir      string
	ensemble *zkserver.Ensemble
	s        *zkconn.Session // the test's own
	environ  []string        // more of it
}

func newWorld(t *testing.T, o zkserver.Options) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	var err error
	if w.ensemble, err = zkserver.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ensemble.Stop() })
	w.s = w.dial()
	return w
}

// dial opens a session that lasts over a restart of the server.
func (w *world) dial(auth ...zkconn.Auth) *zkconn.Session {
	w.t.Helper()
	s, err := zkconn.Dial(w.t.Context(), zkconn.Config{
		Servers: w.ensemble.Addrs(), Timeout: 2 * time.Minute, Auth: auth,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

// command is muster with these arguments.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(muster(), args...)
	cmd.Dir = w.dir
	cmd.Env = append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + w.dir, "USER=tester",
		"MUSTER_SERVERS=" + w.ensemble.Connect(), "MUSTER_REDIS_HOSTS=127.0.0.1",
	}, w.environ...)
	return cmd
}

// run runs muster, which must end with one of these codes; without any, with 0.
func (w *world) run(args []string, codes ...int) string {
	w.t.Helper()
	var stdout, stderr strings.Builder
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String()
	}
	for _, code := range codes {
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == code {
			return stdout.String()
		}
	}
	w.t.Fatalf("muster %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	return ""
}

// apply applies a configuration. Its blocks follow "muster { stack … }".
func (w *world) apply(stack, roots, blocks string) {
	w.t.Helper()
	dir := filepath.Join(w.dir, stack)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		text := fmt.Sprintf("muster {\n  stack = %q\n  roots = [%s]\n}\n%s", stack, roots, blocks)
		err = os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(text), 0o644)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.run([]string{"apply", "--yes", dir})
}

// start starts a process of muster and waits until it says something.
func (w *world) start(says string, args ...string) *daemon.Process {
	w.t.Helper()
	p, err := daemon.Start(w.command(args...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		endProcess(p)
		if w.t.Failed() {
			w.t.Logf("muster %s wrote:\n%s", strings.Join(args, " "), p.Out.String())
		}
	})
	soak.Await(w.t, patience, strings.Join(args, " "), func() string {
		out := p.Out.String()
		if says == "" || strings.Contains(out, says) {
			return ""
		}
		if p.Ended() {
			w.t.Fatalf("muster %s ended:\n%s", strings.Join(args, " "), out)
		}
		return fmt.Sprintf("it says only %q", out)
	})
	return p
}

// endProcess asks a process to end, and kills it if it has not soon.
func endProcess(p *daemon.Process) {
	_ = p.OS.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-p.Done:
	case <-timer.C:
		_ = p.Kill()
	}
}

// statuses are what muster status says of each resource, by path.
func (w *world) statuses() map[string]string {
	w.t.Helper()
	var said struct {
		Jobs, Groups, Queues []struct{ Path, Status string }
	}
	out := w.run([]string{"status", "--json"}, 3)
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		w.t.Fatalf("%v in:\n%s", err, out)
	}
	all := map[string]string{}
	for _, r := range slices.Concat(said.Jobs, said.Groups, said.Queues) {
		all[r.Path] = r.Status
	}
	return all
}

// awaitStatus waits until resources have these statuses.
func (w *world) awaitStatus(want map[string]string) {
	w.t.Helper()
	soak.Await(w.t, patience, "muster status", func() string {
		have := w.statuses()
		for path, status := range want {
			if have[path] != status {
				return fmt.Sprintf("%s is %s, not %s", path, have[path], status)
			}
		}
		return ""
	})
}

// recordField is one text of the record of a resource.
func (w *world) recordField(kind, root, name, field string) string {
	w.t.Helper()
	body, _, err := w.s.Get(w.t.Context(), znode.Record(kind, root, name))
	if err != nil {
		w.t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	var value string
	if err := json.Unmarshal(body, &fields); err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(fields[field], &value); err != nil {
		w.t.Fatal(err)
	}
	return value
}
