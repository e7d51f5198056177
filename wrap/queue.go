package wrap

import (
	"cmp"
	"context"
	"errors"
	"os"
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
func (r *queueRun) run(ctx context.Context) Result {
	return r.life.run(ctx, r.healthOf(), false, r.join, func(ctx context.Context, err error) (result Result) {
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
func (r *queueRun) asProcess(ctx context.Context) Result {
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
			case sig != asked.signal || time.Since(asked.at) > Echo:
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
	return setVariables(r.Environ, append([][2]string{
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
