// Package zkserver runs real ZooKeeper servers on this machine for development, tests and benchmarks: one or three on
// 127.0.0.1, from the installed ZooKeeper. Servers can be paused, killed and restarted with their data.
//
// The package downloads and installs nothing: without Java or ZooKeeper, Start returns [ErrNotInstalled] with the
// command that installs them. It mocks nothing: faults are signals and killed processes. It listens only on the
// loopback interface, signals only processes that it started, and removes only a directory that it created. Its servers
// skip fsync: they keep data after kill -9, but not after a power cut.
//
// On Linux a server ends with the process that started it. On other Unix systems servers keep running if that process
// is killed before it calls Stop. Windows is not supported.
package zkserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/dev/daemon"
)

const (
	startTimeout = 3 * time.Minute // longer than a busy machine needs
	maxAttempts  = 5               // to start with other ports, since another program may take one
)

// A session gets the timeout that it asks for, within these bounds, with any TickTime.
const (
	MinSessionTimeout = 300 * time.Millisecond
	MaxSessionTimeout = 10 * time.Minute
)

// Options say what to start. The zero value is one server without TLS, in a temporary directory, on a free port.
type Options struct {
	Servers int // 1 or 3; 0 is 1
	// Dir is the directory of the servers' data. A later Start with the same Dir finds the data again. "" is a
	// temporary directory, which Stop removes.
	Dir string
	// TickTime is ZooKeeper's unit of time; 0 is 500 ms.
	TickTime time.Duration
	Port     int // of the first server for clients, followed by those of the others; 0 is free ports

	Netty      bool // use Netty instead of NIO: twice the requests per second, 0.1 s more to start
	TLS        bool // clients use TLS, see Ensemble.Certs; implies Netty
	ClientCert bool // refuse clients without a certificate; implies TLS

	Heap          string // of each server, as for java -Xmx; "" is 512m
	SuperPassword string // permits everything to "super:<SuperPassword>" with scheme digest; "" is nobody

	// Logins are the servers' login sections (JAAS), the first server's first: with one a server logs clients in by SASL.
	// "" is a server that does not. Nil: none does.
	Logins []string
	Java   []string // more arguments of java, such as -Dzookeeper.sessionRequireClientSASLAuth=true
}

// Ensemble is a running set of servers.
type Ensemble struct {
	dir       string
	temporary bool
	servers   []*Server
	ports     []*daemon.Reservation // keep the ports free for servers that were killed
	certs     Certs
}

