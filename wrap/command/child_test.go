package command

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable makes this test binary a command to be wrapped; its value is a behaviour, see child.
const childVariable = "WRAP_TEST_CHILD"

// leftVariable is for a child that another child leaves behind.
const leftVariable = "WRAP_TEST_LEFT"

// child is a command. Its behaviour is a list of words:
//
//	exits:N     at once
//	killed      by SIGKILL, at once
//	obeys:N     exits with N when asked to end
//	ends:N      exits with N at SIGUSR1
//	ignores     goes on whatever signal comes
//	leaves:B    starts another child of behaviour B in its group, first
func child(behaviour string) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, Signals()...)
	var obeys, ends *int
	for _, word := range strings.Fields(behaviour) {
		verb, arg, _ := strings.Cut(word, ":")
		n, _ := strconv.Atoi(arg)
		switch verb {
		case "exits":
			os.Exit(n)
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "obeys":
			obeys = &n
		case "ends":
			ends = &n
		case "leaves":
			leaveBehind(arg)
		}
	}
	if os.Getenv(leftVariable) != "" {
		fmt.Println("left", os.Getpid())
		os.NewFile(3, "ready").Close()
	} else {
		fmt.Println("ready", os.Getpid())
	}
	for sig := range signals {
		fmt.Println("got", SignalName(sig.(syscall.Signal)))
		if obeys != nil && AsksToEnd(sig) {
			os.Exit(*obeys)
		}
		if ends != nil && sig == syscall.SIGUSR1 {
			os.Exit(*ends)
		}
	}
}

// leaveBehind returns when the other child is ready.
func leaveBehind(behaviour string) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+behaviour, leftVariable+"=1")
	cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{w}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	_, _ = io.ReadAll(r) // until the other one closes its end
}

// testCommand is a child under a supervisor.
type testCommand struct {
	t      *testing.T
	pipe   *os.File
	out    *bufio.Reader // of the pipe
	launch Launch
}

// newTestCommand makes a launch of a child whose output the test can read.
func newTestCommand(t *testing.T, behaviour string) *testCommand {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	noSleep := "GORACE=atexit_sleep_ms=0" // the race detector sleeps for a second at the end
	environ, files := append(os.Environ(), childVariable+"="+behaviour, noSleep), []*os.File{nil, w, os.Stderr}
	return &testCommand{t, r, bufio.NewReader(r), Launch{Path: self, Argv: []string{self}, Environ: environ, Files: files}}
}

// says waits for a line of the child's output that starts so, and returns the rest.
func (w *testCommand) says(start string) string {
	w.t.Helper()
	if err := w.pipe.SetReadDeadline(time.Now().Add(long)); err != nil {
		w.t.Fatal(err)
	}
	var said []string
	for {
		line, err := w.out.ReadString('\n')
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, start); ok {
			return strings.TrimSpace(rest)
		}
		said = append(said, line)
		if err != nil {
			w.t.Fatalf("the command never said %q, only %q: %v", start, said, err)
		}
	}
}

const long, short = time.Minute, 500 * time.Millisecond

func signalNamed(t *testing.T, name string) syscall.Signal {
	t.Helper()
	for _, sig := range append(Signals(), syscall.SIGKILL) {
		if s := sig.(syscall.Signal); SignalName(s) == "SIG"+name || s.String() == name {
			return s
		}
	}
	t.Fatalf("signal %s is not known", name)
	return 0
}
