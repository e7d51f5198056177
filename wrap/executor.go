package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource/queue"
	"muster/tasks"
	"muster/wrap/command"
	"muster/wrap/lines"
)

// ExecutorConfig says which queue to join as whom, and what to run for its tasks.
type ExecutorConfig struct {
	QueueConfig // Process.Parallel is how many commands run at once

	Lines      lines.Format
	UntilEmpty bool  // end when nothing is left to take
	MaxTasks   int64 // end after so many; 0: no limit
	// Hint, unless nil, is told once what a person should look at: the command answers no lines.
	Hint func(text string)
}

// RunExecutor joins a queue and runs the command for its tasks, until it is asked to end or there are no more as
// ExecutorConfig says. The end of ctx is like SIGTERM: commands are asked to end, and their tasks go back, uncharged.
// Between SIGTSTP and SIGCONT it takes no tasks, and works on those that it has. Other signals go to the commands.
//
// What became of the tasks is in Result.Text.
func RunExecutor(ctx context.Context, c ExecutorConfig) command.Result {
	c.Process.Parallel = max(c.Process.Parallel, 1)
	r := newQueueRun(c.QueueConfig, queue.Executor)
	e := &executor{c: c, run: r, fleet: command.NewFleet(c.GuardGroups, nil, c.Log)}
	r.work, r.signaled, r.ended = e.work, e.signaled, collector(e.collect)
	if err := e.fleet.Open(); err != nil {
		return command.Result{Err: err}
	}
	defer e.fleet.Close()
	result := r.run(ctx)
	if wrong := new(lines.CommandError); errors.As(result.Err, &wrong) {
		result.Code = max(command.CannotRun, command.StartCode(result.Err))
	}
	if result.Text != "" { // it has joined
		result.Text += e.summary()
	}
	return result
}

// executor is one RunExecutor.
type executor struct {
	c     ExecutorConfig
	run   *queueRun
	fleet *command.Fleet

	mu     sync.Mutex
	engine *tasks.Executor // nil while there is none
	paused bool
	before tasks.Counts // of the engines before
}

// work executes tasks as p.
func (e *executor) work(ctx context.Context, _ context.CancelCauseFunc, p *tasks.Process) error {
	engine := e.start(p)
	if engine == nil {
		return nil
	}
	ofCommands, release := e.run.killedWith(p)
	defer release()
	err := e.crew(p, engine, ofCommands).Run(ctx, e.c.Process.Parallel)
	e.mu.Lock()
	e.before = e.counts()
	e.engine = nil
	e.mu.Unlock()
	limited, cancel := context.WithCancel(ofCommands)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(e.run.grace(p), cancel) })() // Redis may be away
	if drained := engine.Drain(limited); drained != nil && p.Context().Err() == nil {
		e.c.Log.Warn("what this executor had is given back later", "error", drained)
	}
	return err
}

// start starts an engine; nil if there is nothing left to do.
func (e *executor) start(p *tasks.Process) *tasks.Executor {
	c := tasks.ExecutorConfig{Parallel: e.c.Process.Parallel, UntilEmpty: e.c.UntilEmpty}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.c.MaxTasks > 0 {
		if c.MaxTasks = e.c.MaxTasks - e.before.Taken + e.before.Returned; c.MaxTasks <= 0 {
			return nil
		}
	}
	e.engine = tasks.StartExecutor(p, c)
	e.engine.Pause(e.paused)
	return e.engine
}

// crew is what runs the commands for p.
func (e *executor) crew(p *tasks.Process, engine *tasks.Executor, kill context.Context) *lines.Crew {
	host, _ := os.Hostname() // for people only
	return &lines.Crew{
		Source: taskSource{engine}, Queue: p.Queue, Kill: kill, Fleet: e.fleet, Log: e.c.Log,
		Path: e.run.path, Argv: e.c.Command, Environ: e.run.environment(p), Dir: e.c.Dir,
		Null: e.run.null, Stderr: e.c.Files[2],
		Grace: func() time.Duration { return e.run.grace(p) },
		Host:  host, Lines: e.c.Lines, Hint: sync.OnceFunc(func() {
			if e.c.Hint != nil {
				e.c.Hint(lines.NoAnswer)
			}
		}),
	}
}

// signaled is told of signals that do not ask this process to end.
func (e *executor) signaled(sig os.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case sig == syscall.SIGTSTP:
		e.c.Log.Warn("SIGTSTP: this executor takes no more tasks until SIGCONT")
	case sig == syscall.SIGCONT && e.paused:
		e.c.Log.Warn("SIGCONT: this executor takes tasks again")
	default:
		e.fleet.Signal(sig)
		return
	}
	if e.paused = sig == syscall.SIGTSTP; e.engine != nil {
		e.engine.Pause(e.paused)
	}
}

// counts are what all engines have done. The caller holds mu.
func (e *executor) counts() tasks.Counts {
	if e.engine == nil {
		return e.before
	}
	return e.before.And(e.engine.Counts())
}

// collect shows what this executor has done.
func (e *executor) collect(to samples) {
	e.mu.Lock()
	c := e.counts()
	e.mu.Unlock()
	for result, n := range map[string]int64{"done": c.Done, "again": c.Retried, "never": c.Never, "returned": c.Returned} {
		to.show(prometheus.CounterValue, "muster_executor_tasks_total",
			"Attempts at tasks that this executor made, by result: done, again, never or returned.", float64(n),
			"result", result)
	}
}

// summary is what became of the tasks.
func (e *executor) summary() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts()
	return fmt.Sprintf("; tasks: %d done, %d attempts failed, %d dead at once, %d given back",
		c.Done, c.Retried, c.Never, c.Returned)
}

// taskSource is an engine.
type taskSource struct{ *tasks.Executor }

// Alive implements lines.Source.
func (taskSource) Alive(t *tasks.Task) context.Context { return t.Context() }
