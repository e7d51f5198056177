package zkserver

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A process is one run of a server, from exec until it was waited for.
type process struct {
	os   *os.Process
	out  output
	done chan struct{} // closed when the process has ended
	err  error         // why it ended; read it after done
}

// launch starts the command. Linux ties the death signal to the thread that forked, not to the process, so the goroutine that starts the
// server keeps its thread until the server has ended.
func launch(dir, path string, args ...string) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(path, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, &p.out, &p.out, attributes()
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8") // else Java cannot open a file whose name is not ASCII
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

// pause returns when the process no longer runs on any of its threads.
func (p *process) pause() error {
	if err := p.os.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(p.os.Pid)
}

// kill returns when the process has ended; it is no error if it had ended before.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}
