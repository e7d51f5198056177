package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/dev/zkmodel"
	"muster/zkstate/zkconn"
)

// World is one schedule's processes, servers and checks. A world's function declares them anew for each schedule. It
// runs in the schedule's bubble: package testing/synctest says what that means for time and for channels.
type World struct {
	options Options
	server  *zkmodel.Server
	zk      *foreign // server, as one to which messages go; it is not among foreign
	setup   []func(context.Context, *zkconn.Session) error
	setupAs []zkconn.Auth
	procs   []*process
	foreign []*foreign
	lives   []*Process
	conns   []*conn // in the order of their processes and lives
	checks  []func() error
	ends    []func() error
	txns    []func(*zkmodel.Txn) error

	activity   chan struct{} // holds an element when a process did something since the scheduler looked
	left       Faults        // that may still happen
	preparing  bool          // Setup runs
	stopping   bool          // services are told to end
	allBlocked bool          // nothing woke a process since all were blocked
	trace      []string
	moving     []step // of moves
	record     bool   // also the fair end, in after
	after      []string
	guarded    map[guard]bool  // guards that were seen
	concerned  map[string]bool // whether a label is one of the mutant's transactions
	ignored    int             // how often a mutant's guard was ignored

	mu      sync.Mutex // guards what follows, and what Saw's functions touch
	err     error      // why the schedule failed
	dialled []*conn    // new connections
}

// process is a declared process with all its lives.
type process struct {
	name    string
	index   int
	lives   int
	service bool
	body    func(*Process) error

	life    *Process // current or last; nil before the first
	began   int      // lives so far
	crashes int
	done    bool // a body has returned without error, or it crashed for good
	paused  bool
}

// Process is one life of a process: what a body runs with.
type Process struct {
	world  *World
	proc   *process
	number int
	name   string // of the life: "a.0"
	ctx    context.Context
	cancel context.CancelFunc
	ended  bool // the scheduler has seen that it crashed or returned

	mu       sync.Mutex
	crashed  bool
	returned bool
	err      error
	sessions []*zkconn.Session
}

// errCrashed is what a crashed process gets from everything that it still tries.
var errCrashed = errors.New("this process has crashed")

// Setup runs f before the processes start, without faults, with a session of its own.
func (w *World) Setup(f func(ctx context.Context, s *zkconn.Session) error) {
	w.setup = append(w.setup, f)
}

// SetupAs gives the session of Setup these credentials.
func (w *World) SetupAs(auth ...zkconn.Auth) { w.setupAs = auth }

// Process declares a process. body is its real code. It starts when the scheduler chooses, and may crash between any
// two messages, at most lives times; then its next life starts. With lives < 0 it may crash once, and never comes back.
//
// A body that returns nil is done for good. An error of a lost session, an unknown outcome or a cancelled context ends
// the life, and the next begins, besides those that lives counts. Any other error fails the schedule.
func (w *World) Process(name string, lives int, body func(p *Process) error) {
	w.procs = append(w.procs, &process{name: name, index: len(w.procs), lives: lives, body: body})
}

// Service declares a process that runs until the others are done: its context then ends, and its body must return.
func (w *World) Service(name string, lives int, body func(p *Process) error) {
	w.Process(name, lives, body)
	w.procs[len(w.procs)-1].service = true
}

// InSession is the body of a process that does all in one session.
func InSession(timeout time.Duration, body func(p *Process, s *zkconn.Session) error) func(*Process) error {
	return func(p *Process) error {
		s, err := p.Dial(timeout)
		if err != nil {
			return err
		}
		defer s.Close()
		return body(p, s)
	}
}

// Server is the model of ZooKeeper, for checks. They must only read it.
func (w *World) Server() *zkmodel.Server { return w.server }

// Check adds an invariant that holds after every step. It may read what functions given to Saw wrote.
func (w *World) Check(f func() error) { w.checks = append(w.checks, f) }

// OnTxn adds a check of each write request that the server executed or refused.
func (w *World) OnTxn(f func(*zkmodel.Txn) error) { w.txns = append(w.txns, f) }

// AtEnd adds a check after the fair end, when every body has returned.
func (w *World) AtEnd(f func() error) { w.ends = append(w.ends, f) }

// Who is the process and life that owns a session, for example "a.0"; "" if it is not known.
func (w *World) Who(session int64) string {
	for _, c := range w.conns {
		if c.session == session {
			return c.life.String()
		}
	}
	return ""
}

// fail ends the schedule. Only the first call counts.
func (w *World) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *World) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *World) wake() { notify(w.activity) }

