package wrap

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// launch is what a command is started with.
type launch struct {
	path    string
	argv    []string
	environ []string
	dir     string
	files   []*os.File // its standard streams
}

// command is a process that leads a process group of its own. On Linux it is killed if this process dies, and it alone: what it
// has started goes on, for there is nobody left to kill a group, unless this process was the first of a container.
type command struct {
	process *os.Process
	ended   <-chan ended // one value, when the process itself has ended
}

// ended is how a process ended.
type ended struct {
	status syscall.WaitStatus
	err    error // it cannot be told
}

// code is the exit code that a shell would show: 128 and the number of the signal that killed the process.
func (e ended) code() int {
	switch {
	case e.err != nil:
		return 1
	case e.status.Signaled():
		return 128 + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// start starts the process. It is waited for by a thread of its own, because the kernel sends the parent-death signal when
// the thread that started a process ends, not when its process does.
func start(l launch) (*command, error) {
	how := attributes()
	foreground(how, l.files)
	started, end := make(chan error), make(chan ended, 1)
	c := &command{ended: end}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		c.process, err = os.StartProcess(l.path, l.argv, &os.ProcAttr{Dir: l.dir, Env: l.environ, Files: l.files, Sys: how})
		started <- err
		switch {
		case err != nil:
		case os.Getpid() == 1:
			c.reap(end)
		default:
			c.wait(end)
		}
	}()
	if err := <-started; err != nil {
		return nil, &startError{err}
	}
	return c, nil
}

// wait waits for the process.
func (c *command) wait(end chan<- ended) {
	state, err := c.process.Wait()
	if err != nil {
		end <- ended{err: err}
		return
	}
	end <- ended{status: state.Sys().(syscall.WaitStatus)}
}

// reap waits for the process, and for every orphan that the kernel gives to pid 1, until there are no more. One loop for
// both, so that nobody can take the status of the other.
func (c *command) reap(end chan<- ended) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children are left
			return
		case pid == c.process.Pid:
			end <- ended{status: status}
		}
	}
}

// signal is for the process alone: some signals end whoever does not expect them, and a shell that gets one decides what
// becomes of its children.
func (c *command) signal(sig os.Signal) { _ = c.process.Signal(sig) } // it may have ended by now

// signalGroup is for all that is in the group, and reports whether there is anything.
func (c *command) signalGroup(sig syscall.Signal) bool {
	return !errors.Is(syscall.Kill(-c.process.Pid, sig), syscall.ESRCH)
}

// The exit codes of a command that cannot be started, as shells have them.
const (
	cannotRun = 126
	notFound  = 127
)

// lookUp finds the file to execute as a shell would.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) { // a "." in PATH is the user's decision
		return "", &startError{err}
	}
	if err := interpreted(path); err != nil {
		return "", &startError{err}
	}
	return path, nil
}

// interpreted is why a script cannot be run, if that is because the program of its first line is not there.
func interpreted(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // who may not read a program may still run it
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n') // as much as Linux reads
	program, found := strings.CutPrefix(string(line), "#!")
	fields := strings.Fields(program)
	if !found || len(fields) == 0 || !filepath.IsAbs(fields[0]) {
		return nil
	}
	if _, err := os.Stat(fields[0]); err != nil {
		return fmt.Errorf("what is to run the script %s: %w", path, err)
	}
	return nil
}

// startError is why a command cannot be started.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// startCode is the exit code for err, if it is a startError, and 0 otherwise.
func startCode(err error) int {
	var start *startError
	switch {
	case !errors.As(err, &start):
		return 0
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return notFound
	}
	return cannotRun
}
