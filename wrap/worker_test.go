package wrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/resource"
	"muster/sim/needs"
	"muster/sim/rig"
	"muster/worker"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// testWorker is a Run under test.
type testWorker struct {
	*testCommand
	signals chan os.Signal
	waiting chan string   // what Join waits for
	joined  chan struct{} // closed when it has
	result  chan command.Result
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
		waiting: make(chan string, 8), joined: make(chan struct{}), result: make(chan command.Result, 1),
	}
	c := Config{
		Life: Life{
			Command: w.launch.Argv, Environ: w.launch.Environ, Files: w.launch.Files, Grace: long, Signals: w.signals,
			Log: slog.New(slog.DiscardHandler), SessionTimeout: time.Duration(f.job.Timeouts.Session),
			Connect: func(ctx context.Context, _ time.Duration) (*zkconn.Session, error) {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				return dial(ctx, f.session, server)
			},
		},
		Start: StartJoined, OnLoss: LossRejoin,
		Worker: worker.Config{
			Root: f.job.Root, Job: f.job.Name, Identity: identity, Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
			Waiting: func(what string) { w.waiting <- what },
		},
		Joined: func(*worker.Member) { close(w.joined) },
	}
	for _, edit := range edits {
		edit(&c)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		e := Run(f.t.Context(), c)
		w.result <- e
		fmt.Fprintf(w.launch.Files[1], "over: %+v\n", e)
		w.launch.Files[1].Close() // ends says, if the command has not said what a test waits for
	}()
	f.t.Cleanup(func() { <-over }) // the end of the test's context has ended it
	return w
}

func starting(s Start) func(*Config)       { return func(c *Config) { c.Start = s } }
func within(d time.Duration) func(*Config) { return func(c *Config) { c.Grace = d } }

// ends waits for the end.
func (w *testWorker) ends() command.Result {
	w.t.Helper()
	return rig.Receive(w.t, w.result, "the end")
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

// TestTheSessionHasTheTimeoutOfTheRecord, also of one that is written while the worker waits for its job.
func TestTheSessionHasTheTimeoutOfTheRecord(t *testing.T) {
	for name, early := range map[string]bool{"the_job_is_there": true, "the_job_comes_later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestJob(t, 0)
			f.job.Timeouts.Session = resource.Duration(7 * time.Second)
			if early {
				f.create()
			}
			var timeouts []time.Duration
			w := startWorker(f, "w0", "obeys:0", func(c *Config) {
				c.SessionTimeout = 11 * time.Second
				c.Connect = func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error) {
					timeouts = append(timeouts, timeout)
					return dial(ctx, timeout, servers.Addrs()...)
				}
			})
			if !early {
				<-w.waiting
				f.create()
			}
			<-w.joined
			if d := cmp.Diff([]time.Duration{11 * time.Second, 7 * time.Second}, timeouts); d != "" {
				t.Errorf("timeouts of the sessions (-want +got):\n%s", d)
			}
			if o := f.look(); o.Live != 1 {
				t.Errorf("%d are live", o.Live)
			}
		})
	}
}

// TestAWorkerWithoutAnAddress waits until it can find one, and is known by it.
func TestAWorkerWithoutAnAddress(t *testing.T) {
	f := newTestJob(t, 1)
	refusals, unstable := 1, make(chan string, 1)
	w := startWorker(f, "", "environ obeys:0", func(c *Config) {
		c.Worker.Info = znode.Worker{}
		c.Unstable = func(identity string) { unstable <- identity }
		c.LocalIP = func(context.Context) (net.IP, error) {
			if refusals--; refusals >= 0 {
				return nil, fmt.Errorf("%w: not yet", zkconn.ErrUnreachable)
			}
			return net.IPv4(127, 0, 0, 1), nil
		}
	})
	if what := <-w.waiting; what != "ZooKeeper (1m40s at most): zookeeper is unreachable: not yet" {
		t.Errorf("it waits for %s", what)
	}
	identity := <-unstable
	live, err := w.client().Members(t.Context(), true)
	if err != nil || len(live.Members) != 1 {
		t.Fatalf("%+v, %v", live, err)
	}
	if m := live.Members[0]; m.Identity != identity || m.Address() != identity || m.IP != "127.0.0.1" {
		t.Errorf("its identity is %s, and it is live as %+v", identity, m)
	}
}

