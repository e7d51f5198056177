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
	adopts  bool       // this process gets the orphans that the command leaves behind, and reaps them
}

// command is a process that leads a process group of its own. On Linux it is killed if this process dies. The rest of
// its group goes on then, because nobody is left to kill it, unless this process was the first of a container.
type command struct {
	process *os.Process
	exited  <-chan exitStatus // one value, when the process itself has ended
	reaped  <-chan struct{}   // closed when it and, if this process adopts orphans, all of those have ended
}

// exitStatus is how a process ended.
type exitStatus struct {
	status syscall.WaitStatus
	err    error // why the status is not known
}

// code is the exit code that a shell would show: 128 and the number of the signal that killed the process.
func (e exitStatus) code() int {
	switch {
	case e.err != nil:
		return 1
	case e.status.Signaled():
		return 128 + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// start starts the process. A thread of its own starts it and waits for it: the kernel sends the parent-death signal
// when the thread that started the process ends, not when this process ends.
func start(l launch) (*command, error) { return startReaped(l, nil) }

// startReaped is start. The reaper, unless nil, waits for the process.
func startReaped(l launch, by *reaper) (*command, error) {
	how := attributes()
	giveTerminal(how, l.files)
	started, end, reaped := make(chan error), make(chan exitStatus, 1), make(chan struct{})
	c := &command{exited: end, reaped: reaped}
	go func() {
		defer close(reaped)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		begin := func() (err error) {
			attr := &os.ProcAttr{Dir: l.dir, Env: l.environ, Files: l.files, Sys: how}
			c.process, err = os.StartProcess(l.path, l.argv, attr)
			return err
		}
		if by != nil {
			by.run(c, begin, started, end)
			return
		}
		err := begin()
		started <- err
		switch {
		case err != nil:
		case l.adopts || os.Getpid() == 1:
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
func (c *command) wait(end chan<- exitStatus) {
	state, err := c.process.Wait()
	if err != nil {
		end <- exitStatus{err: err}
		return
	}
	end <- exitStatus{status: state.Sys().(syscall.WaitStatus)}
}

// reap waits for the process, and for every orphan that the kernel gives to this process, until there are no more. One
// loop waits for both, because two would take each other's statuses.
func (c *command) reap(end chan<- exitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children are left
			return
		case pid == c.process.Pid:
			end <- exitStatus{status: status}
		}
	}
}

// signal signals the process alone: some signals end a process that does not expect them, and a shell decides itself
// what becomes of its children.
func (c *command) signal(sig os.Signal) { _ = c.process.Signal(sig) } // it may have ended by now

// signalGroup signals every process of the group, and reports whether there is one.
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
	if err := checkInterpreter(path); err != nil {
		return "", &startError{err}
	}
	return path, nil
}

// checkInterpreter is an error if path is a script and the program that its first line names is not there.
func checkInterpreter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // a program that may not be read may still be run
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
