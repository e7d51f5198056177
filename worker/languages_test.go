package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// TestAWorkerInAnotherLanguage: each worker of examples that is written from docs/protocol.md alone works beside one of
// ours.
func TestAWorkerInAnotherLanguage(t *testing.T) {
	t.Parallel()
	for language, find := range map[string]func(testing.TB) []string{
		"python": func(t testing.TB) []string {
			return []string{needs.Program(t, "python3", "python3"), "../examples/python/worker.py"}
		},
		"java": func(t testing.TB) []string { return needs.JavaWorker(t, "..") },
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			p := find(t)
			for name, test := range map[string]func(*testing.T, program){
				"killed": testOtherKilled, "last": testOtherLast, "finishes": testOtherFinishes,
				"beside another": testOtherBesideAnother, "a gang": testOtherLeavesAGangAlone, "text": testOtherText,
			} {
				if name == "text" && language == "python" {
					continue // it leaves such a roll to others
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, p)
				})
			}
		})
	}
}

// program is the command line of a worker in another language, but for its arguments.
type program []string

// other is a process of it.
type other struct {
	t   *testing.T
	cmd *exec.Cmd

	mu  sync.Mutex
	out bytes.Buffer
}

func (o *other) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(b)
}

// said is what it has printed so far.
func (o *other) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.String()
}

// start starts a worker that passes the barrier "loaded" and then runs a script.
func (p program) start(t *testing.T, j job.Job, identity, run, script string) *other {
	t.Helper()
	args := slices.Concat(p[1:], []string{j.Path(), identity, "127.0.0.1:9000", "loaded", "sh", "-c", script})
	o := &other{t: t, cmd: exec.Command(p[0], args...)}
	o.cmd.Env = append(os.Environ(), "MUSTER_SERVERS="+servers.Connect(), "MUSTER_RUN="+run,
		"PYTHONDONTWRITEBYTECODE=1")
	o.cmd.Stdout, o.cmd.Stderr = o, o
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if o.cmd.ProcessState == nil {
			o.kill()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", identity, o.said())
		}
	})
	return o
}

// awaitLine waits until it has printed this.
func (o *other) awaitLine(want string) {
	o.t.Helper()
	rig.Await(o.t, "it prints "+want, func() bool { return strings.Contains(o.said(), want) })
}

func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