// lose keeps a worker from the server until its session has expired there.
func lose(p *fault.Proxy, f *testJob) {
	f.t.Helper()
	cutOff(p)
	f.expires(0)
	p.Refuse(false)
}

// cutOff keeps a worker from the server until p does not refuse any more.
func cutOff(p *fault.Proxy) {
	p.Refuse(true)
	p.Cut()
}

// expires waits until a session has expired, and so many workers are live.
func (f *testJob) expires(live int) {
	f.t.Helper()
	rig.Await(f.t, "the session expires", func() bool { return f.look().Live == live })
}

// rejoins waits until the only worker is live.
func (f *testJob) rejoins() {
	f.t.Helper()
	rig.Await(f.t, "it joins again", func() bool { return f.look().Live == 1 })
}

// arrival is closed when the server has the arrival of a worker at the first round of barrier b.
func arrival(p *fault.Proxy) <-chan struct{} {
	return p.AfterReply(func(_ int32, req []byte) bool { return bytes.Contains(req, []byte("/barrier/b/0/c/c-")) })
}

// TestRejoinKeepsTheCommand: the same process is the same worker, under a new session.
func TestRejoinKeepsTheCommand(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
	w := startWorkerAt(f, "w0", "environ obeys:0", p.Addr())
	c := w.client()
	w.says("ready")
	lose(p, f)
	f.rejoins()
	if err := c.Barrier(t.Context(), Barrier{Name: "after"}); err != nil {
		t.Errorf("a barrier after the loss: %v", err)
	}
	w.signals <- syscall.SIGHUP
	w.says("got SIGHUP") // it has been told nothing else
	w.signals <- syscall.SIGTERM
	if e := w.ends(); e.Code != 0 || e.Err != nil || f.claim("w0") != "left 0" {
		t.Errorf("%+v, claim %s", e, f.claim("w0"))
	}
}

// TestAWaitingRequestOutlivesTheSession at a barrier and while waiting for all.
func TestAWaitingRequestOutlivesTheSession(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), rig.Proxy(t, servers.Addrs()[0])
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	waits, passes := make(chan error, 1), make(chan error, 1)
	go func() { waits <- c0.Wait(t.Context(), Wait{}) }()
	go func() { passes <- c0.Barrier(t.Context(), Barrier{Name: "b"}) }()
	lose(p, f)
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	if err := c1.Barrier(t.Context(), Barrier{Name: "b"}); err != nil {
		t.Error(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("waiting for all: %v", err)
	}
	if err := <-passes; err != nil {
		t.Errorf("at the barrier: %v", err)
	}
}

// TestReleasedWhileTheSessionWasLost: the round that a request waits at stays the same one.
func TestReleasedWhileTheSessionWasLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), rig.Proxy(t, servers.Addrs()[0])
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	arrived := arrival(p)
	passes := make(chan error, 1)
	go func() { passes <- c0.Barrier(t.Context(), Barrier{Name: "b"}) }()
	<-arrived
	cutOff(p)
	f.expires(1)
	if err := c1.Barrier(t.Context(), Barrier{Name: "b"}); err != nil {
		t.Error(err)
	}
	p.Refuse(false)
	if err := rig.Receive(t, passes, "the round that it waited at"); err != nil {
		t.Error(err)
	}
}

