package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/member"
	"muster/resource"
	"muster/text"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Life is what a worker, a member, an executor and a watcher are told alike.
type Life struct {
	Command []string   // with its arguments
	Dir     string     // where commands run; empty is where this process does
	Environ []string   // NAME=value; more is added. See command.WithoutCredentials
	Files   []*os.File // the standard streams of this process

	JoinTimeout time.Duration // for ZooKeeper and to join; 0 leaves it to the job, the group or the queue
	Grace       time.Duration // for a command that was asked to end
	HTTP        string        // address of the health server; empty: none. Port 0 is a free port
	Guard       []string      // the command line that calls command.Guard with a path and arguments
	GuardGroups []string      // the command line that calls command.GuardGroups

	// Serving, unless nil, is told where the health server listens before the process joins.
	Serving func(addr net.Addr)

	// Connect opens a session, or fails with zkconn.ErrUnreachable after a few seconds: then it is called again. Its
	// sessions are closed before Run and its like return.
	Connect func(ctx context.Context, sessionTimeout time.Duration) (*zkconn.Session, error)
	// SessionTimeout is that of the first session. If the Record says another one, the session is replaced.
	SessionTimeout time.Duration

	Signals <-chan os.Signal // see command.Signals
	Log     *slog.Logger
}

// place is where a process joins, and as whom.
type place struct {
	kind                 resource.Kind
	root, name, identity string
	who                  string // worker, member or process, in the names of metrics
	// declared is the session timeout that a Record says.
	declared  func(*resource.Record) resource.Duration
	joinLimit resource.Duration // how long to wait for ZooKeeper without a JoinTimeout: the default for a missing resource
	waiting   func(what string) // unless nil, called when no server can be reached
}

// life is that of one process: it joins, works, joins again whenever the membership is lost, and leaves.
type life struct {
	Life
	place
	path    string // of the command
	null    *os.File
	timeout time.Duration                  // of the next session
	limit   time.Duration                  // for waiting until a server can be reached
	session atomic.Pointer[zkconn.Session] // the newest one
	socket  *socket                        // of those that have one
	lost    chan error                     // why the membership is over, if the command must not outlive it
	killAll context.Context                // ends, by kill, when all commands are to be killed at once
	kill    context.CancelFunc
	health  *health

	mu       sync.Mutex
	stage    Stage
	isMember bool // false before the join, and while it joins again
	rejoins  int
}

func newLife(c Life, at place) *life {
	l := &life{
		Life: c, place: at, stage: StageJoining, timeout: c.SessionTimeout, lost: make(chan error, 1),
		limit: cmp.Or(c.JoinTimeout, time.Duration(at.joinLimit)),
	}
	l.killAll, l.kill = context.WithCancel(context.Background())
	return l
}

// Stage is how far a process has come.
type Stage string

// The stages, in order.
const (
	StageJoining  Stage = "joining"
	StageWaiting  Stage = "waiting"
	StageRunning  Stage = "running"
	StageDraining Stage = "draining"
	StageLeaving  Stage = "leaving"
)

// note changes what others may look at.
func (l *life) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *life) enter(s Stage) { l.note(func() { l.stage = s }) }

// state is what the socket and the health server tell.
func (l *life) state() (s Stage, isMember bool, rejoins int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage, l.isMember, l.rejoins
}

// run joins, and then calls joined: with an error if the process is a member although the join failed, so that it
// leaves. of is what the health server tells, and withSocket says whether the command has a socket.
func (l *life) run(
	ctx context.Context, of healthOf, withSocket bool, join func(context.Context) error,
	joined func(context.Context, error) command.Result,
) command.Result {
	defer l.closeSession()
	err := l.open(of, withSocket)
	defer l.close()
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	err = step(ctx, l.Signals, 0, join)
	if _, isMember, _ := l.state(); !isMember {
		return notStarted(err)
	}
	return joined(ctx, err)
}

// open does first what may fail for reasons of this machine: who cannot run its command must not take a place.
func (l *life) open(of healthOf, withSocket bool) (err error) {
	if len(l.Command) > 0 {
		if l.path, err = command.LookUp(l.Command[0]); err != nil {
			return err
		}
	}
	if l.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if withSocket {
		if l.socket, err = openSocket(); err != nil {
			return err
		}
	}
	if l.HTTP != "" {
		l.health, err = l.openHealth(of)
	}
	if l.health != nil && l.Serving != nil {
		l.Serving(l.health.addr)
	}
	return err
}

func (l *life) close() {
	if l.socket != nil {
		l.socket.close()
	}
	if l.health != nil {
		l.health.close()
	}
	if l.null != nil {
		_ = l.null.Close()
	}
}

