package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/sim/rig"
)

// guardVariable makes this test binary the guard of a fleet; parallelVariable makes it process 1 of a pid namespace
// that runs several commands at once.
const (
	guardVariable    = "WRAP_TEST_GUARD"
	parallelVariable = "WRAP_TEST_PARALLEL"
)

// startGroup starts a script in a group of its own, and returns when it has said that it is ready.
func startGroup(t *testing.T, f *Fleet, script string) *Command {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	path, err := LookUp("sh")
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Start(Launch{path, []string{"sh", "-c", script}, os.Environ(), "", []*os.File{nil, w, w}, false})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return c
}

// guarded is a fleet with a guard.
func guarded(t *testing.T) *Fleet {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := NewFleet([]string{"/usr/bin/env", guardVariable + "=1", self}, nil, slog.New(slog.DiscardHandler))
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// TestTheGuardEndsGroupsInTime: when the limit that it was told last is over, and then whatever it is told of.
func TestTheGuardEndsGroupsInTime(t *testing.T) {
	f := guarded(t)
	keep := func(limit time.Duration) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.tell(fmt.Appendf(nil, "=%d\n", limit))
	}
	keep(clock() + time.Hour)
	c := startGroup(t, f, "sleep 1000 & echo ready; wait")
	keep(1)
	killed := func() {
		if e := <-c.exited; e.Code() != 128+int(syscall.SIGKILL) {
			t.Errorf("code %d", e.Code())
		}
		rig.Await(t, "the end of the group", func() bool { return !c.signalGroup(0) })
		f.Ended(c)
	}
	killed()
	var err error
	late := Launch{Path: "/bin/sh", Argv: []string{"sh", "-c", "sleep 1000"}, Files: make([]*os.File, 3)}
	if c, err = f.Start(late); err != nil {
		t.Fatal(err)
	}
	killed()
}

// TestTheGuardEndsEveryGroup when its orders end, and only those that have not ended before.
func TestTheGuardEndsEveryGroup(t *testing.T) {
	f := guarded(t)
	var all []*Command
	for range 3 {
		all = append(all, startGroup(t, f, "sleep 1000 & echo ready; wait"))
	}
	f.mu.Lock() // the guard dies, and so does the next: the one after that knows all groups
	first := f.runs
	f.mu.Unlock()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "another guard", func() bool {
		extra := startGroup(t, f, "echo ready")
		<-extra.exited
		f.Ended(extra)
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.runs != first
	})
	spared := all[2]
	f.Ended(spared)
	f.mu.Lock()
	_ = f.orders.Close() // as if this process had died
	f.mu.Unlock()
	for _, c := range all[:2] {
		if e := <-c.exited; e.Code() != 128+int(syscall.SIGKILL) {
			t.Errorf("code %d", e.Code())
		}
		rig.Await(t, "the end of the group", func() bool { return !c.signalGroup(0) })
	}
	if !spared.signalGroup(syscall.SIGKILL) {
		t.Error("a group that had ended for the guard was killed")
	}
	<-spared.exited
}

// asParallelInit is a process 1 that runs commands at once, many times. It prints how many ended with their own code.
func asParallelInit() {
	f := NewFleet(nil, nil, slog.New(slog.DiscardHandler))
	path, err := LookUp("sh")
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	right := 0
	for worker := range 4 {
		all.Go(func() {
			for i := range 20 {
				want := (worker*20 + i) % 100
				script := fmt.Sprintf("(sh -c 'exit 3' &); exit %d", want) // it leaves an orphan behind
				c, err := f.Start(Launch{path, []string{"sh", "-c", script}, os.Environ(), "",
					[]*os.File{nil, os.Stderr, os.Stderr}, false})
				if err != nil {
					panic(err)
				}
				s := Supervisor{Command: c, Grace: short}
				code := s.Run(context.Background(), nil).Code()
				f.Ended(c)
				mu.Lock()
				if code == want {
					right++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	fmt.Println("right:", right)
	os.Exit(0)
}

func TestProcessOneRunsSeveralCommands(t *testing.T) {
	cmd := inNamespace(t, "")
	cmd.Env = append(cmd.Env, parallelVariable+"=1")
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "right: 80" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestALossAfterTheGuard: the guard has killed the command before this process, which was frozen, hears of the loss.
// The end says both.
func TestALossAfterTheGuard(t *testing.T) {
	c := startGroup(t, NewFleet(nil, nil, slog.New(slog.DiscardHandler)), "echo ready; sleep 1000")
	if err := syscall.Kill(-c.process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "its end", c.hasExited)
	lost := make(chan error, 1)
	lost <- errors.New("the session is lost")
	s := Supervisor{Command: c, Grace: time.Hour, Lost: lost}
	e := s.Run(t.Context(), nil)
	if e.Signal() != syscall.SIGKILL || e.Cause != nil || len(lost) == 0 && e.Lost == nil {
		t.Errorf("%+v, and %d losses are left", e, len(lost))
	}
}