// ends waits for its end, which must have this code.
func (o *other) ends(code int) {
	o.t.Helper()
	if _ = o.cmd.Wait(); o.cmd.ProcessState.ExitCode() != code {
		o.t.Errorf("exit code %d, want %d", o.cmd.ProcessState.ExitCode(), code)
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

// testOtherKilled: it waits for the job, joins first and is killed at a barrier; its next life has the same id, finds
// its arrival, and goes through; it completes as the last one, and resets the job.
func testOtherKilled(t *testing.T, p program) {
	j := declare(2, func(j *job.Job) {
		j.Timeouts.Session = resource.Duration(8 * time.Second)
		j.Labels = map[string]string{"note": "<ümlaut & \u2028>"} // what a program might write in another way
	})
	store := newStore(t, j)
	first := p.start(t, j, "other", "monday", "exit 9")
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
	again := p.start(t, j, "other", "monday", `echo "$MUSTER_ID of $MUSTER_WORKERS runs"; read line`)
	again.awaitLine("worker 0 of 2")
	if err := m.Barrier(t.Context(), worker.Barrier{Name: "loaded"}); err != nil {
		t.Fatal(err)
	}
	again.ends(1) // the script reads the end of its input
	if claim := claimOf(t, store, j, "other"); claim.State != znode.Left || claim.Lives != 2 || *claim.Exit != 1 {
		t.Errorf("the claim of one whose command failed: %+v", claim)
	}
	complete(t, m)
	last := p.start(t, j, "other", "monday", "exit 0")
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
	p.start(t, j, "other", "monday", "exit 9").ends(0) // the run has completed
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

// testOtherLast: it writes the roll. A worker of another run waits, though the job is full; one without a
// run is turned away; a barrier that it aborts is aborted for ours; and it stops when it is asked to.
func testOtherLast(t *testing.T, p program) {
	j, store := newJob(t, 2, func(j *job.Job) { j.Timeouts.Barrier = resource.Duration(time.Second) })
	m := joinRun(t, j, "go", "monday")
	o := p.start(t, j, "other", "monday", "exit 9")
	roll, err := m.Roll(t.Context())
	if err != nil || len(roll) != 2 || roll[1].Address() != "127.0.0.1:9000" || roll[1].ID != 1 {
		t.Fatalf("the roll that it wrote: %+v, %v", roll, err)
	}
	if stat, _, err := dial(t).Exists(t.Context(), j.Path()); err != nil || stat.Version != 1 {
		t.Errorf("the job znode has version %d, %v", stat.Version, err)
	}
	p.start(t, j, "late", "", "exit 9").ends(73)
	next := p.start(t, j, "next", "tuesday", "exit 9")
	o.ends(71)
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

// testOtherFinishes: the last worker of ours died before it could reset the job. A worker of the next run does
// it, and joins.
func testOtherFinishes(t *testing.T, p program) {
	j, store := newJob(t, 1, func(j *job.Job) { j.Timeouts.Join = resource.Duration(patience) })
	completeAndDie(t, ofRun(j, "monday", "go"))
	p.start(t, j, "other", "tuesday", "exit 0").ends(0)
	if run := job.LastRun(look(t, store, j).Record); run == nil || run.ID != "tuesday" {
		t.Errorf("the last run: %+v", run)
	}
}

// testOtherBesideAnother: it writes the roll although one WorkerInfo is none.
func testOtherBesideAnother(t *testing.T, p program) {
	j, _ := newJob(t, 3)
	m := join(t, j, "go")
	foreign(t, j, "alien", m.Generation, []byte("\xff\xff\xff not a message"))
	o := p.start(t, j, "other", "", "exit 0")
	o.awaitLine(`roll {"0": "127.0.0.1:7000", "1": ":0", "2": "127.0.0.1:9000"}`)
	if rows, odd := znode.DecodeRoll(rollBody(t, j)); len(rows) != 3 || len(odd) > 0 {
		t.Errorf("the roll that it wrote has %d rows: %q", len(rows), odd)
	}
}

// testOtherLeavesAGangAlone: its record has a format that the program does not know.
func testOtherLeavesAGangAlone(t *testing.T, p program) {
	j, store := newJob(t, 2, func(j *job.Job) { j.Gang = &job.Gang{} })
	o := p.start(t, j, "other", "", "exit 9")
	o.ends(3)
	if want := "the record has format 2, and this program knows 1"; !strings.Contains(o.said(), want) {
		t.Errorf("it says %q, not %q", o.said(), want)
	}
	if ws, _, err := store.Workers(t.Context(), j.Path()); len(ws) > 0 || err != nil {
		t.Errorf("it has joined: %v, %v", ws, err)
	}
}

// testOtherText: it writes and reads a roll in the text format.
func testOtherText(t *testing.T, p program) {
	j, _ := newJob(t, 2, func(j *job.Job) { j.RollFormat = job.Text })
	m := join(t, j, "go")
	o := p.start(t, j, "other", "", "exit 0")
	o.awaitLine(`roll {"0": "127.0.0.1:7000", "1": "127.0.0.1:9000"}`)
	if rows, odd := znode.DecodeRoll(rollBody(t, j)); len(rows) != 2 || len(odd) > 0 || rows[1].Port != 9000 {
		t.Errorf("the roll that it wrote: %+v, %q", rows, odd)
	}
	if err := m.Barrier(t.Context(), worker.Barrier{Name: "loaded"}); err != nil {
		t.Fatal(err)
	}
	o.ends(0)
}
