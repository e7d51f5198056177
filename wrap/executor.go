package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
)

// ExecutorConfig says which queue to join as whom, and what to run for its tasks.
type ExecutorConfig struct {
	QueueConfig // Process.Parallel is how many commands run at once

	Lines      Lines
	UntilEmpty bool     // end when nothing is left to take
	MaxTasks   int64    // end after so many; 0: no limit
	GuardAll   []string // the command line that calls GuardGroups
	// Hint, unless nil, is told once what a person should look at: the command answers no lines.
	Hint func(text string)
}

// RunExecutor joins a queue and runs the command for its tasks, until it is asked to end or there are no more as
// ExecutorConfig says. The end of ctx is like SIGTERM: commands are asked to end, and their tasks go back, uncharged.
// Between SIGTSTP and SIGCONT it takes no tasks, and works on those that it has. Other signals go to the commands.
//
// What became of the tasks is in Result.Text.
func RunExecutor(ctx context.Context, c ExecutorConfig) Result {
	c.Process.Parallel = max(c.Process.Parallel, 1)
	r := newQueueRun(c.QueueConfig, queue.Executor)
	e := &executor{c: c, run: r, fleet: newFleet(c.GuardAll, c.Log), ended: map[store.Outcome]int64{}}
	r.work, r.signaled = e.work, e.signaled
	if err := e.fleet.open(); err != nil {
		return Result{Err: err}
	}
	defer e.fleet.close()
	result := r.run(ctx)
	if wrong := new(errCommand); errors.As(result.Err, &wrong) {
		result.Code = max(cannotRun, startCode(result.Err))
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
	fleet *fleet

	mu     sync.Mutex
	engine *tasks.Executor // nil while there is none
	paused bool
	ended  map[store.Outcome]int64 // attempts
	given  int64                   // tasks given back
	taken  int64                   // tasks that were not given back
}

// work executes tasks as p.
func (e *executor) work(ctx context.Context, p *tasks.Process) error {
	engine := e.start(p)
	if engine == nil {
		return nil
	}
	ofCommands, kill := context.WithCancel(p.Context())
	defer kill()
	killed, release := e.run.killedWith(p)
	defer release()
	go func() {
		<-killed
		kill()
	}()
	err := e.crew(p, engine, ofCommands).run(ctx, e.c.Process.Parallel)
	e.mu.Lock()
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
		if c.MaxTasks = e.c.MaxTasks - e.taken; c.MaxTasks <= 0 {
			return nil
		}
	}
	e.engine = tasks.StartExecutor(p, c)
	if e.paused {
		e.engine.Pause()
	}
	return e.engine
}

// crew is what runs the commands for p.
func (e *executor) crew(p *tasks.Process, engine *tasks.Executor, kill context.Context) *crew {
	host, _ := os.Hostname() // for people only
	return &crew{
		source: &counted{e, engine}, queue: p.Queue, kill: kill, fleet: e.fleet, log: e.c.Log,
		path: e.run.path, argv: e.c.Command, environ: e.run.environment(p), dir: e.c.Dir,
		null: e.run.null, stderr: e.c.Files[2],
		grace: func() time.Duration { return e.run.grace(p) },
		host:  host, lines: e.c.Lines, hint: sync.OnceFunc(func() {
			if e.c.Hint != nil {
				e.c.Hint(noAnswer)
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
		e.paused = true
		e.c.Log.Warn("SIGTSTP: this executor takes no more tasks until SIGCONT")
		if e.engine != nil {
			e.engine.Pause()
		}
	case sig == syscall.SIGCONT && e.paused:
		e.paused = false
		e.c.Log.Warn("SIGCONT: this executor takes tasks again")
		if e.engine != nil {
			e.engine.Resume()
		}
	default:
		e.fleet.signal(sig)
	}
}

// summary is what became of the tasks.
func (e *executor) summary() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf("; tasks: %d done, %d attempts failed, %d dead at once, %d given back",
		e.ended[store.Done], e.ended[store.Again], e.ended[store.Never], e.given)
}

// counted is an engine that counts for the executor.
type counted struct {
	*executor
	engine *tasks.Executor
}

// Take implements source.
func (c *counted) Take(ctx context.Context) (*tasks.Task, error) {
	t, err := c.engine.Take(ctx)
	if err == nil {
		c.took(1)
	}
	return t, err
}

// TakeMore implements source.
func (c *counted) TakeMore(work time.Duration) []*tasks.Task {
	all := c.engine.TakeMore(work)
	c.took(len(all))
	return all
}

func (c *counted) took(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken += int64(n)
}

// Finish implements source.
func (c *counted) Finish(t *tasks.Task, o store.Outcome, took time.Duration, data []byte) {
	c.engine.Finish(t, o, took, data)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[o]++
	c.run.count(map[store.Outcome]string{store.Done: "done", store.Again: "again", store.Never: "never"}[o])
}

// Return implements source.
func (c *counted) Return(t *tasks.Task) {
	c.engine.Return(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given++
	c.taken--
	c.run.count("returned")
}

// Alive implements source.
func (c *counted) Alive(t *tasks.Task) context.Context { return t.Context() }
