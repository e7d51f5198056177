package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/zkstate"
)

// TestKillApply kills apply with SIGKILL at random moments of a large change (creates, updates, replaces,
// deletes), 28 times. Each time every job is complete or missing, the next plan has exactly what is left, and the next
// apply finishes it. With MUSTER_SOAK=1 there are 104 kills, and the change is twice as large.
func TestKillApply(t *testing.T) {
	t.Parallel()
	loops, runs, jobs := 4, 7, 150
	if os.Getenv("MUSTER_SOAK") != "" {
		loops, runs, jobs = 8, 13, 300
	}
	var mu sync.Mutex
	midway := 0
	var all sync.WaitGroup
	for range loops {
		l := newKillLoop(t, jobs)
		all.Go(func() {
			for run := range runs {
				left, err := l.killOnce(t.Context(), run)
				if err != nil {
					t.Errorf("run %d of %s: %v", run, l.root, err)
					return
				}
				mu.Lock()
				if left > 0 && left < l.changes {
					midway++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d kills, %d of them in the middle of the changes", loops*runs, midway)
	if midway < loops*runs/8 {
		t.Errorf("only %d of %d kills hit the middle of the changes", midway, loops*runs)
	}
}

// killLoop applies one configuration, in a root and a home of its own, again and again.
type killLoop struct {
	dir, root string
	jobs      int
	changes   int // of the present run
	reader    *zkstate.Reader
}

func newKillLoop(t *testing.T, jobs int) *killLoop {
	s := rig.Dial(t, 30*time.Second, servers.Addrs()...)
	l := &killLoop{dir: t.TempDir(), root: "/kill-" + zkstate.NewID()[:12], jobs: jobs}
	l.reader = zkstate.NewReader(s, l.root+"/home", zkstate.Job())
	return l
}

// declared maps the names of the jobs of a run to their declarations. Every run changes every job.
func (l *killLoop) declared(run int) map[string]string {
	want := map[string]string{}
	for i := range l.jobs {
		if i%3 == run%3 { // this run deletes it, the next one creates it
			continue
		}
		want[fmt.Sprintf("j%03d", i)] = fmt.Sprintf("workers = %d, join = %dm", 1+(run+i)%2, 1+run%5)
	}
	return want
}

func (l *killLoop) write(run int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "muster {\n  stack = \"kill\"\n  home = %q\n}\n", l.root+"/home")
	fmt.Fprintf(&b, "zookeeper {\n  session_timeout = \"2s\"\n}\n")
	want := l.declared(run)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		workers, join, _ := strings.Cut(want[name], ", ")
		fmt.Fprintf(&b, "job %q {\n  root = %q\n  %s\n  timeouts {\n    join = %q\n  }\n}\n",
			name, l.root+"/jobs", workers, strings.TrimPrefix(join, "join = "))
	}
	return os.WriteFile(filepath.Join(l.dir, "jobs.hcl"), []byte(b.String()), 0o600)
}

// muster runs the binary and returns its output and exit code. On a busy machine a session may be lost, so it tries
// again.
func (l *killLoop) muster(ctx context.Context, args ...string) (out string, code int, err error) {
	const unreachable, attempts = 8, 10
	for range attempts {
		if out, code, err = l.runOnce(ctx, args...); code != unreachable {
			break
		}
	}
	return out, code, err
}

func (l *killLoop) runOnce(ctx context.Context, args ...string) (string, int, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "muster"), append(args, l.dir)...)
	cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out) + stderr.String(), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

// killOnce starts an apply, kills it, checks what is there, and applies the rest. It returns how many changes were
// left.
func (l *killLoop) killOnce(ctx context.Context, run int) (left int, err error) {
	if err := l.write(run); err != nil {
		return 0, err
	}
	before, err := l.differing(ctx, run)
	if err != nil {
		return 0, err
	}
	l.changes = len(before)
	if err := l.killApply(ctx); err != nil {
		return 0, err
	}
	want, err := l.differing(ctx, run)
	if err != nil {
		return 0, err
	}
	got, err := l.planned(ctx)
	if err != nil {
		return 0, err
	}
	if d := cmp.Diff(want, got); d != "" {
		return 0, fmt.Errorf("the plan after the kill (-left +planned):\n%s", d)
	}
	if out, code, err := l.muster(ctx, "apply", "--yes", "--max-delete", "1000"); code != 0 || err != nil {
		return 0, fmt.Errorf("the next apply ended with %d, %v:\n%s", code, err, out)
	}
	if out, code, err := l.muster(ctx, "plan", "--detailed-exitcode"); code != 0 || err != nil {
		return 0, fmt.Errorf("the plan after the next apply ended with %d, %v:\n%s", code, err, out)
	}
	return len(want), l.recorded(ctx, len(want))
}

// recorded: if changes were left, the last apply is in the history as finished, and if only some were left, the one
// before it, which was killed, as unfinished.
func (l *killLoop) recorded(ctx context.Context, left int) error {
	found, err := l.reader.History(ctx, "kill", 2)
	switch {
	case err != nil || left == 0:
		return err
	case len(found) == 0 || found[0].State != history.Finished || found[0].Results["applied"] != left:
		return fmt.Errorf("the last apply has made %d changes, and its history is %+v", left, found)
	case left < l.changes && (len(found) < 2 || found[1].State != history.Unfinished):
		return fmt.Errorf("an apply was killed that had %d changes left, and its history is %+v", left, found)
	}
	return nil
}

// killApply kills an apply at a random moment. On a busy machine one may lose its session before: another is tried.
func (l *killLoop) killApply(ctx context.Context) (err error) {
	for range 10 {
		if err = l.killOneApply(ctx); err == nil {
			break
		}
	}
	return err
}

func (l *killLoop) killOneApply(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "muster"), "apply", "--yes", "--max-delete", "1000",
		"--parallel", strconv.Itoa(1+rand.N(8)), l.dir)
	cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout // where the lines of the changes go
	if err := cmd.Start(); err != nil {
		return err
	}
	// Each change prints a line. The kill comes after one of them, or after the plan. All lines fit into the
	// pipe, so a slow reader does not hold apply up.
	after, made, planned := rand.N(l.changes), 0, false
	for lines := bufio.NewScanner(out); (!planned || made < after) && lines.Scan(); planned = true {
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "[") {
			made++
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if !planned {
		return errors.New("apply ended before it printed anything")
	}
	return nil
}

