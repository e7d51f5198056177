package daemon

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is one run of a program.
type Process struct {
	OS   *os.Process
	Out  Output
	Done chan struct{} // closed when the process has ended
	Err  error         // why it ended; valid after Done

	state *os.ProcessState
}

// Launch starts the program of a server in a directory. It keeps what that writes.
func Launch(dir, path string, args ...string) (*Process, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // so that Java can open files with names that are not ASCII
	return Start(cmd)
}

// Start starts a command in a process group of its own. It keeps what the command writes, unless cmd says where that
// goes. Linux sends the death signal when the thread that forked ends, not when the process ends. So the goroutine that
// starts the command keeps its thread until the command has ended.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if cmd.Stdout == nil {
			cmd.Stdout = &p.Out
		}
		if cmd.Stderr == nil {
			cmd.Stderr = &p.Out
		}
		cmd.SysProcAttr = attributes()
		err := cmd.Start()
		p.OS = cmd.Process
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			p.state = cmd.ProcessState
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Code is the exit code, 128 + n after signal n. It is valid after Done.
func (p *Process) Code() int {
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.state.ExitCode()
}

func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Pause stops the process, and returns when all of its threads are stopped.
func (p *Process) Pause() error {
	if err := p.OS.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(p.OS.Pid)
}

// Kill kills the process, and returns when it has ended. It is no error if it had ended before.
func (p *Process) Kill() error {
	if err := p.OS.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.Done
	return nil
}
