// Package daemon runs programs on this machine, for packages zkserver and redisserver and for tests: it starts, pauses
// and kills one, keeps the last of what it wrote, and keeps its port free while it does not run.
//
// It knows no server. It signals only processes that it started. On Linux a process ends with the one that started it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
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

// Ended reports whether the process has ended.
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

// Service is a program that serves in a place of its own, in one process after another. Its methods may be called
// concurrently.
type Service struct {
	mu      sync.Mutex
	last    *Process
	stopped bool
}

// Begin ends the last run, starts another one, and returns when it serves: it asks again and again. After an error
// there is no process.
func (s *Service) Begin(
	ctx context.Context, serves func(context.Context, *Process) (bool, error), dir, path string, args ...string,
) error {
	p, err := s.launch(dir, path, args)
	if err != nil {
		return err
	}
	if err := p.await(ctx, serves); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

func (s *Service) launch(dir, path string, args []string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("it was stopped")
	}
	if s.last != nil { // two processes would destroy their directory
		if err := s.last.Kill(); err != nil {
			return nil, err
		}
	}
	p, err := Launch(dir, path, args...)
	if err == nil {
		s.last = p
	}
	return p, err
}

func (p *Process) await(ctx context.Context, serves func(context.Context, *Process) (bool, error)) error {
	for {
		if is, err := serves(ctx, p); is || err != nil {
			return err
		}
		select {
		case <-p.Done:
			return fmt.Errorf("ended instead of serving: %w\n%s", p.Err, p.Out.Lines(20))
		case <-ctx.Done():
			return fmt.Errorf("does not serve yet: %w\n%s", context.Cause(ctx), p.Out.Lines(20))
		case <-time.After(pollEvery):
		}
	}
}

// Run is the latest run; nil before the first.
func (s *Service) Run() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Pause freezes the latest run. The kernel still accepts connections for it, but they get no answer.
func (s *Service) Pause() error { return s.Run().Pause() }

// Resume ends a Pause.
func (s *Service) Resume() error { return s.Run().OS.Signal(syscall.SIGCONT) }

// Kill kills the latest run, as a crash would, and returns when it has ended. It is no error if it had ended before.
func (s *Service) Kill() error { return s.Run().Kill() }

// End kills the latest run, if there is one. No other begins.
func (s *Service) End() error {
	s.mu.Lock()
	s.stopped = true
	p := s.last
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Kill()
}

const (
	pollEvery = 5 * time.Millisecond
	maxOutput = 64 << 10
)

// Output keeps the last maxOutput bytes that a process wrote.
type Output struct {
	mu  sync.Mutex
	end []byte
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = append(o.end, b...)
	if over := len(o.end) - maxOutput; over > 0 {
		o.end = append(o.end[:0], o.end[over:]...)
	}
	return len(b), nil
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.end)
}

// Lines are the last n lines, without the indented lines of stack traces.
func (o *Output) Lines(n int) string {
	var kept []string
	for line := range strings.Lines(o.String()) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '\t' {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], "\n")
}

// ReservePort reserves a port. If it is 0, it reserves a free one below the ports that systems use for outgoing
// connections (32768 and up on Linux, 49152 and up elsewhere). So even where a reservation does not keep other programs
// out, they hardly take it.
func ReservePort(port int) (r *Reservation, err error) {
	if port != 0 {
		return Reserve(port, false)
	}
	for range 100 {
		if r, err = Reserve(10000+rand.IntN(20000), true); err == nil {
			break
		}
	}
	return r, err
}

// Loopback is the host:port of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
