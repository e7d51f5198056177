package wrap

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/zkstate/zkconn"
)

// QueueConfig says which queue to join as whom, and what to run for it.
type QueueConfig struct {
	Process tasks.Config // who joins which queue

	Command []string   // with its arguments
	Dir     string     // where it runs; empty is where this process does
	Environ []string   // NAME=value; more is added. See WithoutCredentials
	Files   []*os.File // the standard streams of this process

	JoinTimeout time.Duration // for ZooKeeper, the queue and Redis; 0 leaves it to the queue
	Grace       time.Duration // for a command that was asked to end; 0: what the queue says
	HTTP        string        // address of the health server; empty: none. Port 0 is a free port
	Guard       []string      // the command line that calls Guard with a path and arguments

	Serving func(addr net.Addr)    // unless nil, told where the health server listens
	Joined  func(p *tasks.Process) // unless nil, called after each join

	// Connect and SessionTimeout are as in Config.
	Connect        func(ctx context.Context, sessionTimeout time.Duration) (*zkconn.Session, error)
	SessionTimeout time.Duration

	Signals <-chan os.Signal // see Signals
	Log     *slog.Logger
}

// ErrUnkillable means that something that a command has started could not be killed. The process must end.
var ErrUnkillable = errors.New("a command cannot be killed")

// queueRun is the life of a process of a queue: it joins, works, joins again with another seat whenever the membership
// is lost, and leaves.
type queueRun struct {
	c QueueConfig
	// work works as p until ctx ends or nothing is left to do, and returns why. No command of it runs then. At the end
	// of ctx it asks its commands to end. It kills them when p's own Context ends, or killAll is closed.
	work func(ctx context.Context, p *tasks.Process) error
	// signaled, unless nil, gets the signals that do not ask this process to end.
	signaled func(os.Signal)

	path     string // of the command
	null     *os.File
	sessions sessions
	health   *health
	ended    *prometheus.CounterVec // see count
	killAll  chan struct{}          // closed when all commands are to be killed at once

	mu    sync.Mutex
	state queueState
}

// queueState is what a process of a queue tells of itself.
type queueState struct {
	stage   Stage
	process *tasks.Process // nil while there is none
	rejoins int
}

func newQueueRun(c QueueConfig, role queue.Role) *queueRun {
	c.Process.Role = role
	c.Process.Log = cmp.Or(c.Process.Log, c.Log)
	return &queueRun{
		c: c, ended: newEnded(role), killAll: make(chan struct{}), state: queueState{stage: StageJoining},
		sessions: sessions{
			connect: c.Connect, timeout: c.SessionTimeout, waiting: c.Process.Waiting, log: c.Log,
			limit: cmp.Or(c.JoinTimeout, time.Duration(queue.Default().Timeouts.Join)),
		},
	}
}