// runCommand runs the command to its end, unless it cannot be started. asked is called when it is asked to end. Unless
// session is nil, the command does not outlive it: a guard sees to that while this process is frozen.
func (l *life) runCommand(
	ctx context.Context, environ []string, session *zkconn.Session, asked func(),
) (command.End, error) {
	fleet := command.NewFleet(l.GuardGroups, session, l.Log)
	if err := fleet.Open(); err != nil {
		return command.End{}, err
	}
	defer fleet.Close()
	if session != nil {
		var keeper sync.WaitGroup
		defer keeper.Wait()
		ended := make(chan struct{})
		defer close(ended)
		keeper.Go(func() { fleet.Keep(ended) })
	}
	c, err := fleet.Start(command.Launch{Path: l.path, Argv: l.Command, Environ: environ, Dir: l.Dir, Files: l.Files})
	if err != nil {
		return command.End{}, err
	}
	defer fleet.Ended(c)
	l.enter(StageRunning)
	s := command.Supervisor{Command: c, Grace: l.Grace, Echo: command.Echo, Lost: l.lost, OnAsked: func() {
		l.enter(StageDraining)
		asked()
	}}
	defer command.TakeTerminal(l.Files)
	e := s.Run(ctx, l.Signals)
	if session != nil && e.Signal() == syscall.SIGKILL && e.Cause == nil && !time.Now().Before(session.Deadline()) {
		if e.Cause = e.Lost; e.Cause == nil {
			select {
			case e.Cause = <-l.lost:
			case <-time.After(leaveLimit):
			}
		}
		e.Killed = e.Cause != nil // by the guard; else by somebody else
	}
	return e, nil
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: who joins waits for the Record, or says what is wrong with it.
func (l *life) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	body, _, err := s.Get(ctx, znode.Record(l.kind.Name, l.root, l.name))
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return l.timeout, nil
	case err != nil:
		return 0, err
	}
	rec, err := znode.DecodeRecordAt(l.kind, resource.Join(l.root, l.name), body)
	if err != nil {
		return l.timeout, nil
	}
	return time.Duration(l.declared(&rec)), nil
}

// seat is a membership of a group or a queue, in one session.
type seat interface {
	Context() context.Context // ends, with the cause, when the membership is lost
	StopRequested(ctx context.Context) error
	Leave() error
}

// seated is the life of a process that takes another seat whenever it has lost one.
type seated[S seat] struct {
	*life
	// take takes a seat, and returns the session timeout that is declared now. again: an attempt whose outcome is not
	// known was before, so the process that holds the identity may be this one.
	take func(ctx context.Context, s *zkconn.Session, again bool) (S, resource.Duration, error)
	// joined, unless nil, is told of each seat.
	joined func(S)
	// work works in a seat until ctx ends or nothing is left to do, and returns why; none of its commands runs any more.
	// At the end of ctx, which end can bring about, it asks its commands to end. It kills them when the seat's own Context
	// ends, or killAll does.
	work func(ctx context.Context, end context.CancelCauseFunc, in S) error
	// again reports whether another seat follows one that ended with this cause. lost: the seat itself has ended.
	again func(cause error, lost bool) bool
	// refused reports whether an error of another join is final.
	refused func(error) bool

	seat S // while isMember
}

// now is the seat. ok is false while there is none.
func (s *seated[S]) now() (in S, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seat, s.isMember
}

// join takes a seat, in another session if one is lost on the way, or the answer to a join is.
func (s *seated[S]) join(ctx context.Context) error {
	for again := false; ; again = true {
		err := s.joinOnce(ctx, again)
		unknown := errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnknown) ||
			errors.Is(err, errOtherTimeout)
		if err == nil || !unknown || ctx.Err() != nil {
			return err
		}
		s.Log.Warn("joining again in another session", "reason", err)
	}
}

// joinOnce opens a session and joins. If it fails it leaves no session behind.
func (s *seated[S]) joinOnce(ctx context.Context, again bool) error {
	session, err := s.openSession(ctx)
	if err != nil {
		return err
	}
	in, declared, err := s.take(ctx, session, again)
	if err != nil {
		s.closeSession()
		return err
	}
	if timeout := time.Duration(declared); timeout != s.timeout {
		s.timeout = timeout
		return errors.Join(errOtherTimeout, in.Leave())
	}
	s.note(func() { s.seat, s.isMember = in, true })
	if s.joined != nil {
		s.joined(in)
	}
	return nil
}

