package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/wrap/command"
	"muster/wrap/lines"
	"muster/zkstate/zkconn"
)

// QueueConfig says which queue to join as whom, and what to run for it.
type QueueConfig struct {
	Life // a Grace of 0 is what the queue says

	Process tasks.Config           // who joins which queue
	Joined  func(p *tasks.Process) // unless nil, called after each join
}

// ErrUnkillable means that something that a command has started could not be killed. The process must end.
var ErrUnkillable = errors.New("a command cannot be killed")

// queueRun is the life of a process of a queue.
type queueRun struct {
	seated[*tasks.Process]
	c QueueConfig
	// signaled, unless nil, gets the signals that do not ask this process to end.
	signaled func(os.Signal)
	ended    prometheus.Collector // counts what this process has done, by how it ended
}

func newQueueRun(c QueueConfig, role queue.Role) *queueRun {
	c.Process.Role = role
	r := &queueRun{c: c}
	r.seated = seated[*tasks.Process]{
		life: newLife(c.Life, place{
			kind: queue.Kind(), root: c.Process.Root, name: c.Process.Queue, identity: c.Process.Identity, who: "process",
			declared:  func(rec *resource.Record) resource.Duration { return queue.Of(rec).Timeouts.Session },
			joinLimit: queue.Default().Timeouts.Join, waiting: c.Process.Waiting,
		}),
		take: r.take, joined: c.Joined,
		again:   func(cause error, lost bool) bool { return cause != nil && lost },
		refused: func(error) bool { return false },
	}
	return r
}

func (r *queueRun) take(
	ctx context.Context, s *zkconn.Session, _ bool,
) (p *tasks.Process, session resource.Duration, err error) {
	if p, err = tasks.Join(ctx, s, r.c.Process); err == nil {
		session = p.Queue().Timeouts.Session
	}
	return p, session, err
}

// run returns when the process has left. The end of ctx is like SIGTERM.
func (r *queueRun) run(ctx context.Context) command.Result {
	join := inTime(r.JoinTimeout, r.join)
	return r.life.run(ctx, r.healthOf(), false, join, func(ctx context.Context, err error) (result command.Result) {
		if err != nil { // it came up during the join
			r.leave()
			result = notStarted(err)
		} else {
			result = r.asProcess(ctx)
		}
		result.Text = r.identity + " of " + resource.Join(r.root, r.name) + " has left"
		return result
	})
}

// asProcess works until that ends, or a signal or muster terminate asks it to.
func (r *queueRun) asProcess(ctx context.Context) command.Result {
	ofWork, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	r.enter(StageRunning)
	go func() { done <- r.keep(ofWork) }()
	err := r.awaitEnd(done, stop)
	if err == nil {
		err = context.Cause(ofWork)
	}
	result := notStarted(err)
	result.Drained = err == nil
	return result
}

// awaitEnd calls stop at the first signal that asks to end. The second one kills all commands, unless it is an echo.
func (r *queueRun) awaitEnd(done <-chan error, stop context.CancelCauseFunc) error {
	var asked struct {
		signal os.Signal
		at     time.Time
	}
	for {
		select {
		case err := <-done:
			return err
		case sig := <-r.Signals:
			switch {
			case !endsWaiting(sig):
				if r.signaled != nil {
					r.signaled(sig)
				}
			case asked.signal == nil:
				asked.signal, asked.at = sig, time.Now()
				r.enter(StageDraining)
				stop(stopped(sig.(syscall.Signal)))
			case sig != asked.signal || time.Since(asked.at) > command.Echo:
				r.kill()
			}
		}
	}
}

// grace is how long the command of p may take to end.
func (r *queueRun) grace(p *tasks.Process) time.Duration {
	return max(cmp.Or(r.Grace, time.Duration(p.Queue().Timeouts.Drain)), time.Millisecond)
}

// The variables that the command of a task or of a completed batch is given, besides RootVariable, IdentityVariable and
// those of package lines. Only that of a task has TaskVariable; only that of a batch has the last two.
const (
	QueueVariable = "MUSTER_QUEUE"
	DoneVariable  = "MUSTER_DONE" // how many of the batch's tasks have a result
	DeadVariable  = "MUSTER_DEAD" // how many of them failed for good
)

