package wrap

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/needs"
	"muster/worker"
	"muster/zkstate/zkconn"
)

// newProxy stands between a worker and the server.
func newProxy(t *testing.T) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(servers.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// lose keeps a worker from the server until its session has expired there.
func lose(p *zkserver.Proxy, f *testJob) {
	f.t.Helper()
	p.Refuse(true)
	p.Cut()
	await(f.t, "the session expires", func() bool { return f.look().Live == 0 })
	p.Refuse(false)
}

// TestRejoinKeepsTheCommand: the same process is the same worker, under a new session.
func TestRejoinKeepsTheCommand(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), newProxy(t)
	w := startWorkerAt(f, "w0", "environ obeys:0", p.Addr())
	c := w.client()
	w.says("ready")
	lose(p, f)
	await(t, "it joins again", func() bool { return f.look().Live == 1 })
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
	f, p := newTestJob(t, 2), newProxy(t)
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
	f, p := newTestJob(t, 2), newProxy(t)
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	arrived := p.AfterReply(func(op int32, req []byte) bool { return bytes.Contains(req, []byte("/barrier/b/0/c/c-")) })
	passes := make(chan error, 1)
	go func() { passes <- c0.Barrier(t.Context(), Barrier{Name: "b"}) }()
	<-arrived
	p.Refuse(true)
	p.Cut()
	await(t, "the session expires", func() bool { return f.look().Live == 1 })
	if err := c1.Barrier(t.Context(), Barrier{Name: "b"}); err != nil {
		t.Error(err)
	}
	p.Refuse(false)
	select {
	case err := <-passes:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits at another round")
	}
}

// TestAbortedWhileTheSessionWasLost: a request is told of the abort of its own attempt, though the others are at the
// next one already. Asking again it meets them there.
func TestAbortedWhileTheSessionWasLost(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 3), newProxy(t)
	c0 := startWorkerAt(f, "w0", "environ obeys:0", p.Addr()).client()
	c1 := startWorker(f, "w1", "environ obeys:0").client()
	c2 := startWorker(f, "w2", "environ obeys:0").client()
	b := Barrier{Name: "b", Retry: true}
	arrived := p.AfterReply(func(op int32, req []byte) bool { return bytes.Contains(req, []byte("/barrier/b/0/c/c-")) })
	asked, next := make(chan error, 1), make(chan error, 2)
	go func() { asked <- c0.Barrier(t.Context(), b) }()
	<-arrived
	p.Refuse(true)
	p.Cut()
	await(t, "the session expires", func() bool { return f.look().Live == 2 })
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
	f, p := newTestJob(t, 2), newProxy(t)
	w := startWorkerAt(f, "w0", "obeys:0", p.Addr(), starting(StartBarrier))
	<-w.joined
	lose(p, f)
	startWorker(f, "w1", "obeys:0", starting(StartBarrier)).says("ready")
	w.says("ready")
}

// TestALossBeforeItIsIdle: a worker without a command goes on as its newest Member.
func TestALossBeforeItIsIdle(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 2), newProxy(t)
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
	await(t, "it joins again", func() bool { return f.look().Live == 1 })
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
			f, p := newTestJob(t, 1), newProxy(t)
			w := startWorkerAt(f, "w0", "leaves:ignores ignores", p.Addr(), func(c *Config) { c.OnLoss = LossStop })
			rest := w.pid("left")
			leader := w.pid("ready")
			w.signals <- first
			w.says("got " + signalName(first))
			p.Refuse(true)
			p.Cut()
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
	f, p := newTestJob(t, 1), newProxy(t)
	w := startWorkerAt(f, "w0", "obeys:0", p.Addr())
	w.says("ready")
	p.Refuse(true)
	p.Cut()
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
	f, p := newTestJob(t, 1), newProxy(t)
	w := startWorkerAt(f, "w0", "ends:0", p.Addr())
	w.says("ready")
	p.Refuse(true)
	p.Cut()
	w.signals <- syscall.SIGUSR1 // at which it exits with 0
	await(t, "the session expires", func() bool { return f.look().Live == 0 })
	p.Refuse(false)
	if e := w.ends(); e.Code != 0 || e.Err != nil || f.claim("w0") != "done 0" {
		t.Errorf("%+v, claim %s", e, f.claim("w0"))
	}
}

// TestACommandThatEndsWithoutAServerForLong: the code is the command's, and the text says what is not known.
func TestACommandThatEndsWithoutAServerForLong(t *testing.T) {
	t.Parallel()
	f, p := newTestJob(t, 1), newProxy(t)
	w := startWorkerAt(f, "w0", "ends:7", p.Addr())
	w.says("ready")
	p.Refuse(true)
	p.Cut()
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
			f, p := newTestJob(t, 1), newProxy(t)
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
