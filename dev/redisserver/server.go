// Package redisserver runs real Redis servers on this machine for development, tests and benchmarks: one, or a primary
// with a replica and sentinels, on 127.0.0.1, from the installed Redis. Servers can be paused, killed and restarted
// with their data.
//
// The package downloads and installs nothing: without Redis 7, Start returns [ErrNotInstalled] with the command that
// installs it. It mocks nothing: faults are signals and killed processes. It listens only on the loopback interface,
// signals only processes that it started, and removes only directories that it created.
package redisserver

import (
	"bufio"
	"cmp"
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
	Port     int      // 0 is a free one
	Fsync    string   // appendfsync: always, everysec or no; "" is no, and a killed server keeps its data
	Password string   // requirepass; "" is none
	Extra    []string // more arguments, of which the last ones count

	watch *Watched // a sentinel of these, which takes nothing else from here
}

// Server is one Redis server. Its address and its directory stay the same over restarts. Its methods may be called
// concurrently.
type Server struct {
	program string
	dir     string
	options Options
	port    *daemon.Reservation

	daemon.Service
	stop sync.Once
}

// Start starts a server, and returns when it answers. ctx ends only the start, not the server. After an error no server
// is left running.
func Start(ctx context.Context, o Options) (*Server, error) {
	name := "redis-server"
	if o.watch != nil {
		name = "redis-sentinel"
	}
	program, err := locate(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, options: o}
	if s.dir, err = os.MkdirTemp("", "redisserver-"); err != nil {
		return nil, err
	}
	if err := s.firstStart(ctx); err != nil {
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
		if o := s.options; o.watch != nil {
			conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 2\n"+
				"sentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n",
				s.port.Port, s.dir, o.watch.Name, o.watch.Servers[0].port.Port)
			if err = os.WriteFile(s.sentinelFile(), []byte(conf), 0o600); err != nil {
				return err
			}
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
func (s *Server) Output() string { return s.Run().Out.String() }

// Restart kills the server if it runs, starts it again with the same data and address, and returns when it answers. If
// ctx ends before, the server is killed.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	if err := s.Begin(ctx, s.serves, s.dir, s.program, s.arguments()...); err != nil {
		return fmt.Errorf("redis at %s: %w", s.Addr(), err)
	}
	return nil
}

// Stop kills the server and removes its data. A second Stop does nothing.
func (s *Server) Stop() (err error) {
	s.stop.Do(func() {
		err = s.End()
		if s.port != nil {
			err = errors.Join(err, s.port.Close())
		}
		err = errors.Join(err, os.RemoveAll(s.dir))
	})
	return err
}

func (s *Server) arguments() []string {
	o := s.options
	if o.watch != nil {
		return []string{s.sentinelFile(), "--sentinel"}
	}
	args := []string{
		"--port", strconv.Itoa(s.port.Port), "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", cmp.Or(o.Fsync, "no"), "--save", "",
		"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0",
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	return append(args, o.Extra...)
}

// sentinelFile configures a sentinel, which writes into it. So it is not written again at a restart.
func (s *Server) sentinelFile() string { return filepath.Join(s.dir, "sentinel.conf") }

// serves asks the server at the address for its process id, since another program may have taken the port. The server
// does not serve while it reads its data.
func (s *Server) serves(ctx context.Context, p *daemon.Process) (bool, error) {
	info, err := s.info(ctx, "server")
	return err == nil && info["process_id"] == strconv.Itoa(p.OS.Pid), nil
}

// info is a section of the server's INFO, without a client library. A server that still reads its data answers INFO,
// but refuses a PING: that is an error here.
func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := "PING\r\nINFO " + section + "\r\n"
	if s.options.Password != "" {
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

// Watched is a primary with a replica, watched by three sentinels: they make the replica the primary when they miss the
// primary for a second.
type Watched struct {
	Name      string    // what the sentinels call them
	Servers   []*Server // the first primary, its first replica
	Sentinels []*Server
}

// StartWatched starts the servers, and returns when the replica follows the primary and every sentinel knows both and
// the other sentinels.
func StartWatched(ctx context.Context) (*Watched, error) {
	w := &Watched{Name: "muster"}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *Watched) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	primary, err := Start(ctx, Options{})
	if err != nil {
		return err
	}
	w.Servers = append(w.Servers, primary)
	replica, err := Start(ctx, Options{Extra: []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(primary.port.Port)}})
	if err != nil {
		return err
	}
	w.Servers = append(w.Servers, replica)
	if err := replica.awaitInfo(ctx, "replication", "master_link_status", "up"); err != nil {
		return err
	}
	for range 3 {
		s, err := Start(ctx, Options{watch: w})
		if err != nil {
			return err
		}
		w.Sentinels = append(w.Sentinels, s)
	}
	known := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=3", w.Name, primary.Addr())
	for _, s := range w.Sentinels {
		if err := s.awaitInfo(ctx, "sentinel", "master0", known); err != nil {
			return err
		}
	}
	return nil
}

// awaitInfo waits until a line of the server's INFO has this value.
func (s *Server) awaitInfo(ctx context.Context, section, name, value string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		info, err := s.info(ctx, section)
		if err == nil && info[name] == value {
			return nil
		}
		select {
		case <-ctx.Done():
			err := errors.Join(context.Cause(ctx), err)
			return fmt.Errorf("redis at %s: %s is %q, want %q: %w", s.Addr(), name, info[name], value, err)
		case <-tick.C:
		}
	}
}

// SentinelAddrs are the host:port of the sentinels.
func (w *Watched) SentinelAddrs() []string {
	var addrs []string
	for _, s := range w.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Stop stops all of them. A second Stop does nothing.
func (w *Watched) Stop() error {
	var errs []error
	for _, s := range append(w.Sentinels, w.Servers...) {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}
