// Package browser tests muster serve from outside: in a real headless Chromium, with real ZooKeeper servers, a real
// Redis and real processes; and with clients that mean ill. It has no code of its own.
package browser

import (
	"context"
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
	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/sim/rig"
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
	rig.Until(w.t, patience, strings.Join(args, " "), func() string {
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
	rig.Until(w.t, patience, "muster status", func() string {
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

// patience is how long to wait for what must happen. A busy machine may be slow: only a test that fails waits so long.
const patience = 2 * time.Minute

// bin is the directory of muster.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-browser-"); err == nil {
		defer os.RemoveAll(bin)
		err = rig.Build(bin, map[string]string{"muster": "../.."})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	chromium.parent = ctx
	defer stopChromium()
	return m.Run()
}

func muster() string { return filepath.Join(bin, "muster") }

// town is a world in which there is something of everything: jobs of every status, workers as processes, a barrier that
// waits, a group with its members, a queue with a batch under way and a dead task, and applies of two stacks.
type town struct {
	*world
	workers map[string]*daemon.Process // by identity
	redis   *redisserver.Server
}

// townStatuses are the statuses of all resources of a town.
func townStatuses() map[string]string {
	return map[string]string{
		"/jobs/ingest": "running", "/jobs/nightly": "degraded", "/jobs/died": "stale", "/jobs/idle": "ready",
		"/jobs/hurt": "damaged", "/jobs/half": "forming", "/ops/backup": "completed", "/apps/shop": "running",
		"/queues/primes": "running",
	}
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{world: newWorld(t, zkserver.Options{}), workers: map[string]*daemon.Process{}}
	var err error
	if w.redis, err = redisserver.Start(t.Context(), redisserver.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.redis.Stop() })
	w.apply("etl", `"/jobs", "/apps", "/queues"`, w.declarations())
	w.apply("ops", `"/ops"`, `job "backup" {
  root = "/ops"
  workers = 1
  lifecycle { on_complete = "retain" }
}`)
	w.joinJobs()
	w.joinGroup()
	w.workQueue()
	hurt := w.generation("job", "/jobs", "hurt")
	if err := w.s.Delete(t.Context(), znode.Gate("/jobs", hurt), 0); err != nil {
		t.Fatal(err)
	}
	w.awaitStatus(townStatuses())
	return w
}

func (w *town) declarations() string {
	var b strings.Builder
	for _, j := range []struct {
		name    string
		workers int
	}{{"ingest", 3}, {"nightly", 2}, {"died", 2}, {"idle", 8}, {"hurt", 2}, {"half", 4}} {
		fmt.Fprintf(&b, `job %q {
  root    = "/jobs"
  workers = %d
  labels  = { team = "data", tier = "gold" }
  timeouts {
    session = "4s"
    barrier = "1h"
  }
}
`, j.name, j.workers)
	}
	fmt.Fprintf(&b, `group "shop" {
  root = "/apps"
  leader "coordinator" {}
  cron "nightly-report" {
    schedule = "0 2 * * *"
    timezone = "Europe/Berlin"
  }
}
queue "primes" {
  root  = "/queues"
  redis = "redis://%s/0"
}
`, w.redis.Addr())
	return b.String()
}

// worker starts a worker of a job.
func (w *town) worker(root, job, identity string, command ...string) {
	w.t.Helper()
	args := []string{"worker", "--root", root, "--job", job, "--identity", identity, "--run", "2026-11-22"}
	if command != nil {
		args = append(args, "--")
	}
	w.workers[identity] = w.world.start("", append(args, command...)...)
}

func (w *town) joinJobs() {
	w.worker("/jobs", "ingest", "ingest-a", "sh", "-c", "muster barrier loaded --round 1; exec sleep 1000")
	w.worker("/jobs", "ingest", "ingest-b")
	w.worker("/jobs", "ingest", "ingest-c")
	w.worker("/jobs", "nightly", "nightly-a")
	w.worker("/jobs", "nightly", "nightly-b", "sh", "-c", "muster wait && exit 3")
	for _, identity := range []string{"died-a", "died-b"} {
		w.worker("/jobs", "died", identity, "sh", "-c", "muster wait && exit 1")
	}
	w.worker("/jobs", "half", "half-a")
	w.worker("/ops", "backup", "backup-a", "true")
}

// joinGroup starts two members of the group. The first one holds every duty.
func (w *town) joinGroup() {
	w.t.Helper()
	duties := filepath.Join(w.dir, "duties")
	if err := os.Mkdir(duties, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for _, duty := range []string{"coordinator", "nightly-report"} {
		err := os.WriteFile(filepath.Join(duties, duty), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755)
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for i, version := range []string{"1.9.0", "2.1.0"} {
		w.world.start("joined", "member", "--root", "/apps", "--group", "shop", "--identity", fmt.Sprint("shop-", i),
			"--version", version, "--duties", duties)
	}
}

// workQueue has a batch with a dead task, of which all others are done, with its watcher, and one with two tasks in
// hand.
func (w *town) workQueue() {
	w.t.Helper()
	const task = `read n; case $n in 13) echo "unlucky number" >&2; exit 65;; slow*) exec sleep 1000;; esac; echo ok`
	w.world.start("", "executor", "primes", "--root", "/queues", "--identity", "hand-a", "--parallel", "2", "--",
		"sh", "-c", task)
	w.world.start("", "watcher", "primes", "--root", "/queues", "--identity", "eye-a", "--",
		"sh", "-c", "cat >results; exec sleep 1000")
	w.submit("numbers", "1\n2\n3\n13\n4\n5\n")
	w.submit("slow", strings.Repeat("slow\n", 20))
}

func (w *town) submit(id, tasks string) {
	w.t.Helper()
	cmd := w.command("submit", "primes", "--root", "/queues", "--id", id)
	cmd.Stdin = strings.NewReader(tasks)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("submit: %v\n%s", err, out)
	}
}

// generation is that of a resource.
func (w *world) generation(kind, root, name string) string {
	w.t.Helper()
	return w.recordField(kind, root, name, "generation")
}
