package command

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"muster/sim/rig"
	"muster/worker"
)

// TestTheCommandDiesWithItsWorker: the process that a worker started ends if the worker is killed. What that process
// started itself does not.
func TestTheCommandDiesWithItsWorker(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), initVariable+"=echo $$; exec sleep 1000")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 1)
	go func() { _, err := lines.ReadString('\n'); ends <- err }() // comes to the end when no process has the pipe
	if err := rig.Receive(t, ends, "the end of the command"); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	_ = parent.Wait() // it was killed
}

// TestTheCommandOutlivesThreads: the kernel's parent is a thread, and those come and go.
func TestTheCommandOutlivesThreads(t *testing.T) {
	w := newTestCommand(t, "obeys:5")
	var all sync.WaitGroup
	started := make(chan *Command)
	all.Go(func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		c, err := Start(w.launch)
		if err != nil {
			t.Error(err)
		}
		started <- c
	})
	c := <-started
	for range 50 {
		all.Go(runtime.LockOSThread)
	}
	all.Wait()
	w.says("ready")
	s := Supervisor{Command: c, Grace: long}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if e := s.Run(t.Context(), signals); e.Code() != 5 {
		t.Errorf("%s", e.String())
	}
}

// TestWhatHasEndedWasNotStopped: the command has ended, and nobody has waited for it yet, when it is to be stopped. It
// is not as if it had been.
func TestWhatHasEndedWasNotStopped(t *testing.T) {
	for _, how := range []string{"stop", "lose"} {
		process, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: attributes()})
		if err != nil {
			t.Fatal(err)
		}
		exited := make(chan exitStatus, 1)
		c := &Command{process: process, exited: exited}
		for !c.hasExited() {
			runtime.Gosched()
		}
		ctx, stop := context.WithCancel(t.Context())
		lost, finished := make(chan error), make(chan End)
		go func() {
			s := Supervisor{Command: c, Grace: long, Lost: lost}
			finished <- s.Run(ctx, nil)
		}()
		if stop(); how == "lose" {
			lost <- worker.ErrSessionLost
		}
		for range 1000 { // it looks before the status comes
			runtime.Gosched()
		}
		c.wait(exited)
		if e := <-finished; e.Cause != nil || e.Asked != 0 || e.Code() != 0 {
			t.Errorf("%s: it ended as %+v", how, e)
		}
	}
}