// keep works in this seat, and in the next one whenever it is lost. It returns nil when ctx has ended or nothing is
// left to do, and otherwise why there will be no other seat.
func (s *seated[S]) keep(ctx context.Context) error {
	for {
		in, _ := s.now()
		begun := time.Now()
		cause := s.serve(ctx, in)
		lost := in.Context().Err() != nil
		s.leave()
		switch {
		case errors.Is(cause, ErrUnkillable):
			return cause
		case ctx.Err() != nil:
			return nil
		case errors.Is(cause, ErrTerminated):
			return ErrTerminated
		case !s.again(cause, lost):
			return cause
		}
		// A membership that ends as it begins, such as for a znode that it may not write, must not do so all the time.
		zkconn.Pause(ctx, retryPause-time.Since(begun))
		if err := s.joinAgain(ctx, cause); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// leave gives back what the process has, and ends its session.
func (s *seated[S]) leave() {
	in, _ := s.now()
	s.note(func() { s.isMember = false })
	if err := in.Leave(); err != nil {
		s.Log.Warn("the end of the session", "error", err)
	}
}

// serve works in a seat, and returns why that has ended: nil, what ended ctx or the seat, ErrTerminated, or an error of
// the work.
func (s *seated[S]) serve(ctx context.Context, in S) error {
	ofWork, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(in.Context(), func() { end(context.Cause(in.Context())) })()
	var listener sync.WaitGroup
	defer listener.Wait()
	defer end(nil)
	listener.Go(func() {
		if in.StopRequested(ofWork) == nil {
			s.enter(StageDraining)
			end(fmt.Errorf("%w: %w", member.ErrLeaving, ErrTerminated))
		}
	})
	err := s.work(ofWork, end, in)
	if ofWork.Err() != nil && !errors.Is(err, ErrUnkillable) {
		return context.Cause(ofWork)
	}
	return err
}

// joinAgain takes another seat, until that succeeds, is refused for good, or ctx ends.
func (s *seated[S]) joinAgain(ctx context.Context, cause error) error {
	log := s.Log.With(s.kind.Name, resource.Join(s.root, s.name), "identity", s.identity)
	log.Warn("the membership is lost; joining again", "reason", cause)
	for {
		err := s.join(ctx)
		switch {
		case err == nil:
			s.note(func() { s.rejoins++ })
			log.Warn("joined again")
			return nil
		case ctx.Err() != nil || s.refused(err):
			return err
		}
		log.Warn("joining again", "error", err)
		zkconn.Pause(ctx, retryPause)
	}
}

// retryPause is between two attempts to reach a server, or to join again. An attempt to open a session takes its own
// time in addition.
const retryPause = time.Second

// waitForServer calls f until a server can be reached, or the limit has passed.
func (l *life) waitForServer(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.limit, text.Plain(context.DeadlineExceeded))
	defer cancel()
	for first := true; ; first = false {
		err := f()
		if !errors.Is(err, zkconn.ErrUnreachable) || ctx.Err() != nil {
			return err
		}
		if first && l.waiting != nil {
			l.waiting(fmt.Sprintf("ZooKeeper (%s at most): %v", resource.Duration(l.limit), err))
		}
		zkconn.Pause(ctx, retryPause)
		if ctx.Err() != nil {
			return err
		}
	}
}

// openSession waits for ZooKeeper and opens a session with the timeout that the Record says. It closes the session
// before, of which nothing may go on any more: after an outage the servers would keep that for its timeout.
func (l *life) openSession(ctx context.Context) (opened *zkconn.Session, err error) {
	err = l.waitForServer(ctx, func() (err error) {
		opened, err = l.openOnce(ctx)
		return err
	})
	if err != nil {
		return nil, unanswered(err)
	}
	if lost := l.session.Swap(opened); lost != nil {
		if err := opened.CloseLost(ctx, lost); err != nil {
			l.Log.Info("the end of the session before", "error", err)
		}
	}
	return opened, nil
}

// openOnce opens a second session if the first, which read the timeout, has another one: a session keeps its timeout.
func (l *life) openOnce(ctx context.Context) (*zkconn.Session, error) {
	first, err := l.Connect(ctx, l.timeout)
	if err != nil {
		return nil, err
	}
	timeout, err := l.recordedTimeout(ctx, first)
	if err == nil && timeout == l.timeout {
		return first, nil
	}
	l.end(first)
	if err != nil {
		return nil, err
	}
	l.timeout = timeout
	return l.Connect(ctx, timeout)
}

// errOtherTimeout means that the Record said another session timeout when the process had joined.
var errOtherTimeout = errors.New("the session timeout has changed")

// inTime is join with a limit, if that is not 0. ErrLate means that it was reached.
func inTime(limit time.Duration, join func(context.Context) error) func(context.Context) error {
	if limit == 0 {
		return join
	}
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeoutCause(ctx, limit, text.Plain(context.DeadlineExceeded))
		defer cancel()
		err := join(limited)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrLate, err)
		}
		return err
	}
}

// replaceSession opens another session. If move succeeds in moving there what the process holds, the old session is
// closed, and otherwise the new one.
func (l *life) replaceSession(ctx context.Context, timeout time.Duration, move func(*zkconn.Session) error) error {
	l.timeout = timeout
	next, err := l.Connect(ctx, timeout)
	if err != nil {
		return err
	}
	if err := move(next); err != nil {
		_ = next.Close() // what the process holds in it ends in any case
		return err
	}
	l.closeSession()
	l.session.Store(next)
	return nil
}

// connected reports whether the newest session has a connection to a server.
func (l *life) connected() bool {
	newest := l.session.Load()
	return newest != nil && newest.Connected()
}

// closeSession ends the newest session. It may be called again.
func (l *life) closeSession() {
	if newest := l.session.Load(); newest != nil {
		l.end(newest)
	}
}

func (l *life) end(session *zkconn.Session) {
	if err := session.Close(); err != nil {
		l.Log.Info("the end of the session", "error", err) // nothing depends on it any more
	}
}

// unanswered adds zkconn.ErrUnreachable to the error of a request that got no answer in time.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zkconn.ErrUnreachable) {
		return fmt.Errorf("%w: %w", zkconn.ErrUnreachable, text.Plain(err))
	}
	return err
}