// notify makes a channel hold an element.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Context ends when the process crashes.
func (p *Process) Context() context.Context { return p.ctx }

// Life is 0 for the first life of the process.
func (p *Process) Life() int { return p.number }

// Name is the name that World.Process got.
func (p *Process) Name() string { return p.proc.name }

// String is the name and the life: "a.0".
func (p *Process) String() string { return p.name }

func lifeName(process string, number int) string { return process + "." + strconv.Itoa(number) }

// Alive reports whether the process has not crashed.
func (p *Process) Alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.crashed
}

// Saw runs f unless the process has crashed. All such functions and all checks run one after the other.
func (p *Process) Saw(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	f()
}

// Fail makes the schedule fail, unless the process has crashed.
func (p *Process) Fail(err error) {
	if p.Alive() {
		p.world.fail(fmt.Errorf("%s: %w", p, err))
	}
}

// Dial opens a session through the scheduler. The session is closed when the process crashes, and at the end.
func (p *Process) Dial(timeout time.Duration) (*zkconn.Session, error) {
	s, err := zkconn.Dial(p.ctx, p.Config(timeout))
	if err == nil {
		p.Owns(s)
	}
	return s, err
}

// Config is for code that dials by itself. Tell the process of the session with Owns.
func (p *Process) Config(timeout time.Duration) zkconn.Config {
	return zkconn.Config{
		Servers: []string{"192.0.2.1:2181"}, Timeout: timeout, Small: true,
		Dial:   func(context.Context, string) (net.Conn, error) { return p.connect("", p.world.zk) },
		Jitter: func(most time.Duration) time.Duration { return most / 2 }, // a trace replays then
	}
}

// Owns makes the session end when the process crashes, and with the schedule.
func (p *Process) Owns(s *zkconn.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions = append(p.sessions, s); p.crashed {
		go s.Close()
	}
}

// connect makes a connection. name tells those to different servers apart.
func (p *Process) connect(name string, to *foreign) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return nil, errCrashed
	}
	c := newConn(p.world, p, name, to)
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.dialled = append(p.world.dialled, c)
	return c, nil
}

// crash ends the life: everything it tries from now on fails.
func (p *Process) crash() {
	p.mu.Lock()
	p.crashed = true
	sessions := p.sessions
	p.mu.Unlock()
	p.cancel()
	for _, c := range p.world.conns {
		if c.life == p {
			c.sever()
		}
	}
	for _, s := range sessions {
		go s.Close()
	}
}

func (p *Process) finish(err error) {
	p.mu.Lock()
	p.returned, p.err = true, err
	p.mu.Unlock()
	p.world.wake()
}

func (p *Process) result() (returned bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.returned, p.err
}

// isFault reports whether an error of a body is what a fault does to correct code.
func isFault(err error) bool {
	return Unless(err, zkconn.ErrSessionLost, zkconn.ErrUnknown, zkconn.ErrUnreachable, zkconn.ErrNotSent,
		context.Canceled, context.DeadlineExceeded) == nil
}

// Unless returns err, unless it is one of these, with which a process may end.
func Unless(err error, these ...error) error {
	if slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) }) {
		return nil
	}
	return err
}

// stacks lists where the goroutines of this bubble wait in our code.
func (w *World) stacks() string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+`)
	own := make([]byte, 4<<10)
	mine := bubble.Find(own[:runtime.Stack(own, false)])
	if mine == nil {
		return ""
	}
	var out []string
	for _, g := range strings.Split(string(all), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if strings.Contains(head, string(mine)+"]") && !strings.Contains(frames, "go-zookeeper/zk.") &&
			!strings.Contains(frames, "synctest.Run(") {
			out = append(out, ours(frames)...)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n")
}

// ours is where a goroutine waits in code of the worlds and the recipes, innermost first, in one line.
func ours(frames string) []string {
	var calls []string
	call := regexp.MustCompile(`(?m)^(?:created by )?muster/(.+?)(?:\([^()]*\))?(?: in goroutine \d+)?\n\s.*/(\S+)`)
	for _, m := range call.FindAllStringSubmatch(frames, -1) {
		if !strings.HasPrefix(m[1], "sim.(*") && !strings.HasPrefix(m[1], "sim.inBubble") {
			calls = append(calls, fmt.Sprintf("%s (%s)", m[1], m[2]))
		}
	}
	if len(calls) == 0 {
		return nil
	}
	return []string{"    waits in " + strings.Join(calls, " < ")}
}
