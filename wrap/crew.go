package wrap

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
)

// source is where tasks come from, and where their results go: an engine, which is a tasks.Executor.
type source interface {
	Take(ctx context.Context) (*tasks.Task, error)
	TakeMore(work time.Duration) []*tasks.Task
	Finish(t *tasks.Task, o store.Outcome, took time.Duration, data []byte)
	Return(t *tasks.Task)
	// Alive ends when the work on the task is in vain.
	Alive(t *tasks.Task) context.Context
}

// crew executes the tasks of one membership.
type crew struct {
	source
	queue func() queue.Queue // as it is declared now
	kill  context.Context    // at its end all commands are killed at once
	fleet *fleet
	log   *slog.Logger

	path    string   // of the command
	argv    []string // as it was given, with {}
	environ []string // of every command
	dir     string
	null    *os.File
	stderr  *os.File // of this process
	grace   func() time.Duration
	host    string // of results
	lines   Lines

	failed   atomic.Int64 // when a failed task was logged at the default level, in ns since 1970
	answered atomic.Bool  // the command has answered a line
	hint     func()       // unless nil, called when a line is not answered for hintAfter
}

// errCommand means that the command cannot be run, or never does what it should. The executor must end.
type errCommand struct{ error }

func (e *errCommand) Unwrap() error { return e.error }

// run executes tasks with so many commands at once, until ctx ends or there are no more. Nothing runs then. The error
// is why the executor cannot go on.
func (w *crew) run(ctx context.Context, parallel int) error {
	ofWork, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			work := w.processes
			if w.lines != LinesNone {
				work = w.lineProcesses
			}
			err := work(ofWork)
			if err != nil && !errors.Is(err, tasks.ErrDrained) && ofWork.Err() == nil {
				stop(err)
			}
		})
	}
	all.Wait()
	if ctx.Err() == nil && ofWork.Err() != nil {
		return context.Cause(ofWork)
	}
	return nil
}

// taskEnvironment is what the command of a task is told.
func (w *crew) taskEnvironment(t *tasks.Task) []string {
	all := make([]string, 0, len(w.environ)+3)
	return append(append(all, w.environ...), BatchVariable+"="+t.Batch,
		TaskVariable+"="+strconv.FormatInt(t.Index, 10), AttemptVariable+"="+strconv.Itoa(t.Attempt))
}

// lost gets the cause when all commands are to be killed at once, until the function it returns is called.
func (w *crew) lost() (lost chan error, release func() bool) {
	lost = make(chan error, 1)
	return lost, context.AfterFunc(w.kill, func() { tell(lost, context.Cause(w.kill)) })
}

// tell sends a cause, unless one was sent before.
func tell(lost chan<- error, cause error) {
	select {
	case lost <- cause:
	default:
	}
}
