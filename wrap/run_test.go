package wrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// testWorker is a Run under test.
type testWorker struct {
	*testCommand
	signals chan os.Signal
	waiting chan string   // what Join waits for
	joined  chan struct{} // closed when it has
	result  chan Result
}

// startWorker runs a child as identity of the job. Tests edit the configuration.
func startWorker(f *testJob, identity, behaviour string, edits ...func(*Config)) *testWorker {
	f.t.Helper()
	return startWorkerAt(f, identity, behaviour, servers.Addrs()[0], edits...)
}

func startWorkerAt(f *testJob, identity, behaviour, server string, edits ...func(*Config)) *testWorker {
	f.t.Helper()
	w := &testWorker{
		testCommand: newTestCommand(f.t, behaviour), signals: make(chan os.Signal, 8),
		waiting: make(chan string, 8), joined: make(chan struct{}), result: make(chan Result, 1),
	}
	c := Config{
		Command: w.launch.argv, Environ: w.launch.environ, Files: w.launch.files,
		Start: StartJoined, OnLoss: LossRejoin, Grace: long, Signals: w.signals, Log: slog.New(slog.DiscardHandler),
		Worker: worker.Config{
			Root: f.job.Root, Job: f.job.Name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
			Waiting: func(what string) { w.waiting <- what },
		},
		Connect: func(ctx context.Context, _ time.Duration) (*zkconn.Session, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return dial(ctx, f.session, server)
		},
		SessionTimeout: time.Duration(f.job.Timeouts.Session),
		Joined:         func(*worker.Member) { close(w.joined) },
	}
	for _, edit := range edits {
		edit(&c)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		e := Run(f.t.Context(), c)
		w.result <- e
		fmt.Fprintf(w.launch.files[1], "over: %+v\n", e)
		w.launch.files[1].Close() // ends says, if the command has not said what a test waits for
	}()
	f.t.Cleanup(func() { <-over }) // the end of the test's context has ended it
	return w
}

func starting(s Start) func(*Config)       { return func(c *Config) { c.Start = s } }
func within(d time.Duration) func(*Config) { return func(c *Config) { c.Grace = d } }

// ends waits for the end.
func (w *testWorker) ends() Result {
	w.t.Helper()
	select {
	case e := <-w.result:
		return e
	case <-time.After(30 * time.Second):
		w.t.Fatal("it does not end")
	}
	return Result{}
}

// TestStagesSignalsAndBehaviours: what the code is, and what the claim says afterwards.
func TestStagesSignalsAndBehaviours(t *testing.T) {
	beforeJoin := func(w *testWorker) { <-w.waiting }
	joined := func(w *testWorker) { <-w.joined }
	running := func(w *testWorker) { w.says("ready") }
	draining := func(w *testWorker) {
		w.says("ready")
		w.signals <- syscall.SIGINT
		w.says("got SIGINT")
	}
	all := starting(StartAll)
	for name, c := range map[string]struct {
		workers   int // 0: there is no job
		behaviour string
		edit      func(*Config)
		until     func(*testWorker)
		signals   string
		code      int
		claim     string
	}{
		"before_join_term":       {0, "obeys:0", within(long), beforeJoin, "TERM", 143, ""},
		"before_join_int":        {0, "obeys:0", within(long), beforeJoin, "INT", 130, ""},
		"before_join_hup":        {0, "obeys:0", within(long), beforeJoin, "HUP", 129, ""},
		"before_join_quit":       {0, "obeys:0", within(long), beforeJoin, "QUIT", 131, ""},
		"before_join_usr1_term":  {0, "obeys:0", within(long), beforeJoin, "USR1 USR2 WINCH CONT TERM", 143, ""},
		"waiting_term":           {2, "obeys:0", all, joined, "TERM", 143, "left TERM"},
		"waiting_hup":            {2, "obeys:0", all, joined, "HUP", 129, "left HUP"},
		"waiting_usr1_int":       {2, "obeys:0", all, joined, "USR1 INT", 130, "left INT"},
		"barrier_term":           {2, "obeys:0", starting(StartBarrier), joined, "TERM", 143, "left TERM"},
		"running_exits_0":        {1, "exits:0", within(long), nil, "", 0, "done 0"},
		"running_exits_1":        {1, "exits:1", within(long), nil, "", 1, "left 1"},
		"running_exits_137":      {1, "exits:137", within(long), nil, "", 137, "left 137"},
		"running_killed":         {1, "killed", within(long), nil, "", 137, "left KILL"},
		"running_daemonises":     {1, "leaves:ignores exits:0", within(short), nil, "", 0, "done 0"},
		"running_term_obeys_0":   {1, "obeys:0", within(long), running, "TERM", 0, "left 0"},
		"running_int_obeys_1":    {1, "obeys:1", within(long), running, "INT", 1, "left 1"},
		"running_hup_quit_obeys": {1, "obeys:5", within(long), running, "HUP QUIT", 5, "left 5"},
		"running_term_ignores":   {1, "ignores", within(short), running, "TERM", 137, "left KILL"},
		"running_term_daemon":    {1, "leaves:ignores obeys:0", within(short), running, "TERM", 0, "left 0"},
		"draining_term":          {1, "ignores", within(long), draining, "TERM", 137, "left KILL"},
		"draining_usr1_term":     {1, "ignores", within(long), draining, "USR1 TERM", 137, "left KILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestJob(t, c.workers)
			w := startWorker(f, "w0", c.behaviour, c.edit)
			if c.until != nil {
				c.until(w)
			}
			for _, name := range strings.Fields(c.signals) {
				w.signals <- signalNamed(t, name)
			}
			e := w.ends()
			if e.Code != c.code {
				t.Errorf("code %d, want %d: %+v", e.Code, c.code, e)
			}
			if c.workers == 0 {
				f.create() // there is a claim only if somebody wrote one
			}
			if d := cmp.Diff(c.claim, f.claim("w0")); d != "" {
				t.Errorf("claim (-want +got):\n%s", d)
			}
			if o := f.look(); o.Live != 0 {
				t.Errorf("%d are live: a worker that ended is to be gone at once", o.Live)
			}
		})
	}
}