// Start starts an ensemble, and returns when every server serves; three servers then have a leader. ctx ends only the
// start, not the ensemble. After an error no server is left running.
func Start(ctx context.Context, o Options) (*Ensemble, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	found, err := machine{root: "/", goos: runtime.GOOS, getenv: os.Getenv}.locate(o.Netty)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{dir: o.Dir, temporary: o.Dir == ""}
	if err := e.prepare(o); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	for range maxAttempts {
		var places []place
		if places, err = e.choosePlaces(o); err != nil {
			break
		}
		if err = e.run(ctx, places, o, found); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (o Options) complete() (Options, error) {
	o.Servers = cmp.Or(o.Servers, 1)
	if o.Servers != 1 && o.Servers != 3 {
		return o, fmt.Errorf("zookeeper: %d servers, can start 1 or 3", o.Servers)
	}
	o.TickTime = cmp.Or(o.TickTime, 500*time.Millisecond)
	o.Heap = cmp.Or(o.Heap, "512m")
	o.TLS = o.TLS || o.ClientCert
	o.Netty = o.Netty || o.TLS
	return o, nil
}

func (e *Ensemble) prepare(o Options) error {
	var err error
	if e.temporary {
		e.dir, err = os.MkdirTemp("", "zkserver-")
	} else {
		err = os.MkdirAll(e.dir, 0o755)
	}
	if err == nil {
		e.dir, err = filepath.Abs(e.dir) // a server has another working directory
	}
	if err == nil && o.TLS {
		e.certs, err = makeCerts(filepath.Join(e.dir, "tls"))
	}
	return err
}

// run starts the servers, and returns when all serve. If one fails, it kills the others.
func (e *Ensemble) run(ctx context.Context, places []place, o Options, found installation) error {
	e.servers = nil
	for i := range places {
		s, err := e.configure(i, places, o, found)
		if err != nil {
			return err
		}
		e.servers = append(e.servers, s)
	}
	starting, ctx := errgroup.WithContext(ctx)
	for _, s := range e.servers {
		starting.Go(func() error { return s.Restart(ctx) })
	}
	if err := starting.Wait(); err != nil {
		return errors.Join(err, e.kill())
	}
	return nil
}

// Addrs are the addresses for clients, one for each server.
func (e *Ensemble) Addrs() []string {
	addrs := make([]string, len(e.servers))
	for i, s := range e.servers {
		addrs[i] = s.addr
	}
	return addrs
}

// Connect is Addrs as one comma-separated string.
func (e *Ensemble) Connect() string { return strings.Join(e.Addrs(), ",") }

// Server is the i-th server, from 0.
func (e *Ensemble) Server(i int) *Server { return e.servers[i] }

// Certs are the files for clients of an ensemble with TLS; they are empty without TLS.
func (e *Ensemble) Certs() Certs { return e.certs }

// Leader is the index of the server that leads, or that is the only one. It waits for the end of an election, and
// ignores dead and paused servers.
func (e *Ensemble) Leader(ctx context.Context) (int, error) {
	for {
		if leader := slices.IndexFunc(e.servers, func(s *Server) bool { return s.leads(ctx) }); leader >= 0 {
			return leader, nil
		}
		select {
		case <-ctx.Done():
			return -1, fmt.Errorf("zookeeper has no leader: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (s *Server) leads(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	stat, err := s.Stat(ctx)
	return err == nil && (stat["Mode"] == "leader" || stat["Mode"] == "standalone")
}

// Stop kills the servers, waits until they have ended, and removes the directory if Start created it. A second Stop
// does nothing.
func (e *Ensemble) Stop() error {
	err := errors.Join(e.kill(), e.freePorts())
	if e.temporary && e.dir != "" {
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}

func (e *Ensemble) freePorts() error {
	var errs []error
	for _, r := range e.ports {
		errs = append(errs, r.Close())
	}
	e.ports = nil
	return errors.Join(errs...)
}

func (e *Ensemble) kill() error {
	var errs []error
	for _, s := range e.servers {
		errs = append(errs, s.End())
	}
	return errors.Join(errs...)
}

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
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // for four-letter words, perhaps with TLS
	dir  string
	java string
	args []string

	daemon.Service
}

// Addr is the host:port for clients. It stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// Stat is the answer to the four-letter word srvr: "Mode", "Zxid", "Connections", "Node count" and others. A paused
// server answers only after Resume, so ctx should have a deadline.
func (s *Server) Stat(ctx context.Context) (map[string]string, error) {
	return s.askFields(ctx, "srvr", ":")
}

// Mntr is the answer to the four-letter word mntr: "zk_znode_count", "zk_watch_count", "zk_ephemerals_count" and
// others. A paused server answers only after Resume, so ctx should have a deadline.
func (s *Server) Mntr(ctx context.Context) (map[string]string, error) {
	return s.askFields(ctx, "mntr", "\t")
}

// Restart kills the server if it runs, starts it again with the same data and addresses, and returns when it serves.
// One server of three serves only if another one runs: to restart several, call Restart concurrently. If ctx ends
// before the server serves, the server is killed.
func (s *Server) Restart(ctx context.Context) error {
	timeout := firstTimeout
	serves := func(ctx context.Context, p *daemon.Process) (bool, error) {
		if s.answers(ctx, &timeout) {
			return true, nil
		}
		lines := p.Out.Lines(5)
		if strings.Contains(lines, "BindException") || strings.Contains(lines, "Address already in use") {
			return false, fmt.Errorf("%w:\n%s", errPortTaken, lines)
		}
		return false, nil
	}
	if err := s.Begin(ctx, serves, s.dir, s.java, s.args...); err != nil {
		return fmt.Errorf("zookeeper at %s: %w", s.addr, err)
	}
	return nil
}

// answers reports whether this server answers. It checks the data directory in the answer, since another server may
// have taken the port. If there is no answer in time, it doubles the timeout for the next call.
func (s *Server) answers(ctx context.Context, timeout *time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	answer, err := s.ask(ctx, "conf")
	if ctx.Err() != nil {
		*timeout *= 2
	}
	return err == nil && strings.Contains(answer, "dataDir="+filepath.Join(s.dir, "data")+"/")
}

// ask sends one of ZooKeeper's four-letter words and returns the answer. The server then closes the connection.
func (s *Server) ask(ctx context.Context, word string) (string, error) {
	conn, err := s.dial(ctx, "tcp", s.addr)
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
		return "", fmt.Errorf("%s %s: %w", s.addr, word, ctx.Err())
	}
	if err == nil && strings.Contains(string(answer), "not currently serving") {
		err = fmt.Errorf("%s %s: server is up but not serving", s.addr, word)
	}
	return string(answer), err
}

// askFields splits each line of the answer at the separator.
func (s *Server) askFields(ctx context.Context, word, separator string) (map[string]string, error) {
	answer, err := s.ask(ctx, word)
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