// environment is what a command for p is told: Config's, with what it should know about its process, and these
// variables.
func (r *queueRun) environment(p *tasks.Process, more ...[2]string) []string {
	of := r.c.Process
	return command.SetVariables(r.Environ, append([][2]string{
		{QueueVariable, of.Queue}, {RootVariable, of.Root}, {IdentityVariable, p.Identity},
		{lines.BatchVariable, ""}, {lines.TaskVariable, ""}, {lines.AttemptVariable, ""},
		{DoneVariable, ""}, {DeadVariable, ""},
	}, more...))
}

// RunWatcher joins a queue and runs the command for each completed batch that it gets, one after the other, until it is
// asked to end. The command reads what became of the tasks from its standard input, a line of JSON for each. If it ends
// with 0, the batch ends; otherwise the batch goes back, with what the command said last as the reason. The end of ctx
// is like SIGTERM.
//
// The command runs under a guard: it does not outlive this process, or the end of the membership, after which another
// watcher has the batch. A command that was asked to end has not done its work, whatever it ends with. A watcher that
// cannot write the results to a temporary file ends, and the batch goes back uncharged.
func RunWatcher(ctx context.Context, c QueueConfig) command.Result {
	r := newQueueRun(c, queue.Watcher)
	batches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_watcher_batches_total",
		Help: "Batches that this watcher had, by result: collected, failed or returned.",
	}, []string{"result"})
	r.ended = batches
	r.work = func(ctx context.Context, end context.CancelCauseFunc, p *tasks.Process) error {
		return r.watch(ctx, end, p, batches)
	}
	return r.run(ctx)
}

// watch is the work of a watcher.
func (r *queueRun) watch(
	ctx context.Context, end context.CancelCauseFunc, p *tasks.Process, batches *prometheus.CounterVec,
) error {
	killed, release := r.killedWith(p)
	defer release()
	l := &command.Lease{Session: p.Session(), Killed: killed.Done(), Whole: true}
	return tasks.Watch(ctx, p, func(ctx context.Context, b *tasks.Completed) error {
		err := r.collect(ctx, p, l, b)
		var noFile *fs.PathError // for the results, or of the guard: nothing is wrong with the batch
		if errors.Is(err, ErrUnkillable) || errors.As(err, &noFile) {
			end(err)
		}
		result := "failed"
		switch {
		case err == nil:
			result = "collected"
		case ctx.Err() != nil:
			result = "returned"
		}
		batches.WithLabelValues(result).Inc()
		return err
	})
}

// killedWith ends when all commands of p are to be killed at once: a second signal has come, or its membership has
// ended.
func (r *queueRun) killedWith(p *tasks.Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(p.Context())
	stop := context.AfterFunc(r.killAll, cancel)
	return ctx, func() { stop(); cancel() }
}

// collect runs the command for a batch. The error is why the batch is not collected. The command reads a file: on a
// pipe, the death of this process would look like the end of the results.
func (r *queueRun) collect(ctx context.Context, p *tasks.Process, l *command.Lease, b *tasks.Completed) error {
	in, err := b.Lines(ctx)
	if err != nil {
		return fmt.Errorf("its results: %w", err)
	}
	defer in.Close()
	out, err := command.OpenOutput(in, r.Files[1], r.Files[2])
	if err != nil {
		return err
	}
	environ := r.environment(p, [][2]string{
		{lines.BatchVariable, b.ID}, {lines.AttemptVariable, strconv.Itoa(b.Try)},
		{DoneVariable, strconv.FormatInt(b.Done, 10)}, {DeadVariable, strconv.FormatInt(b.Dead, 10)},
	}...)
	of := command.Launch{Path: r.path, Argv: r.Command, Environ: environ, Dir: r.Dir, Files: out.Files}
	g, err := command.StartGuarded(ctx, r.Guard, l, of)
	if err != nil {
		out.Close()
		return err
	}
	e := g.Run(ctx, l, func(error) command.Order {
		if p.Context().Err() != nil {
			return command.Order{Now: true}
		}
		return command.Order{End: r.grace(p)}
	})
	return r.collected(ctx, p, e, out.Close())
}

// collected says why the batch of a command that has ended is not collected.
func (r *queueRun) collected(ctx context.Context, p *tasks.Process, e command.GuardEnd, end *command.Tail) error {
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
	case e.Code != 0:
		return errors.New(end.After(e.Text))
	}
	return nil
}