// TestAbortedWhileTheSessionWasLost: a request is told of the abort of its own attempt, though the others are at the
// next one already. Asking again it meets them there.
func TestAbortedWhileTheSessionWasLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 3), rig.Proxy(t, servers.Addrs()[0])
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	c2 := startWorker(f, "w2", "environ obeys:0").client()
	b := Barrier{Name: "b", Retry: true}
	arrived := arrival(p)
	asked, next := make(chan error, 1), make(chan error, 2)
	go func() { asked <- c0.Barrier(t.Context(), b) }()
	<-arrived
	cutOff(p)
	f.expires(2)
	hasty := b
	hasty.Timeout = "1ms"
	var aborted *worker.AbortedError
	if err := c1.Barrier(t.Context(), hasty); !errors.As(err, &aborted) || aborted.Attempt != 1 || !aborted.Retry {
		t.Error(err)
	}
	go func() { next <- c1.Barrier(t.Context(), b) }()
	go func() { next <- c2.Barrier(t.Context(), b) }()
	p.Refuse(false)
	if err := <-asked; !errors.As(err, &aborted) || aborted.Attempt != 1 {
		t.Error(err)
	}
	if err := c0.Barrier(t.Context(), b); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-next; err != nil {
			t.Error(err)
		}
	}
}

// TestALossWhileWaitingToStart does not end the waiting.
func TestALossWhileWaitingToStart(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), rig.Proxy(t, servers.Addrs()[0])
	w := startWorkerAt(f, "w0", "obeys:0", p.Addr(), starting(StartBarrier))
	<-w.joined
	lose(p, f)
	startWorker(f, "w1", "obeys:0", starting(StartBarrier)).says("ready")
	w.says("ready")
}

// TestALossBeforeItIsIdle: a worker without a command goes on as its newest Member.
func TestALossBeforeItIsIdle(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), rig.Proxy(t, servers.Addrs()[0])
	found := make(chan int, 1)
	w := startWorkerAt(f, "w0", "", p.Addr(), starting(StartAll), func(c *Config) {
		c.Command = nil
		c.Idle = func(ctx context.Context, m *worker.Member) error {
			joined, err := m.Joined(ctx)
			if err != nil {
				return err
			}
			found <- len(joined)
			<-ctx.Done()
			return context.Cause(ctx)
		}
	})
	<-w.joined
	lose(p, f)
	f.rejoins()
	startWorker(f, "w1", "obeys:0").says("ready")
	select {
	case n := <-found:
		if n != 2 {
			t.Errorf("it finds %d", n)
		}
	case e := <-w.result:
		t.Errorf("it ends: %+v", e)
	}
}

