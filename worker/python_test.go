package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// python is a worker of examples/python, which is written from docs/protocol.md alone.
type python struct {
	t   *testing.T
	cmd *exec.Cmd

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *python) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// said is what it has printed so far.
func (p *python) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// startPython starts a worker that passes the barrier "loaded" and then runs a script.
func startPython(t *testing.T, j job.Job, identity, run, script string) *python {
	t.Helper()
	p := &python{t: t}
	p.cmd = exec.Command(needs.Program(t, "python3", "python3"), "../examples/python/worker.py", j.Path(), identity,
		"127.0.0.1:9000", "loaded", "sh", "-c", script)
	p.cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect(), "MUSTER_RUN="+run,
		"PYTHONDONTWRITEBYTECODE=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.kill()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", identity, p.said())
		}
	})
	return p
}

// awaitLine waits until it has printed this.
func (p *python) awaitLine(want string) {
	p.t.Helper()
	rig.Await(p.t, "it prints "+want, func() bool { return strings.Contains(p.said(), want) })
}

func (p *python) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// ends waits for its end, which must have this code.
func (p *python) ends(code int) {
	p.t.Helper()
	if _ = p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != code {
		p.t.Errorf("exit code %d, want %d", p.cmd.ProcessState.ExitCode(), code)
	}
}

// joinRun joins as a worker of a run.
func joinRun(t *testing.T, j job.Job, identity, run string) *worker.Member {
	t.Helper()
	m, err := worker.Join(t.Context(), dial(t), ofRun(j, run, identity))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAWorkerInPython: a worker that is written from docs/protocol.md alone works beside one of ours. It waits for the
// job, joins first and is killed at a barrier; its next life has the same id, finds its arrival, and goes through; it
// completes as the last one, and resets the job.
func TestAWorkerInPython(t *testing.T) {
	t.Parallel()
	j := declare(2, func(j *job.Job) {
		j.Timeouts.Session = resource.Duration(8 * time.Second)
		j.Labels = map[string]string{"note": "<ümlaut & \u2028>"} // what a program might write in another way
	})
	store := newStore(t, j)
	first := startPython(t, j, "py", "monday", "exit 9")
	first.awaitLine("waiting: no such job")
	create(t, store, j)
	first.awaitLine("worker 0 of 2")
	m := joinRun(t, j, "go", "monday")
	if m.ID != 1 {
		t.Fatalf("the second one has id %d", m.ID)
	}
	first.awaitLine(`roll {"0": "127.0.0.1:9000", "1": "127.0.0.1:7000"}`)
	arrival := znode.Arrival(znode.Attempt(j.Root, m.Generation, "loaded", 0, 1), 0)
	observer := dial(t)
	rig.Await(t, "it has arrived", func() bool {
		_, arrived, err := observer.Exists(t.Context(), arrival)
		return err == nil && arrived
	})
	first.kill()
	again := startPython(t, j, "py", "monday", `echo "$MUSTER_ID of $MUSTER_WORKERS runs"; read line`)
	again.awaitLine("worker 0 of 2")
	if err := m.Barrier(t.Context(), worker.Barrier{Name: "loaded"}); err != nil {
		t.Fatal(err)
	}
	again.ends(1) // the script reads the end of its input
	if claim := claimOf(t, store, j, "py"); claim.State != znode.Left || claim.Lives != 2 || *claim.Exit != 1 {
		t.Errorf("the claim of one whose command failed: %+v", claim)
	}
	complete(t, m)
	last := startPython(t, j, "py", "monday", "exit 0")
	last.ends(0)
	o := look(t, store, j)
	run := job.LastRun(o.Record)
	if o.Class() != resource.Ready || o.Record.Edited() || run == nil || run.ID != "monday" ||
		run.Generation != m.Generation || o.Record.Generation == m.Generation {
		t.Errorf("after the run: %v, edited %v, last %+v", o.Class(), o.Record.Edited(), run)
	}
	if _, left, err := observer.Exists(t.Context(), znode.Run(j.Root, m.Generation)); left || err != nil {
		t.Errorf("its generation is left: %v, %v", left, err)
	}
	startPython(t, j, "py", "monday", "exit 9").ends(0) // the run has completed
}

func claimOf(t *testing.T, store *zkstate.Store, j job.Job, identity string) znode.Claim {
	t.Helper()
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		if w.Identity == identity {
			return w.Claim
		}
	}
	t.Fatalf("%s has no claim", identity)
	return znode.Claim{}
}