// now is a copy of the state.
func (r *queueRun) now() queueState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *queueRun) set(change func(*queueState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

func (r *queueRun) enter(stage Stage) { r.set(func(s *queueState) { s.stage = stage }) }

// run returns when the process has left. The end of ctx is like SIGTERM.
func (r *queueRun) run(ctx context.Context) Result {
	defer r.sessions.close()
	err := r.open()
	defer r.close()
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	err = step(ctx, r.c.Signals, 0, inTime(r.c.JoinTimeout, r.join))
	if r.now().process == nil {
		return notStarted(err)
	}
	result := Result{}
	if err != nil { // it came up during the join
		r.leave()
		result = notStarted(err)
	} else {
		result = r.asProcess(ctx)
	}
	result.Text = r.c.Process.Identity + " of " + resource.Join(r.c.Process.Root, r.c.Process.Queue) + " has left"
	return result
}

// open does first what may fail for reasons of this machine.
func (r *queueRun) open() (err error) {
	if r.path, err = lookUp(r.c.Command[0]); err != nil {
		return err
	}
	if r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if r.c.HTTP != "" {
		r.health, err = openHealth(r.c.HTTP, r.healthOf(), r.c.Log)
	}
	if r.health != nil && r.c.Serving != nil {
		r.c.Serving(r.health.addr)
	}
	return err
}

func (r *queueRun) close() {
	if r.health != nil {
		r.health.close()
	}
	if r.null != nil {
		_ = r.null.Close()
	}
}

// stopped is why a process of a queue has ended that a signal asked to.
type stopped syscall.Signal

func (e stopped) Error() string { return "stopped by " + signalName(syscall.Signal(e)) }

// asProcess works until that ends, or a signal or muster terminate asks it to.
func (r *queueRun) asProcess(ctx context.Context) Result {
	ofWork, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	r.enter(StageRunning)
	go func() { done <- r.keep(ofWork) }()
	err := r.awaitEnd(done, stop)
	var by stopped
	switch {
	case errors.As(err, &by):
		return Result{Code: 128 + int(by), Err: err}
	case errors.Is(err, ErrTerminated):
		return Result{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return Result{Err: err, Drained: err == nil}
}

// awaitEnd calls stop at the first signal that asks to end. The second one kills all commands, unless it is an echo.
func (r *queueRun) awaitEnd(done <-chan error, stop context.CancelCauseFunc) error {
	var asked struct {
		signal os.Signal
		at     time.Time
	}
	killed := false
	for {
		select {
		case err := <-done:
			return err
		case sig := <-r.c.Signals:
			switch {
			case !endsWaiting(sig):
				if r.signaled != nil {
					r.signaled(sig)
				}
			case asked.signal == nil:
				asked.signal, asked.at = sig, time.Now()
				r.enter(StageDraining)
				stop(stopped(sig.(syscall.Signal)))
			case !killed && (sig != asked.signal || time.Since(asked.at) > Echo):
				killed = true
				close(r.killAll)
			}
		}
	}
}

// keep works as one process after the other, until ctx ends or the work does, and returns why; nil: there is nothing
// left to do.
func (r *queueRun) keep(ctx context.Context) error {
	for {
		p, begun := r.now().process, time.Now()
		err := r.serve(ctx, p)
		lost := p.Context().Err() != nil
		r.leave()
		switch {
		case errors.Is(err, ErrUnkillable), errors.Is(err, ErrTerminated):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil || !lost:
			return err
		}
		// A membership that ends as it begins, such as for a znode that it may not write, must not do so all the time.
		select {
		case <-time.After(retryPause - time.Since(begun)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.joinAgain(ctx, err); err != nil {
			return err
		}
	}
}

// leave gives back what the process has, and ends its session.
func (r *queueRun) leave() {
	p := r.now().process
	r.set(func(s *queueState) { s.process = nil })
	if err := p.Leave(); err != nil {
		r.c.Log.Warn("the end of the session", "error", err)
	}
}

// serve works as one process, and returns why that has ended: nil, what ended ctx or the membership, ErrTerminated, or
// an error of the work.
func (r *queueRun) serve(ctx context.Context, p *tasks.Process) error {
	ofWork, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(p.Context(), func() { end(context.Cause(p.Context())) })()
	var listener sync.WaitGroup
	defer listener.Wait()
	defer end(nil)
	listener.Go(func() {
		if p.StopRequested(ofWork) == nil {
			r.enter(StageDraining)
			end(ErrTerminated)
		}
	})
	err := r.work(ofWork, p)
	if ofWork.Err() != nil && !errors.Is(err, ErrUnkillable) {
		return context.Cause(ofWork)
	}
	return err
}

// grace is how long the command of p may take to end.
func (r *queueRun) grace(p *tasks.Process) time.Duration {
	return max(cmp.Or(r.c.Grace, time.Duration(p.Queue().Timeouts.Drain)), time.Millisecond)
}

// join makes this process one of the queue, in another session if one is lost on the way, or the answer to a join is.
func (r *queueRun) join(ctx context.Context) error {
	return r.sessions.join(ctx, r.joinOnce, func() {})
}

// joinOnce opens a session and joins. If it fails it leaves no session behind.
func (r *queueRun) joinOnce(ctx context.Context) error {
	s, err := r.sessions.open(ctx, r.recordedTimeout)
	if err != nil {
		return err
	}
	p, err := tasks.Join(ctx, s, r.c.Process)
	if err != nil {
		r.sessions.close()
		return err
	}
	if timeout := time.Duration(p.Queue().Timeouts.Session); timeout != r.sessions.timeout {
		r.sessions.timeout = timeout
		return errors.Join(errOtherTimeout, p.Leave())
	}
	r.set(func(now *queueState) { now.process = p })
	if r.c.Joined != nil {
		r.c.Joined(p)
	}
	return nil
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: tasks.Join waits for the Record, or says what is wrong with it.
func (r *queueRun) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	rec, err := readableRecord(ctx, s, queue.Kind(), r.c.Process.Root, r.c.Process.Queue)
	if err != nil || rec == nil {
		return r.sessions.timeout, err
	}
	return time.Duration(queue.Of(rec).Timeouts.Session), nil
}

// joinAgain joins with another seat, until that succeeds or ctx ends.
func (r *queueRun) joinAgain(ctx context.Context, cause error) error {
	path := resource.Join(r.c.Process.Root, r.c.Process.Queue)
	log := r.c.Log.With("queue", path, "identity", r.c.Process.Identity)
	log.Warn("the membership is lost; joining again", "reason", cause)
	for {
		err := r.join(ctx)
		switch {
		case err == nil:
			r.set(func(s *queueState) { s.rejoins++ })
			log.Warn("joined again")
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		log.Warn("joining again", "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// The variables that the command of a task or of a completed batch is given, besides RootVariable, IdentityVariable and
// AttemptVariable. Only that of a task has TaskVariable; only that of a batch has the last two.
const (
	QueueVariable = "MUSTER_QUEUE"
	BatchVariable = "MUSTER_BATCH"
	TaskVariable  = "MUSTER_TASK" // its index, from 0
	DoneVariable  = "MUSTER_DONE" // how many of the batch's tasks have a result
	DeadVariable  = "MUSTER_DEAD" // how many of them failed for good
)

// environment is what a command for p is told: Config's, with what it should know about its process, and these
// variables.
func (r *queueRun) environment(p *tasks.Process, more ...[2]string) []string {
	of := r.c.Process
	return setVariables(r.c.Environ, append([][2]string{
		{QueueVariable, of.Queue}, {RootVariable, of.Root}, {IdentityVariable, p.Identity},
		{BatchVariable, ""}, {TaskVariable, ""}, {AttemptVariable, ""}, {DoneVariable, ""}, {DeadVariable, ""},
	}, more...))
}

// RunWatcher joins a queue and runs the command for each completed batch that it gets, one after the other, until it is
// asked to end. The command reads what became of the tasks from its standard input, a line of JSON for each. If it ends
// with 0, the batch ends; otherwise the batch goes back, with what the command said last as the reason. The end of ctx
// is like SIGTERM.
//
// The command runs under a guard: it does not outlive this process, or the end of the membership, after which another
// watcher has the batch. A command that was asked to end has not done its work, whatever it ends with.
func RunWatcher(ctx context.Context, c QueueConfig) Result {
	r := newQueueRun(c, queue.Watcher)
	r.work = r.watch
	return r.run(ctx)
}

// watch is the work of a watcher.
func (r *queueRun) watch(ctx context.Context, p *tasks.Process) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	killed, release := r.killedWith(p)
	defer release()
	l := &lease{session: p.Session(), killed: killed, whole: true}
	err := tasks.Watch(ctx, p, func(ctx context.Context, b *tasks.Completed) error {
		err := r.collect(ctx, p, l, b)
		switch {
		case err == nil:
			r.count("collected")
		case ctx.Err() != nil, errors.Is(err, ErrUnkillable):
			r.count("returned")
		default:
			r.count("failed")
		}
		if errors.Is(err, ErrUnkillable) {
			end(err)
		}
		return err
	})
	if cause := context.Cause(ctx); errors.Is(cause, ErrUnkillable) {
		return cause
	}
	return err
}

// killedWith is closed when all commands of p are to be killed at once: a second signal has come, or its membership has
// ended.
func (r *queueRun) killedWith(p *tasks.Process) (<-chan struct{}, context.CancelFunc) {
	ctx, cancel := context.WithCancel(p.Context())
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-r.killAll:
		case <-ctx.Done():
		}
	}()
	return killed, cancel
}

// collect runs the command for a batch. The error is why the batch is not collected.
func (r *queueRun) collect(ctx context.Context, p *tasks.Process, l *lease, b *tasks.Completed) error {
	in, toCommand, err := os.Pipe()
	if err != nil {
		return err
	}
	out, err := openOutput(r.c.Files[1], r.c.Files[2])
	if err != nil {
		return errors.Join(err, in.Close(), toCommand.Close())
	}
	environ := r.environment(p, [][2]string{
		{BatchVariable, b.ID}, {AttemptVariable, strconv.Itoa(b.Try)},
		{DoneVariable, strconv.FormatInt(b.Done, 10)}, {DeadVariable, strconv.FormatInt(b.Dead, 10)},
	}...)
	files := []*os.File{in, out.pipes[0], out.pipes[1]}
	g, err := startGuarded(ctx, r.c.Guard, l, launch{r.path, r.c.Command, environ, r.c.Dir, files, false})
	_ = in.Close()
	if err != nil {
		_ = toCommand.Close()
		out.close()
		return err
	}
	ofCommand, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := writeRecords(toCommand, b.Records(ofCommand)); err != nil {
			stop(&unread{err}) // the end of its input would look like the end of the results
			<-ofCommand.Done()
			return
		}
		_ = toCommand.Close()
	})
	e := g.run(ofCommand, l, func(cause error) order { return r.endOf(p, cause) })
	cause := context.Cause(ofCommand)
	stop(nil)
	_ = toCommand.Close()
	writer.Wait()
	return r.collected(ctx, p, e, cause, out.close())
}

// unread is why the results of a batch cannot be read.
type unread struct{ error }

func (e *unread) Unwrap() error { return e.error }

// endOf is how a command is ended when its context ends with this cause.
func (r *queueRun) endOf(p *tasks.Process, cause error) order {
	if p.Context().Err() != nil || errors.As(cause, new(*unread)) {
		return order{Now: true}
	}
	return order{End: r.grace(p)}
}

// collected says why the batch of a command that has ended is not collected. cause is why the command was stopped, if
// it was.
func (r *queueRun) collected(ctx context.Context, p *tasks.Process, e guardEnd, cause error, end *tail) error {
	switch {
	case e.Left:
		return fmt.Errorf("%w: %s", ErrUnkillable, e.Text)
	case e.Overdue: // the session is over, and so is the membership in a moment
		select {
		case <-p.Context().Done():
		case <-time.After(p.Session().Timeout()):
		}
		return tasks.ErrSessionLost
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cause != nil:
		return fmt.Errorf("its results: %w", cause)
	case e.Code != 0:
		return errors.New(end.after(e.Text))
	}
	return nil
}

// writeRecords writes what became of the tasks, a line of JSON for each. A command that does not read all of it is no
// error: the records are read no further.
func writeRecords(to *os.File, records iter.Seq2[tasks.Record, error]) error {
	buffered := bufio.NewWriterSize(to, 64<<10)
	encoder := json.NewEncoder(buffered)
	for record, err := range records {
		if err != nil {
			return err
		}
		if encoder.Encode(record) != nil {
			return nil
		}
	}
	_ = buffered.Flush()
	return nil
}
