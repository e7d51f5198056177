package wrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
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
func RunExecutor(ctx context.Context, c ExecutorConfig) command.Result {
	c.Process.Parallel = max(c.Process.Parallel, 1)
	r := newQueueRun(c.QueueConfig, queue.Executor)
	e := &executor{c: c, run: r, fleet: command.NewFleet(c.GuardAll, c.Log)}
	r.work, r.signaled, r.ended = e.work, e.signaled, collector(e.collect)
	if err := e.fleet.Open(); err != nil {
		return command.Result{Err: err}
	}
	defer e.fleet.Close()
	result := r.run(ctx)
	if wrong := new(commandError); errors.As(result.Err, &wrong) {
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
	err := e.crew(p, engine, ofCommands).run(ctx, e.c.Process.Parallel)
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
func (e *executor) crew(p *tasks.Process, engine *tasks.Executor, kill context.Context) *crew {
	host, _ := os.Hostname() // for people only
	return &crew{
		source: taskSource{engine}, queue: p.Queue, kill: kill, fleet: e.fleet, log: e.c.Log,
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

// source is where tasks come from, and where their results go: a taskSource.
type source interface {
	Take(ctx context.Context) (*tasks.Task, error)
	Finish(t *tasks.Task, o store.Outcome, took time.Duration, data []byte)
	Return(t *tasks.Task)
	// Alive ends when the work on the task is in vain.
	Alive(t *tasks.Task) context.Context
}

// taskSource is an engine.
type taskSource struct{ *tasks.Executor }

// Alive implements source.
func (taskSource) Alive(t *tasks.Task) context.Context { return t.Context() }

// crew executes the tasks of one membership.
type crew struct {
	source
	queue func() queue.Queue // as it is declared now
	kill  context.Context    // at its end all commands are killed at once
	fleet *command.Fleet
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

// commandError means that the command cannot be run, or never does what it should. The executor must end.
type commandError struct{ error }

func (e *commandError) Unwrap() error { return e.error }

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

// A process a task: the task is on its standard input, or takes the place of {} in its arguments; the result is what it
// writes to standard output; it succeeds with exit code 0.

// neverCode is the exit code with which the command of a task says that it must not be tried again: EX_DATAERR.
const neverCode = 65

// endLimit is how long what a task has left behind may take to end before it is killed.
const endLimit = time.Second

var (
	errTaskTimeout = errors.New("the time of the task was over")
	errLargeResult = errors.New("the result is too large")
)

// processes executes one task after the other.
func (w *crew) processes(ctx context.Context) error {
	for {
		t, err := w.Take(ctx)
		if err != nil {
			return err
		}
		if err := w.process(ctx, t); err != nil {
			return err
		}
	}
}

// process executes a task. The error means that the command cannot be run.
func (w *crew) process(ctx context.Context, t *tasks.Task) error {
	argv, stdin, err := w.arguments(t)
	if err != nil {
		w.fail(t, store.Never, 0, nil, err.Error(), nil)
		return nil
	}
	begun := time.Now()
	a, err := w.perform(ctx, t, argv, stdin)
	switch {
	case err == nil:
		w.conclude(t, a, time.Since(begun))
		return nil
	case errors.Is(err, syscall.E2BIG):
		w.fail(t, store.Never, 0, nil, fmt.Sprintf("the task has %d bytes, which is too long for an argument: "+
			"without {} the command gets it on standard input", len(t.Payload)), nil)
		return nil
	}
	w.Return(t)
	if permanent(err) {
		return &commandError{err}
	}
	w.log.Warn("the command cannot be started now; trying again", "error", err)
	zkconn.Pause(ctx, retryPause)
	return nil
}

// permanent reports whether a command will not start later either.
func permanent(err error) bool {
	return slices.ContainsFunc([]error{
		exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP,
	}, func(e error) bool { return errors.Is(err, e) })
}

// placeholder stands for the task in the arguments of the command.
const placeholder = "{}"

// arguments are the command line of a task, and what is written to its standard input; nil: nothing. The error is why
// there is none.
func (w *crew) arguments(t *tasks.Task) (argv []string, stdin []byte, err error) {
	if !strings.Contains(strings.Join(w.argv[1:], "\n"), placeholder) {
		return w.argv, t.Payload, nil
	}
	if i := bytes.IndexByte(t.Payload, 0); i >= 0 {
		return nil, nil, fmt.Errorf("byte %d of the task is zero, so it cannot be an argument: "+
			"without {} the command gets it on standard input", i)
	}
	argv = append(argv, w.argv[0])
	for _, arg := range w.argv[1:] {
		argv = append(argv, strings.ReplaceAll(arg, placeholder, string(t.Payload)))
	}
	return argv, nil, nil
}

// attempt is what the command of one task did.
type attempt struct {
	end    command.End
	most   int64 // bytes of the result
	result []byte
	tail   command.Tail
}

// perform runs the command for a task, until all of its group has ended.
func (w *crew) perform(ctx context.Context, t *tasks.Task, argv []string, stdin []byte) (*attempt, error) {
	s, err := command.OpenStreams(w.null, stdin != nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	environ := append(slices.Clip(w.environ), BatchVariable+"="+t.Batch,
		TaskVariable+"="+strconv.FormatInt(t.Index, 10), AttemptVariable+"="+strconv.Itoa(t.Attempt))
	c, err := w.fleet.Start(command.Launch{Path: w.path, Argv: argv, Environ: environ, Dir: w.dir, Files: s.Files})
	s.Started()
	if err != nil {
		return nil, err
	}
	defer w.fleet.Ended(c)
	ofTask, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	alive := w.Alive(t)
	defer context.AfterFunc(alive, func() { stop(context.Cause(alive)) })()
	if t.Timeout > 0 {
		defer time.AfterFunc(t.Timeout, func() { stop(errTaskTimeout) }).Stop()
	}
	lost, release := w.lost()
	defer release()
	a := &attempt{most: int64(w.queue().MaxTask)}
	var copies sync.WaitGroup
	copies.Go(func() {
		command.Pour(s.Out, func(b []byte) {
			if int64(len(a.result)+len(b)) > a.most {
				tell(lost, errLargeResult)
				b = b[:a.most+1-int64(len(a.result))]
			}
			a.result = append(a.result, b...)
		})
	})
	copies.Go(func() { w.passErrors(s.Err, &a.tail) })
	copies.Go(func() {
		_, _ = s.In.Write(stdin) // a command need not read it
		_ = s.In.Close()
	})
	run := command.Supervisor{Command: c, Grace: w.grace(), Rest: endLimit, Lost: lost}
	a.end = run.Run(ofTask, nil)
	s.End()
	copies.Wait()
	return a, nil
}

// passErrors copies standard error of a command to that of this process, and keeps its end.
func (w *crew) passErrors(from *os.File, t *command.Tail) {
	command.Pour(from, func(b []byte) {
		t.Add(b)
		_, _ = w.stderr.Write(b)
	})
}

// conclude says what an attempt means for the task.
func (w *crew) conclude(t *tasks.Task, a *attempt, took time.Duration) {
	e, exit := &a.end, a.end.Exit()
	switch {
	case int64(len(a.result)) > a.most:
		w.fail(t, store.Never, took, exit, fmt.Sprintf("the result is larger than max_task, %s",
			resource.Size(a.most)), &a.tail)
	case errors.Is(e.Cause, errTaskTimeout):
		w.fail(t, store.Again, took, exit, fmt.Sprintf("it took longer than %s", resource.Duration(t.Timeout)), &a.tail)
	case e.Cause != nil || e.Asked != 0: // what it answers after it was asked to end may be half of it
		w.Return(t)
	case exit != nil && *exit == 0:
		w.done(t, took, exit, a.result, &a.tail)
	case exit != nil && *exit == neverCode:
		w.fail(t, store.Never, took, exit, e.Reason(), &a.tail)
	default:
		w.fail(t, store.Again, took, exit, e.Reason(), &a.tail)
	}
}

// doneTail is how much of standard error is kept with a result.
const doneTail = 1024

// done finishes a task. What does not fit beside the result is left out.
func (w *crew) done(t *tasks.Task, took time.Duration, exit *int, result []byte, end *command.Tail) {
	a := tasks.Answer{Exit: exit, Host: w.host, Body: result}
	if end != nil {
		a.Tail = end.Last(doneTail)
	}
	w.Finish(t, store.Done, took, a.Encode())
}

// failTail is how much of standard error is kept with a reason, of which a script keeps 1,024 bytes.
const failTail = 512

// fail ends an attempt. The reason ends with the last line of standard error.
func (w *crew) fail(t *tasks.Task, o store.Outcome, took time.Duration, exit *int, reason string, end *command.Tail) {
	a := tasks.Answer{Exit: exit, Host: w.host}
	if end != nil {
		a.Tail = end.Last(failTail)
		reason = end.After(reason)
	}
	a.Body = []byte(reason)
	w.log.Log(context.Background(), w.failureLevel(), "a task has failed",
		"batch", t.Batch, "task", t.Index, "attempt", t.Attempt, "reason", reason)
	w.Finish(t, o, took, a.Encode())
}

// failureLevel is the level of a failed task: of one a second it is the default.
func (w *crew) failureLevel() slog.Level {
	now, last := time.Now(), w.failed.Load()
	if now.UnixNano()-last < int64(time.Second) || !w.failed.CompareAndSwap(last, now.UnixNano()) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