// differing reads ZooKeeper and returns the jobs that are not as the run declares them, without package plan. An
// incomplete job is an error.
func (l *killLoop) differing(ctx context.Context, run int) ([]string, error) {
	state, err := l.reader.Read(ctx, []string{l.root + "/jobs"})
	if err != nil {
		return nil, err
	}
	want := l.declared(run)
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for path, o := range state.Found {
		name := strings.TrimPrefix(path, l.root+"/jobs/")
		if status := o.Status(); status != resource.StatusReady {
			return nil, fmt.Errorf("%s is %s: %s", name, status, o.Problem)
		}
		have := fmt.Sprintf("workers = %d, join = %s", job.Of(o.Record).Workers, job.Of(o.Record).Timeouts.Join)
		if want[name] == have {
			delete(names, name)
		} else {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// planned returns the jobs that a plan would change.
func (l *killLoop) planned(ctx context.Context) ([]string, error) {
	out, code, err := l.muster(ctx, "plan", "--format", "json")
	if code != 0 || err != nil {
		return nil, fmt.Errorf("plan ended with %d, %v:\n%s", code, err, out)
	}
	var doc struct {
		Changes []struct {
			Name   string `json:"name"`
			Change struct {
				Actions []string `json:"actions"`
			} `json:"change"`
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range doc.Changes {
		if !slices.Equal(c.Change.Actions, []string{"no-op"}) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// startSlowApply starts an apply of 100 jobs, one after the other, and returns when some of them are there.
func startSlowApply(t *testing.T, more string) (fixture, *exec.Cmd, *screen) {
	t.Helper()
	f := newFixture(t, 100, more)
	cmd := f.command(newProxy(t, 20*time.Millisecond).Addr(), "apply", "--yes", "--parallel", "1")
	seen := startOnScreen(t, cmd)
	seen.await(t, "[  3/100] ")
	return f, cmd, seen
}

// TestLockGoesWithAKilledApply: the lock of a killed apply is gone after its session timeout and a tick of the
// server. TestKillApply checks that the next plan has what is left.
func TestLockGoesWithAKilledApply(t *testing.T) {
	t.Parallel()
	const timeout, tick, slack = 2 * time.Second, 2 * time.Second, 30 * time.Second // slack for a busy machine
	f, cmd, _ := startSlowApply(t, "zookeeper {\n  session_timeout = \"2s\"\n}\n")
	_, _, gone, err := rig.Dial(t, 0, servers.Addrs()...).ChildrenW(t.Context(), f.root+"-home/lock/tests")
	if err != nil {
		t.Fatal(err)
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

// result runs the real binary.
func result(cmd *exec.Cmd) outcome {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{-1, "", err.Error()}
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// expect checks the code and that the output contains each text.
func expect(t *testing.T, got outcome, code int, texts ...string) {
	t.Helper()
	if got.code != code {
		t.Fatalf("code %d, want %d\n%s%s", got.code, code, got.stdout, got.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(got.stdout+got.stderr, text) {
			t.Fatalf("no %q in\n%s%s", text, got.stdout, got.stderr)
		}
	}
}

func TestLostLockStopsTheApply(t *testing.T) {
	t.Parallel()
	f, cmd, seen := startSlowApply(t, "")
	s := rig.Dial(t, 0, servers.Addrs()...)
	places, _, err := s.Children(t.Context(), f.root+"-home/lock/tests")
	if err != nil || len(places) != 1 {
		t.Fatalf("%v %v", places, err)
	}
	if err := s.Delete(t.Context(), f.root+"-home/lock/tests/"+places[0], 0); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	got := outcome{cmd.ProcessState.ExitCode(), seen.String(), ""}
	expect(t, got, 4, "not started", "was removed", "next: muster plan")
}

// copyCerts copies certificates to dir, as ca.pem, me.pem and me.key.
func copyCerts(t *testing.T, certs zkserver.Certs, dir string) {
	t.Helper()
	files := map[string]string{"ca.pem": certs.CAFile, "me.pem": certs.CertFile, "me.key": certs.KeyFile}
	for name, from := range files {
		write(t, filepath.Join(dir, name), read(t, from))
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zkserver.Options{TLS: true, ClientCert: true})
	certs := e.Certs()
	server := e.Connect() // the address is in the certificate
	f := newFixture(t, 1, "")
	flags := []string{"--tls-ca", certs.CAFile, "--tls-cert", certs.CertFile, "--tls-key", certs.KeyFile}
	expect(t, result(f.command(server, append(flags, "plan")...)), 0, "Plan: 1 to create")
	expect(t, result(f.command(server, append(flags[:4:4], "plan")...)), 64, "without its key")
	expect(t, result(f.command(server, "plan", "--tls-ca", certs.KeyFile)), 1, "holds no certificate")
	expect(t, result(f.command(server, "plan", "--tls-ca", "nowhere")), 1, "nowhere")
	expect(t, result(f.command(server, "plan")), 8, "unreachable")

	cmd := f.command(server, "apply", "--yes")
	cmd.Env = append(cmd.Env,
		"MUSTER_TLS_CA="+certs.CAFile, "MUSTER_TLS_CERT="+certs.CertFile, "MUSTER_TLS_KEY="+certs.KeyFile)
	expect(t, result(cmd), 0, "Applied 1 of 1")

	copyCerts(t, certs, f.dir)
	f.write(t, 2, `zookeeper {
  tls {
    ca_file   = "ca.pem"
    cert_file = "me.pem"
    key_file  = "me.key"
  }
}
`)
	cmd = f.command(server, "plan", "--out", "p.json", f.dir)
	expect(t, result(cmd), 0, "Plan: 1 to create")
	expect(t, result(f.command(server, "apply", "p.json")), 0, "Applied 1 of 1")
	if saved, err := os.ReadFile(f.dir + "/p.json"); err != nil || bytes.Contains(saved, []byte(f.dir)) {
		t.Errorf("the plan file names a local path: %v\n%s", err, saved)
	}
}
