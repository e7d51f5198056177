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
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/resource"
	"muster/tasks"
	"muster/tasks/store"
)

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
	a, err := w.attempt(ctx, t, argv, stdin)
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
		return &errCommand{err}
	}
	w.log.Warn("the command cannot be started now; trying again", "error", err)
	select {
	case <-time.After(retryPause):
	case <-ctx.Done():
	}
	return nil
}

// permanent reports whether a command will not start later either.
func permanent(err error) bool {
	for _, e := range []error{
		exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
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
	end    commandEnd
	most   int64 // bytes of the result
	result []byte
	tail   tail
}

// attempt runs the command for a task, until all of its group has ended.
func (w *crew) attempt(ctx context.Context, t *tasks.Task, argv []string, stdin []byte) (*attempt, error) {
	s, err := w.openStreams(stdin != nil)
	if err != nil {
		return nil, err
	}
	defer s.close()
	c, err := w.fleet.start(launch{w.path, argv, w.taskEnvironment(t), w.dir, s.files, false})
	s.started()
	if err != nil {
		return nil, err
	}
	defer w.fleet.ended(c)
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
		pour(s.out, func(b []byte) {
			if int64(len(a.result)+len(b)) > a.most {
				tell(lost, errLargeResult)
				b = b[:a.most+1-int64(len(a.result))]
			}
			a.result = append(a.result, b...)
		})
	})
	copies.Go(func() { w.passErrors(s.err, &a.tail) })
	copies.Go(func() {
		if s.in != nil {
			_, _ = s.in.Write(stdin) // a command need not read it
			_ = s.in.Close()
		}
	})
	run := supervisor{command: c, grace: w.grace(), rest: endLimit, lost: lost}
	a.end = run.run(ofTask, nil)
	s.end()
	copies.Wait()
	return a, nil
}

// passErrors copies standard error of a command to that of this process, and keeps its end.
func (w *crew) passErrors(from *os.File, t *tail) {
	pour(from, func(b []byte) {
		t.add(b)
		_, _ = w.stderr.Write(b)
	})
}

// conclude says what an attempt means for the task.
func (w *crew) conclude(t *tasks.Task, a *attempt, took time.Duration) {
	e := &a.end
	var exit *int
	if e.err == nil && !e.status.Signaled() {
		code := e.status.ExitStatus()
		exit = &code
	}
	switch {
	case int64(len(a.result)) > a.most:
		w.fail(t, store.Never, took, exit, fmt.Sprintf("the result is larger than max_task, %s",
			resource.Size(a.most)), &a.tail)
	case errors.Is(e.cause, errTaskTimeout):
		w.fail(t, store.Again, took, exit, fmt.Sprintf("it took longer than %s", resource.Duration(t.Timeout)), &a.tail)
	case e.cause != nil || e.asked != 0: // what it answers after it was asked to end may be half of it
		w.Return(t)
	case exit != nil && *exit == 0:
		w.done(t, took, exit, a.result, &a.tail)
	case exit != nil && *exit == neverCode:
		w.fail(t, store.Never, took, exit, e.reason(), &a.tail)
	default:
		w.fail(t, store.Again, took, exit, e.reason(), &a.tail)
	}
}

// reason is why an attempt has failed whose command has ended by itself.
func (e *commandEnd) reason() string {
	switch {
	case e.err != nil:
		return "it is not known how the command ended: " + e.err.Error()
	case e.status.Signaled():
		return "ended by " + signalName(e.status.Signal())
	}
	return fmt.Sprintf("exit %d", e.status.ExitStatus())
}

// doneTail is how much of standard error is kept with a result.
const doneTail = 1024

// done finishes a task. What does not fit beside the result is left out.
func (w *crew) done(t *tasks.Task, took time.Duration, exit *int, result []byte, end *tail) {
	a := tasks.Answer{Exit: exit, Host: w.host, Body: result}
	if end != nil {
		a.Tail = end.last(doneTail)
	}
	w.Finish(t, store.Done, took, a.Encode())
}

// failTail is how much of standard error is kept with a reason, of which a script keeps 1,024 bytes.
const failTail = 512

// fail ends an attempt. The reason ends with the last line of standard error.
func (w *crew) fail(t *tasks.Task, o store.Outcome, took time.Duration, exit *int, reason string, end *tail) {
	a := tasks.Answer{Exit: exit, Host: w.host}
	if end != nil {
		a.Tail = end.last(failTail)
		reason = end.after(reason)
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
