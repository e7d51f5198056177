package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/dev/daemon"
	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/zkstate/znode"
)

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
