package daemon

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is one run of a server.
type Process struct {
	OS   *os.Process
	Out  Output
	Done chan struct{} // closed when the process has ended
	Err  error         // why it ended; valid after Done
}

// Launch starts the command. Linux sends the death signal when the thread that forked ends, not when the process ends.
// So the goroutine that starts the server keeps its thread until the server has ended.
func Launch(dir, path string, args ...string) (*Process, error) {
	p := &Process{Done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(path, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, &p.Out, &p.Out, attributes()
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // so that Java can open files with names that are not ASCII
		err := cmd.Start()
		p.OS = cmd.Process
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
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