// TestTheCommandDoesNotRunTwice: a worker that completed in an earlier life says so instead.
func TestTheCommandDoesNotRunTwice(t *testing.T) {
	f := newTestJob(t, 2)
	if e := startWorker(f, "w0", "exits:0").ends(); e.Code != 0 || e.Err != nil {
		t.Fatalf("first life: %+v", e)
	}
	e := startWorker(f, "w0", "exits:9").ends()
	var done *worker.DoneError
	if !errors.As(e.Err, &done) || done.Exit != 0 || e.Code != 0 {
		t.Errorf("second life: %+v", e)
	}
}

func TestACommandThatCannotStartTakesNoPlace(t *testing.T) {
	f := newTestJob(t, 1)
	w := startWorker(f, "w0", "", func(c *Config) { c.Command = []string{"no-such-command-anywhere"} })
	if e := w.ends(); e.Code != 127 || e.Err == nil || f.claim("w0") != "" {
		t.Errorf("%+v, claim %q", e, f.claim("w0"))
	}
}

func TestACommandThatCannotBeExecutedLeaves(t *testing.T) {
	f := newTestJob(t, 1)
	noise := t.TempDir() + "/noise"
	if err := os.WriteFile(noise, []byte("\x7fNOT"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := startWorker(f, "w0", "", func(c *Config) { c.Command = []string{noise} })
	if e := w.ends(); e.Code != 126 || e.Err == nil || f.claim("w0") != "left 126" {
		t.Errorf("%+v, claim %q", e, f.claim("w0"))
	}
}

// TestTerminateStopsTheCommand at each stage after the join.
func TestTerminateStopsTheCommand(t *testing.T) {
	for name, c := range map[string]struct {
		behaviour string
		start     Start
		code      int
		text      string
	}{
		"waiting": {"obeys:3", StartAll, 143, ""},
		"running": {"obeys:3", StartJoined, 3, "after SIGTERM, because " + ErrTerminated.Error() + "; "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestJob(t, 2)
			w := startWorker(f, "w0", c.behaviour, starting(c.start))
			if name == "running" {
				w.says("ready")
			} else {
				<-w.joined
			}
			if err := f.store.Terminate(t.Context(), f.job.Path(), 20*time.Second, nil); err != nil {
				t.Error(err)
			}
			e := w.ends()
			if e.Code != c.code || name == "waiting" && !errors.Is(e.Err, ErrTerminated) {
				t.Errorf("%+v, want code %d", e, c.code)
			}
			if !strings.HasSuffix(e.Text, c.text+"worker 0 (w0) of "+f.job.Path()+" has left") {
				t.Errorf("it says %q", e.Text)
			}
			if f.look() != nil {
				t.Error("the job was not deleted")
			}
		})
	}
}

// TestFencedStopsTheCommand: somebody else wrote the claim.
func TestFencedStopsTheCommand(t *testing.T) {
	f := newTestJob(t, 1)
	w := startWorker(f, "w0", "obeys:0")
	w.says("ready")
	f.takeOver("w0")
	if err := f.s.Delete(t.Context(), znode.Live(f.job.Root, f.job.Name, "w0"), -1); err != nil { // which it watches
		t.Fatal(err)
	}
	w.says("got SIGTERM")
	if e := w.ends(); !errors.Is(e.Err, worker.ErrFenced) || e.Code != 0 {
		t.Errorf("%+v", e)
	}
	if f.claim("w0") != "in" {
		t.Errorf("claim %q: it was written by who was fenced", f.claim("w0"))
	}
}
