// Package redisserver runs real Redis servers on this machine for development, tests and benchmarks: one, or a primary
// with a replica and sentinels, on 127.0.0.1, from the installed Redis. Servers can be paused, killed and restarted
// with their data.
//
// The package downloads and installs nothing: without Redis 7, Start returns [ErrNotInstalled] with the command that
// installs it. It mocks nothing: faults are signals and killed processes. It listens only on the loopback interface,
// signals only processes that it started, and removes only a directory that it created.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/dev/daemon"
)

const (
	startTimeout = 3 * time.Minute
	pollEvery    = 5 * time.Millisecond
	probeTimeout = time.Second
	maxAttempts  = 5 // at finding a port that nobody takes before the server does
)

// Options describe a server. The zero value is a server that keeps its data over Restart, but not over a power cut.
type Options struct {
	Dir      string // its data; "" is a new directory that Stop removes
	Port     int    // 0 is a free one
	Policy   string // maxmemory-policy; "" is noeviction, as a queue needs
	Memory   int64  // maxmemory in bytes; 0 is no limit
	Fsync    string // appendfsync: always, everysec or no; "" is no. A killed server keeps its data with each of them
	Password string // requirepass; "" is none
	Extra    []string
}

// Server is one Redis server. Its address and its directory stay the same over restarts. Its methods may be called
// concurrently.
type Server struct {
	program   string
	dir       string
	temporary bool
	options   Options
	port      *daemon.Reservation
	sentinel  bool

	mu      sync.Mutex
	proc    *daemon.Process
	stopped bool
}

// Start starts a server, and returns when it answers. ctx ends only the start, not the server. After an error no server
// is left running.
func Start(ctx context.Context, o Options) (*Server, error) {
	program, err := locate(ctx, "redis-server")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, options: o, dir: o.Dir, temporary: o.Dir == ""}
	if s.temporary {
		s.dir, err = os.MkdirTemp("", "redisserver-")
	} else {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err == nil {
		err = s.firstStart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// firstStart reserves a port and starts the server there. Where a reservation does not keep others out, it takes
// another one.
func (s *Server) firstStart(ctx context.Context) error {
	var err error
	for range maxAttempts {
		if s.port != nil {
			_ = s.port.Close()
		}
		if s.port, err = daemon.ReservePort(s.options.Port); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		if err = s.port.AllowListen(); err != nil {
			return err
		}
		if err = s.Restart(ctx); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// Addr is the host:port for clients. It stays the same over restarts.
func (s *Server) Addr() string { return daemon.Loopback(s.port.Port) }

// Output is the last 64 KiB that the latest run wrote.
func (s *Server) Output() string { return s.run().Out.String() }

// Pause freezes the server's process. The kernel still accepts connections for it, but they get no answer.
func (s *Server) Pause() error { return s.run().Pause() }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.run().OS.Signal(syscall.SIGCONT) }

// Kill kills the server, as a crash would, and returns when it has ended. It is no error if it had ended before.
func (s *Server) Kill() error { return s.run().Kill() }

// Restart kills the server if it runs, starts it again with the same data and address, and returns when it answers. If
// ctx ends before, the server is killed.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("redis at %s: %w", s.Addr(), err)
	}
	if err := s.awaitAnswer(ctx, p); err != nil {
		return fmt.Errorf("redis at %s: %w", s.Addr(), errors.Join(err, p.Kill()))
	}
	return nil
}

// Stop kills the server and removes the directory if Start created it. A second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	var err error
	if s.proc != nil {
		err = s.proc.Kill()
	}
	if s.port != nil {
		err = errors.Join(err, s.port.Close())
	}
	if s.temporary && s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *Server) run() *daemon.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) launch() (*daemon.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("it was stopped")
	}
	if s.proc != nil {
		if err := s.proc.Kill(); err != nil {
			return nil, err
		}
	}
	p, err := daemon.Launch(s.dir, s.program, s.arguments()...)
	if err == nil {
		s.proc = p
	}
	return p, err
}

func (s *Server) arguments() []string {
	port := strconv.Itoa(s.port.Port)
	if s.sentinel { // a sentinel writes into its file, so it is not written again
		return []string{filepath.Join(s.dir, "sentinel.conf"), "--sentinel"}
	}
	o := s.options
	if o.Policy == "" {
		o.Policy = "noeviction"
	}
	if o.Fsync == "" {
		o.Fsync = "no"
	}
	args := []string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", o.Fsync, "--save", "", "--maxmemory-policy", o.Policy,
		"--maxmemory", strconv.FormatInt(o.Memory, 10), "--repl-diskless-sync-delay", "0",
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	return append(args, o.Extra...)
}

// awaitAnswer waits until the process answers.
func (s *Server) awaitAnswer(ctx context.Context, p *daemon.Process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		id, err := s.processID(ctx)
		if err == nil && id == p.OS.Pid {
			return nil
		}
		select {
		case <-p.Done:
			return fmt.Errorf("ended instead of serving: %w\n%s", p.Err, p.Out.Lines(20))
		case <-ctx.Done():
			return fmt.Errorf("does not answer yet: %w\n%s", context.Cause(ctx), p.Out.Lines(20))
		case <-tick.C:
		}
	}
}

// processID asks the server at the address for its process id: another program may have taken the port. It is an error
// while the server reads its data.
func (s *Server) processID(ctx context.Context) (int, error) {
	info, err := s.info(ctx, "default")
	if err != nil {
		return 0, err
	}
	if info["loading"] == "1" {
		return 0, errors.New("it reads its data")
	}
	return strconv.Atoi(info["process_id"])
}

// info is a section of the server's INFO, without a client library.
func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request := "INFO " + section + "\r\n"
	if s.options.Password != "" && !s.sentinel {
		request = "AUTH " + s.options.Password + "\r\n" + request
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, err
	}
	found, in := map[string]string{}, bufio.NewScanner(conn)
	for in.Scan() {
		line := in.Text()
		switch {
		case strings.HasPrefix(line, "-"): // -LOADING
			return nil, errors.New(line)
		case line == "" && len(found) > 0:
			return found, nil
		}
		if name, value, ok := strings.Cut(line, ":"); ok {
			found[name] = value
		}
	}
	return nil, errors.Join(errors.New("the answer ends early"), in.Err())
}

// ErrNotInstalled means that this machine lacks Redis, or has one that is too old. Show the error to the user: it names
// the command that installs it.
var ErrNotInstalled = errors.New("not installed")

// oldest is the major version that a queue needs.
const oldest = 7

// version is what redis-server --version prints, such as "Redis server v=7.0.15 sha=…".
var version = regexp.MustCompile(`\bv=((\d+)\.\S+)`)

// locate is the path of a program of Redis, which Debian has in a package of the same name.
func locate(ctx context.Context, program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", missing(program, err.Error())
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return "", missing(program, fmt.Sprintf("%s says its version is %.80q", path, out))
	}
	if major, err := strconv.Atoi(found[2]); err != nil || major < oldest {
		return "", missing(program, fmt.Sprintf("%s is version %s", path, found[1]))
	}
	return path, nil
}

// missing is ErrNotInstalled, with the command that installs the program.
func missing(program, why string) error {
	remedy := "install Redis 7 or newer"
	if _, err := os.Stat("/etc/debian_version"); err == nil {
		remedy = "run: apt-get install -y " + program
	} else if runtime.GOOS == "darwin" {
		remedy = "run: brew install redis"
	}
	return fmt.Errorf("%s 7 or newer is %w (%s); %s", program, ErrNotInstalled, why, remedy)
}