// TestLossStopLeavesNothing of the command when another process is the worker, whatever that command was doing: it
// gets no grace, not even the rest of one.
func TestLossStopLeavesNothing(t *testing.T) {
	for name, first := range map[string]syscall.Signal{"running": syscall.SIGUSR1, "draining": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
			w := startWorkerAt(f, "w0", "leaves:ignores ignores", p.Addr(), func(c *Config) { c.OnLoss = LossStop })
			rest := w.pid("left")
			leader := w.pid("ready")
			w.signals <- first
			w.says("got " + command.SignalName(first))
			cutOff(p)
			startWorker(f, "w0", "obeys:0").says("ready")
			for _, pid := range []int{leader, rest} {
				if lives(t, pid) {
					t.Errorf("process %d of the old command is there", pid)
				}
			}
			if e := w.ends(); !errors.Is(e.Err, zkconn.ErrSessionLost) || e.Code != 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}

// pid is what the child says after start.
func (w *testCommand) pid(start string) int {
	w.t.Helper()
	pid, err := strconv.Atoi(w.says(start))
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// lives reports whether a process can still do anything. A zombie cannot, nor one that SIGKILL was sent to.
func lives(t *testing.T, pid int) bool {
	t.Helper()
	out, err := exec.Command(needs.Program(t, "ps", "procps"), "-o", "stat=,pending=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || strings.HasPrefix(string(out), "Z") {
		return false
	}
	_, mask, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	pending, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	if err != nil {
		t.Fatalf("ps: %q: %v", out, err)
	}
	return pending&(1<<(syscall.SIGKILL-1)) == 0
}

// TestTakenOverWhileTheSessionWasLost: the old process stops its command as soon as it can know.
func TestTakenOverWhileTheSessionWasLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
	w := startWorkerAt(f, "w0", "obeys:0", p.Addr())
	w.says("ready")
	cutOff(p)
	next := startWorker(f, "w0", "obeys:0") // waits for the old session to expire
	next.says("ready")
	p.Refuse(false)
	w.says("got SIGTERM")
	if e := w.ends(); !errors.Is(e.Err, worker.ErrFenced) {
		t.Errorf("%+v", e)
	}
	next.signals <- syscall.SIGHUP
	next.says("got SIGHUP")
}

// TestACommandThatEndsWithoutAServer: the exit code is its own, and the completion is made up for when there is one
// again.
func TestACommandThatEndsWithoutAServer(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
	w := startWorkerAt(f, "w0", "ends:0", p.Addr())
	w.says("ready")
	cutOff(p)
	w.signals <- syscall.SIGUSR1 // at which it exits with 0
	f.expires(0)
	p.Refuse(false)
	if e := w.ends(); e.Code != 0 || e.Err != nil || f.claim("w0") != "done 0" {
		t.Errorf("%+v, claim %s", e, f.claim("w0"))
	}
}

// TestACommandThatEndsWithoutAServerForLong: the code is the command's, and the text says what is not known.
func TestACommandThatEndsWithoutAServerForLong(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
	w := startWorkerAt(f, "w0", "ends:7", p.Addr())
	w.says("ready")
	cutOff(p)
	begun := time.Now()
	w.signals <- syscall.SIGUSR1
	w.signals <- syscall.SIGTERM // hurries
	if e := w.ends(); e.Code != 7 || e.Err != nil || time.Since(begun) > 20*time.Second {
		t.Errorf("%+v after %s", e, time.Since(begun))
	}
}

// TestWhatIsLostWhileItPartsIsNotTheCommands: it had ended before, so that the code is its own.
func TestWhatIsLostWhileItPartsIsNotTheCommands(t *testing.T) {
	for _, name := range []string{"the_session", "the_identity"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newTestJob(t, 1), rig.Proxy(t, servers.Addrs()[0])
			w := startWorkerAt(f, "w0", "obeys:7", p.Addr(), func(c *Config) { c.OnLoss = LossStop })
			w.says("ready")
			leaves, takenOver := make(chan struct{}), make(chan struct{})
			p.BeforeSend(func(_ int32, req []byte) bool {
				if !bytes.Contains(req, []byte(`"state":"left"`)) {
					return false
				}
				if name == "the_session" {
					p.Refuse(true)
					return true
				}
				close(leaves)
				<-takenOver
				return false
			})
			w.signals <- syscall.SIGTERM
			if name == "the_identity" {
				<-leaves
				f.takeOver("w0")
				close(takenOver)
			}
			if e := w.ends(); e.Code != 7 || e.Err != nil {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestTimeRunsOutWhileTheSessionIsLost, for what was asked before the loss and after it. An arrival stands, and the
// round is aborted for nobody.
func TestTimeRunsOutWhileTheSessionIsLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 3), rig.Proxy(t, servers.Addrs()[0])
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	arrived := p.AfterReply(func(_ int32, req []byte) bool {
		if !bytes.Contains(req, []byte("/barrier/before/0/c/c-")) {
			return false
		}
		p.Refuse(true)
		return true
	})
	answers := map[string]chan error{}
	for _, what := range []string{"wait", "before", "after"} {
		answers[what] = make(chan error, 1)
	}
	go func() { answers["wait"] <- c0.Wait(t.Context(), Wait{Timeout: "15s"}) }()
	go func() { answers["before"] <- c0.Barrier(t.Context(), Barrier{Name: "before", Timeout: "15s"}) }()
	<-arrived
	f.expires(1)
	go func() { answers["after"] <- c0.Barrier(t.Context(), Barrier{Name: "after", Timeout: "200ms"}) }()
	for what, text := range map[string]string{
		"wait":   "it is not known whether all 3 workers have joined",
		"before": "at round 0 of barrier before",
		"after":  "at barrier after",
	} {
		err := rig.Receive(t, answers[what], what)
		if !errors.Is(err, ErrLate) || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), "ZooKeeper") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c2 := startWorker(f, "w2", "environ obeys:0").client()
	others := make(chan error, 2)
	for _, c := range []*Client{c1, c2} {
		go func() { others <- c.Barrier(t.Context(), Barrier{Name: "before"}) }()
	}
	for range 2 {
		if err := rig.Receive(t, others, "the others"); err != nil {
			t.Errorf("the arrival did not stand: %v", err)
		}
	}
	p.Refuse(false)
	zero := 0
	if err := c0.Barrier(t.Context(), Barrier{Name: "before", Round: &zero}); err != nil {
		t.Errorf("asking again: %v", err)
	}
}

// TestTheTimeOfABarrierIsOneTime, in however many sessions: what remains of it after a loss aborts the round.
func TestTheTimeOfABarrierIsOneTime(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), rig.Proxy(t, servers.Addrs()[0])
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	arrived := arrival(p)
	answers := make(chan error, 1)
	begun := time.Now()
	go func() { answers <- c0.Barrier(t.Context(), Barrier{Name: "b", Timeout: "15s"}) }()
	<-arrived
	lose(p, f)
	var aborted *worker.AbortedError
	if err := rig.Receive(t, answers, "the barrier"); !errors.As(err, &aborted) {
		t.Fatal(err)
	}
	f.rejoins()
	remained, err := time.ParseDuration(aborted.Why[strings.LastIndex(aborted.Why, " ")+1:])
	if err != nil || remained >= 15*time.Second {
		t.Errorf("%s after %s: %v, %v", aborted.Why, time.Since(begun), remained, err)
	}
}

