// Package zkserver runs real ZooKeeper servers on this machine for development, tests and benchmarks: one or three on
// 127.0.0.1, from the installed ZooKeeper. Servers can be paused, killed and restarted with their data. A [Proxy]
// between client and server causes faults on demand.
//
// The package downloads and installs nothing: without Java or ZooKeeper, Start returns [ErrNotInstalled] with the
// command that installs them. It mocks nothing: faults are signals, killed processes and broken connections. It listens
// only on the loopback interface, signals only processes that it started, and removes only a directory that it created.
// Its servers skip fsync: they keep data after kill -9, but not after a power cut.
//
// On Linux a server ends with the process that started it. On other Unix systems servers keep running if that process
// is killed before it calls Stop. Windows is not supported.
package zkserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
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
	Ports    []int // ports for clients, one for each server; nil, or a port 0, is a free port

	Netty      bool // use Netty instead of NIO: twice the requests per second, 0.1 s more to start
	TLS        bool // clients use TLS, see Ensemble.Certs; implies Netty
	ClientCert bool // refuse clients without a certificate; implies TLS

	Heap          string // of each server, as for java -Xmx; "" is 512m
	SuperPassword string // permits everything to "super:<SuperPassword>" with scheme digest; "" is nobody
}

// Ensemble is a running set of servers.
type Ensemble struct {
	dir       string
	temporary bool
	servers   []*Server
	ports     reservations // keep the ports free for servers that were killed
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
		if err = e.freePorts(); err != nil {
			break
		}
		if places, e.ports, err = choosePlaces(o); err != nil {
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
	if o.Servers == 0 {
		o.Servers = 1
	}
	if o.Servers != 1 && o.Servers != 3 {
		return o, fmt.Errorf("zookeeper: %d servers, can start 1 or 3", o.Servers)
	}
	if len(o.Ports) != 0 && len(o.Ports) != o.Servers {
		return o, fmt.Errorf("zookeeper: %d ports for %d servers", len(o.Ports), o.Servers)
	}
	if o.TickTime == 0 {
		o.TickTime = 500 * time.Millisecond
	}
	if o.Heap == "" {
		o.Heap = "512m"
	}
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	for _, s := range e.servers {
		go func() { results <- s.start(ctx) }()
	}
	var first error
	for range e.servers {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if first != nil {
		return errors.Join(first, e.kill())
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
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		answers := make(chan int)
		for i, s := range e.servers {
			go func() { answers <- leads(ctx, i, s) }()
		}
		leader := -1
		for range e.servers {
			leader = max(leader, <-answers)
		}
		if leader >= 0 {
			return leader, nil
		}
		select {
		case <-ctx.Done():
			return -1, fmt.Errorf("zookeeper has no leader: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func leads(ctx context.Context, i int, s *Server) int {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	stat, err := s.Stat(ctx)
	if mode := stat["Mode"]; err != nil || mode != "leader" && mode != "standalone" {
		return -1
	}
	return i
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
	held := e.ports
	e.ports = nil
	return held.close()
}

func (e *Ensemble) kill() error {
	var errs []error
	for _, s := range e.servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}
