package wrap

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
//	environ     prints what concerns the worker
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
		case "environ":
			for _, s := range os.Environ() {
				if name, _, _ := strings.Cut(s, "="); strings.HasPrefix(name, "MUSTER_") || strings.HasPrefix(name, "MASTER_") ||
					name == "RANK" || name == "WORLD_SIZE" || name == "KEPT" {
					fmt.Println(s)
				}
			}
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
		fmt.Println("got", signalName(sig.(syscall.Signal)))
		if obeys != nil && stops(sig) {
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

// wrapped is a child under an overseer.
type wrapped struct {
	t      *testing.T
	pipe   *os.File
	out    *bufio.Reader // of the pipe
	launch launch
}

// prepare makes a launch of a child whose output the test can read.
func prepare(t *testing.T, behaviour string) *wrapped {
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
	environ := append(os.Environ(), childVariable+"="+behaviour, "GORACE=atexit_sleep_ms=0") // it would sleep for a second
	return &wrapped{t, r, bufio.NewReader(r), launch{self, []string{self}, environ, "", []*os.File{nil, w, os.Stderr}}}
}

// says waits for a line of the child's output that starts so, and returns the rest.
func (w *wrapped) says(start string) string {
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