// TestTheWayToTheStartHasALimit while nobody can be asked, and at the start barrier also where it leads through many
// sessions.
func TestTheWayToTheStartHasALimit(t *testing.T) {
	const (
		address = "it is not known where worker 0 is: ZooKeeper does not answer"
		roll    = "it is not known who has joined: ZooKeeper does not answer"
		barrier = "at the start barrier, and its outcome is not known"
		aborted = "the start barrier was aborted"
		arrival = "/barrier/.start/0/a/"
	)
	for name, c := range map[string]struct {
		start Start
		op    int32
		path  string // of the first request that does not reach the server, or the job's
		back  bool   // there is a server again, for another session, which aborts the barrier for all
		text  string
	}{
		"address":                 {StartJoined, fault.OpGetData, "/id/n-0000000000", false, address},
		"roll":                    {StartAll, fault.OpGetData, "", false, roll},
		"barrier":                 {StartBarrier, fault.OpMulti, arrival, false, barrier},
		"barrier_in_two_sessions": {StartBarrier, fault.OpMulti, arrival, true, aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newTestJob(t, 0), rig.Proxy(t, servers.Addrs()[0])
			f.job.Workers = 2
			f.job.Timeouts.Join, f.job.Timeouts.Barrier = resource.Duration(10*time.Second), resource.Duration(10*time.Second)
			f.create()
			path := c.path
			if path == "" {
				path = f.job.Path() + "\x00" // and no watch: not what is below it
			}
			gone := p.BeforeSend(func(op int32, req []byte) bool {
				if op != c.op || !bytes.Contains(req, []byte(path)) {
					return false
				}
				p.Refuse(true)
				return true
			})
			w := startWorkerAt(f, "w0", "obeys:0", p.Addr(), starting(c.start))
			<-w.joined
			startWorker(f, "w1", "obeys:0").says("ready")
			<-gone
			if c.back {
				f.expires(1)
				p.Refuse(false)
			}
			e := w.ends()
			if late := errors.Is(e.Err, ErrLate); late == c.back || !strings.Contains(e.Err.Error(), c.text) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestASignalAtTheEndOfAStep: a step that ends just when a signal came was ended by it. Nobody else hears of it.
func TestASignalAtTheEndOfAStep(t *testing.T) {
	for range 2000 {
		signals, taken := make(chan os.Signal), make(chan struct{})
		go func() {
			signals <- syscall.SIGTERM
			close(taken)
		}()
		err := step(t.Context(), signals, 0, func(context.Context) error {
			<-taken
			return nil
		})
		if !errors.Is(err, stopped(syscall.SIGTERM)) {
			t.Fatalf("the step ended with %v", err)
		}
	}
}
