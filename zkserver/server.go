package zkserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	pollEvery = 10 * time.Millisecond
	// A connection that comes in the moment when the server opens its port is never answered, so the first attempts are short.
	firstPatience = 50 * time.Millisecond
	probeTimeout  = 300 * time.Millisecond
)

// errPortTaken means that another program was faster. Choose other ports and try again.
var errPortTaken = errors.New("port is taken")

// A Server is one ZooKeeper server: a place (addresses, directory) and, most of the time, a process. Its methods may be called from any goroutine.
type Server struct {
	addr string
	dial dialer // for four-letter words: plain or TLS, as its clients
	dir  string
	java string
	args []string

	mu      sync.Mutex
	proc    *process // the latest run, nil before the first
	stopped bool
}

// Addr is the host:port that clients dial. It stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// Pid is the process id of the latest run.
func (s *Server) Pid() int { return s.run().os.Pid }

// Output is the end of what the latest run wrote to its standard output and error: its errors.
func (s *Server) Output() string { return s.run().out.String() }

// Stat is the answer to the four-letter word srvr: "Mode", "Zxid", "Connections", "Node count" and others. A paused server answers only
// after Resume, so ctx should have a deadline.
func (s *Server) Stat(ctx context.Context) (map[string]string, error) {
	return askFields(ctx, s.dial, s.addr, "srvr", ":")
}

// Mntr is the answer to the four-letter word mntr: "zk_znode_count", "zk_watch_count", "zk_ephemerals_count" and many others. A paused
// server answers only after Resume, so ctx should have a deadline.
func (s *Server) Mntr(ctx context.Context) (map[string]string, error) {
	return askFields(ctx, s.dial, s.addr, "mntr", "\t")
}

// Pause freezes the server. The kernel goes on to accept connections for it, and nobody answers them.
func (s *Server) Pause() error { return s.run().pause() }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.run().os.Signal(syscall.SIGCONT) }

// Kill ends the server at once, as a crash would, and returns when it is gone. Killing a dead server is no error.
func (s *Server) Kill() error { return s.run().kill() }

// Restart kills the server if it runs, starts it again on the same data and addresses, and returns when it serves. A server of three
// serves only with a second one: to bring back more than one, restart them at the same time. If ctx ends before, the server is dead.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, err)
	}
	return s.start(ctx)
}

func (s *Server) run() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// stop is a Kill that no start comes after.
func (s *Server) stop() error {
	s.mu.Lock()
	s.stopped = true
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.kill()
}

// start returns when the server serves, or with an error and without a process.
func (s *Server) start(ctx context.Context) error {
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, err)
	}
	if err := s.serving(ctx, p); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, errors.Join(err, p.kill()))
	}
	return nil
}

func (s *Server) launch() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("its ensemble was stopped")
	}
	if s.proc != nil && !s.proc.ended() {
		return nil, errors.New("restarted twice at the same time") // two servers on one directory would destroy it
	}
	p, err := launch(s.dir, s.java, s.args...)
	if err == nil {
		s.proc = p
	}
	return p, err
}

func (s *Server) serving(ctx context.Context, p *process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for patience := firstPatience; !s.answers(ctx, &patience); {
		if lines := p.out.lines(5); strings.Contains(lines, "BindException") || strings.Contains(lines, "Address already in use") {
			return fmt.Errorf("%w:\n%s", errPortTaken, lines)
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended instead of serving: %w\n%s", p.err, p.out.lines(20))
		case <-ctx.Done():
			return fmt.Errorf("does not serve yet: %w\n%s", context.Cause(ctx), p.out.lines(20))
		case <-tick.C:
		}
	}
	return nil
}

// answers looks at the data directory in the answer: on a contested port it may be another server that answers. A machine that is too busy
// to answer in time gets twice the time at the next call.
func (s *Server) answers(ctx context.Context, patience *time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	answer, err := ask(ctx, s.dial, s.addr, "conf")
	if ctx.Err() != nil {
		*patience *= 2
	}
	return err == nil && strings.Contains(answer, "dataDir="+filepath.Join(s.dir, "data")+"/")
}
