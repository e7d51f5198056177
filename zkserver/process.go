package zkserver

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one run of a server.
type process struct {
	os   *os.Process
	out  output
	done chan struct{} // closed when the process has ended
	err  error         // why it ended; valid after done
}

// launch starts the command. Linux sends the death signal when the thread that forked ends, not when the process ends.
// So the goroutine that starts the server keeps its thread until the server has ended.
func launch(dir, path string, args ...string) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(path, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, &p.out, &p.out, attributes()
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // so that Java can open files with names that are not ASCII
		err := cmd.Start()
		p.os = cmd.Process
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// pause stops the process, and returns when all of its threads are stopped.
func (p *process) pause() error {
	if err := p.os.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(p.os.Pid)
}

// kill kills the process, and returns when it has ended. It is no error if it had ended before.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}
