package zkserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/dev/daemon"
)

const (
	pollEvery = 10 * time.Millisecond
	// The server never answers a connection that arrives while it opens its port, so the first attempts are short.
	firstTimeout = 50 * time.Millisecond
	probeTimeout = 300 * time.Millisecond
)

// errPortTaken means that another program has the port. Choose other ports and try again.
var errPortTaken = errors.New("port is taken")

// Server is one ZooKeeper server. Its address and its directory stay the same over restarts. Its methods may be called
// concurrently.
type Server struct {
	addr string
	dial dialer // for four-letter words: with TLS if clients use it
	dir  string
	java string
	args []string

	mu      sync.Mutex
	proc    *daemon.Process // the latest run, nil before the first
	stopped bool
}

// Addr is the host:port for clients. It stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// Pid is the process id of the latest run.
func (s *Server) Pid() int { return s.run().OS.Pid }

// Stat is the answer to the four-letter word srvr: "Mode", "Zxid", "Connections", "Node count" and others. A paused
// server answers only after Resume, so ctx should have a deadline.
func (s *Server) Stat(ctx context.Context) (map[string]string, error) {
	return askFields(ctx, s.dial, s.addr, "srvr", ":")
}

// Mntr is the answer to the four-letter word mntr: "zk_znode_count", "zk_watch_count", "zk_ephemerals_count" and
// others. A paused server answers only after Resume, so ctx should have a deadline.
func (s *Server) Mntr(ctx context.Context) (map[string]string, error) {
	return askFields(ctx, s.dial, s.addr, "mntr", "\t")
}

// Pause stops the server's process. The kernel still accepts connections for it, but they get no answer.
func (s *Server) Pause() error { return s.run().Pause() }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.run().OS.Signal(syscall.SIGCONT) }

// Kill kills the server, as a crash would, and returns when it has ended. It is no error if it had ended before.
func (s *Server) Kill() error { return s.run().Kill() }

// Restart kills the server if it runs, starts it again with the same data and addresses, and returns when it serves.
// One server of three serves only if another one runs: to restart several, call Restart concurrently. If ctx ends
// before the server serves, the server is killed.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, err)
	}
	return s.start(ctx)
}

func (s *Server) run() *daemon.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// stop kills the server. It cannot be started again.
func (s *Server) stop() error {
	s.mu.Lock()
	s.stopped = true
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// start starts the server, and returns when it serves. After an error there is no process.
func (s *Server) start(ctx context.Context) error {
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, err)
	}
	if err := s.awaitServing(ctx, p); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, errors.Join(err, p.Kill()))
	}
	return nil
}

func (s *Server) launch() (*daemon.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("its ensemble was stopped")
	}
	if s.proc != nil && !s.proc.Ended() {
		return nil, errors.New("restarted twice at the same time") // two servers would destroy their directory
	}
	p, err := daemon.Launch(s.dir, s.java, s.args...)
	if err == nil {
		s.proc = p
	}
	return p, err
}

// awaitServing waits until the server serves.
func (s *Server) awaitServing(ctx context.Context, p *daemon.Process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for timeout := firstTimeout; !s.answers(ctx, &timeout); {
		lines := p.Out.Lines(5)
		if strings.Contains(lines, "BindException") || strings.Contains(lines, "Address already in use") {
			return fmt.Errorf("%w:\n%s", errPortTaken, lines)
		}
		select {
		case <-p.Done:
			return fmt.Errorf("ended instead of serving: %w\n%s", p.Err, p.Out.Lines(20))
		case <-ctx.Done():
			return fmt.Errorf("does not serve yet: %w\n%s", context.Cause(ctx), p.Out.Lines(20))
		case <-tick.C:
		}
	}
	return nil
}

// answers reports whether this server answers. It checks the data directory in the answer, since another server may
// have taken the port. If there is no answer in time, it doubles the timeout for the next call.
func (s *Server) answers(ctx context.Context, timeout *time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	answer, err := ask(ctx, s.dial, s.addr, "conf")
	if ctx.Err() != nil {
		*timeout *= 2
	}
	return err == nil && strings.Contains(answer, "dataDir="+filepath.Join(s.dir, "data")+"/")
}

// dialer is a net.Dialer or a tls.Dialer.
type dialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// ask sends one of ZooKeeper's four-letter words and returns the answer. The server then closes the connection.
func ask(ctx context.Context, d dialer, addr, word string) (string, error) {
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s: %w", addr, word, ctx.Err())
	}
	if err == nil && strings.Contains(string(answer), "not currently serving") {
		err = fmt.Errorf("%s %s: server is up but not serving", addr, word)
	}
	return string(answer), err
}

// askFields splits each line of the answer at the separator.
func askFields(ctx context.Context, d dialer, addr, word, separator string) (map[string]string, error) {
	answer, err := ask(ctx, d, addr, word)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(answer) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}