// TestAWorkerInPythonIsLast: it writes the roll. A worker of another run waits, though the job is full; one without a
// run is turned away; a barrier that it aborts is aborted for ours; and it stops when it is asked to.
func TestAWorkerInPythonIsLast(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, func(j *job.Job) { j.Timeouts.Barrier = resource.Duration(time.Second) })
	m := joinRun(t, j, "go", "monday")
	py := startPython(t, j, "py", "monday", "exit 9")
	roll, err := m.Roll(t.Context())
	if err != nil || len(roll) != 2 || roll[1].Address() != "127.0.0.1:9000" || roll[1].ID != 1 {
		t.Fatalf("the roll that it wrote: %+v, %v", roll, err)
	}
	if stat, _, err := dial(t).Exists(t.Context(), j.Path()); err != nil || stat.Version != 1 {
		t.Errorf("the job znode has version %d, %v", stat.Version, err)
	}
	startPython(t, j, "other", "", "exit 9").ends(73)
	next := startPython(t, j, "next", "tuesday", "exit 9")
	py.ends(71)
	var aborted *worker.AbortedError
	round := 0
	err = m.Barrier(t.Context(), worker.Barrier{Name: "loaded", Round: &round})
	if !errors.As(err, &aborted) || fmt.Sprint(aborted.Missing) != "[0]" {
		t.Errorf("our barrier after its abort: %v", err)
	}
	if err := m.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Terminate(t.Context(), j.Path(), patience, nil); err != nil {
		t.Fatal(err)
	}
	j.Timeouts.Barrier = resource.Duration(patience)
	create(t, store, j)
	next.awaitLine("worker 0 of 2") // it has waited for this generation
	asked := joinRun(t, j, "go", "tuesday")
	if err := asked.Barrier(t.Context(), worker.Barrier{Name: "loaded", Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	next.ends(9)
}

// TestAWorkerInPythonFinishes: the last worker of ours died before it could reset the job. A worker of the next run, in
// Python, does it, and joins.
func TestAWorkerInPythonFinishes(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1, func(j *job.Job) { j.Timeouts.Join = resource.Duration(patience) })
	completeAndDie(t, ofRun(j, "monday", "go"))
	startPython(t, j, "py", "tuesday", "exit 0").ends(0)
	if run := job.LastRun(look(t, store, j).Record); run == nil || run.ID != "tuesday" {
		t.Errorf("the last run: %+v", run)
	}
}

// TestAWorkerInPythonBesideAnother: it writes the roll although one WorkerInfo is none.
func TestAWorkerInPythonBesideAnother(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	m := join(t, j, "go")
	foreign(t, j, "alien", m.Generation, []byte("\xff\xff\xff not a message"))
	py := startPython(t, j, "py", "", "exit 0")
	py.awaitLine(`roll {"0": "127.0.0.1:7000", "1": ":0", "2": "127.0.0.1:9000"}`)
	if rows, odd := znode.DecodeRoll(rollBody(t, j)); len(rows) != 3 || len(odd) > 0 {
		t.Errorf("the roll that it wrote has %d rows: %q", len(rows), odd)
	}
}

// TestAWorkerInPythonLeavesAGangAlone: its record has a format that the program does not know.
func TestAWorkerInPythonLeavesAGangAlone(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, func(j *job.Job) { j.Gang = &job.Gang{} })
	py := startPython(t, j, "py", "", "exit 9")
	py.ends(3)
	if want := "the record has format 2, and this program knows 1"; !strings.Contains(py.said(), want) {
		t.Errorf("it says %q, not %q", py.said(), want)
	}
	if ws, _, err := store.Workers(t.Context(), j.Path()); len(ws) > 0 || err != nil {
		t.Errorf("it has joined: %v, %v", ws, err)
	}
}
