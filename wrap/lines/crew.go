// Package lines runs commands for the tasks of a queue: a process for each task, or a long-lived one that reads tasks
// as lines and answers each with a line. It says what the end of a command, or an answer, means for the task.
package lines

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

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// Source is where tasks come from, and where their results go.
type Source interface {
	Take(ctx context.Context) (*tasks.Task, error)
	Finish(t *tasks.Task, o store.Outcome, took time.Duration, data []byte)
	Return(t *tasks.Task)
	// Alive ends when the work on the task is in vain.
	Alive(t *tasks.Task) context.Context
}

// Crew executes the tasks of one membership.
type Crew struct {
	Source
	Queue func() queue.Queue // as it is declared now
	Kill  context.Context    // at its end all commands are killed at once
	Fleet *command.Fleet
	Log   *slog.Logger

	Path    string   // of the command
	Argv    []string // as it was given, with {}
	Environ []string // of every command
	Dir     string
	Null    *os.File
	Stderr  *os.File // of this process
	Grace   func() time.Duration
	Host    string // of results
	Lines   Format
	Hint    func() // unless nil, called when a line is not answered for hintAfter

	failed   atomic.Int64 // when a failed task was logged at the default level, in ns since 1970
	answered atomic.Bool  // the command has answered a line
}

// The variables that the command of a task is given besides Environ.
const (
	BatchVariable   = "MUSTER_BATCH"
	TaskVariable    = "MUSTER_TASK" // its index, from 0
	AttemptVariable = "MUSTER_ATTEMPT"
)

// CommandError means that the command cannot be run, or never does what it should. The executor must end.
type CommandError struct{ error }

func (e *CommandError) Unwrap() error { return e.error }

// Run executes tasks with so many commands at once, until ctx ends or there are no more. Nothing runs then. The error
// is why the executor cannot go on.
func (w *Crew) Run(ctx context.Context, parallel int) error {
	ofWork, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			work := w.processes
			if w.Lines != None {
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
func (w *Crew) lost() (lost chan error, release func() bool) {
	lost = make(chan error, 1)
	return lost, context.AfterFunc(w.Kill, func() { tell(lost, context.Cause(w.Kill)) })
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

// startPause is between two attempts to start a command.
const startPause = time.Second

// endLimit is how long what a task has left behind may take to end before it is killed.
const endLimit = time.Second

var (
	errTaskTimeout = errors.New("the time of the task was over")
	errLargeResult = errors.New("the result is too large")
)

// processes executes one task after the other.
func (w *Crew) processes(ctx context.Context) error {
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
func (w *Crew) process(ctx context.Context, t *tasks.Task) error {
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
		return &CommandError{err}
	}
	w.Log.Warn("the command cannot be started now; trying again", "error", err)
	zkconn.Pause(ctx, startPause)
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
func (w *Crew) arguments(t *tasks.Task) (argv []string, stdin []byte, err error) {
	if !strings.Contains(strings.Join(w.Argv[1:], "\n"), placeholder) {
		return w.Argv, t.Payload, nil
	}
	if i := bytes.IndexByte(t.Payload, 0); i >= 0 {
		return nil, nil, fmt.Errorf("byte %d of the task is zero, so it cannot be an argument: "+
			"without {} the command gets it on standard input", i)
	}
	argv = append(argv, w.Argv[0])
	for _, arg := range w.Argv[1:] {
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
func (w *Crew) perform(ctx context.Context, t *tasks.Task, argv []string, stdin []byte) (*attempt, error) {
	s, err := command.OpenStreams(w.Null, stdin != nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	environ := append(slices.Clip(w.Environ), BatchVariable+"="+t.Batch,
		TaskVariable+"="+strconv.FormatInt(t.Index, 10), AttemptVariable+"="+strconv.Itoa(t.Attempt))
	c, err := w.Fleet.Start(command.Launch{Path: w.Path, Argv: argv, Environ: environ, Dir: w.Dir, Files: s.Files})
	s.Started()
	if err != nil {
		return nil, err
	}
	defer w.Fleet.Ended(c)
	ofTask, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	alive := w.Alive(t)
	defer context.AfterFunc(alive, func() { stop(context.Cause(alive)) })()
	if t.Timeout > 0 {
		defer time.AfterFunc(t.Timeout, func() { stop(errTaskTimeout) }).Stop()
	}
	lost, release := w.lost()
	defer release()
	a := &attempt{most: int64(w.Queue().MaxTask)}
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
	run := command.Supervisor{Command: c, Grace: w.Grace(), Rest: endLimit, Lost: lost}
	a.end = run.Run(ofTask, nil)
	s.End()
	copies.Wait()
	return a, nil
}

// passErrors copies standard error of a command to that of this process, and keeps its end.
func (w *Crew) passErrors(from *os.File, t *command.Tail) {
	command.Pour(from, func(b []byte) {
		t.Add(b)
		_, _ = w.Stderr.Write(b)
	})
}

// conclude says what an attempt means for the task.
func (w *Crew) conclude(t *tasks.Task, a *attempt, took time.Duration) {
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
func (w *Crew) done(t *tasks.Task, took time.Duration, exit *int, result []byte, end *command.Tail) {
	a := tasks.Answer{Exit: exit, Host: w.Host, Body: result}
	if end != nil {
		a.Tail = end.Last(doneTail)
	}
	w.Finish(t, store.Done, took, a.Encode())
}

// failTail is how much of standard error is kept with a reason, of which a script keeps 1,024 bytes.
const failTail = 512

// fail ends an attempt. The reason ends with the last line of standard error.
func (w *Crew) fail(t *tasks.Task, o store.Outcome, took time.Duration, exit *int, reason string, end *command.Tail) {
	a := tasks.Answer{Exit: exit, Host: w.Host}
	if end != nil {
		a.Tail = end.Last(failTail)
		reason = end.After(reason)
	}
	a.Body = []byte(reason)
	w.Log.Log(context.Background(), w.failureLevel(), "a task has failed",
		"batch", t.Batch, "task", t.Index, "attempt", t.Attempt, "reason", reason)
	w.Finish(t, o, took, a.Encode())
}

// failureLevel is the level of a failed task: of one a second it is the default.
func (w *Crew) failureLevel() slog.Level {
	now, last := time.Now(), w.failed.Load()
	if now.UnixNano()-last < int64(time.Second) || !w.failed.CompareAndSwap(last, now.UnixNano()) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
