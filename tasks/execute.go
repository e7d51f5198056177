package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"muster/tasks/store"
)

// ErrNever is what the error of a task wraps that must not be tried again: the task is dead at once.
var ErrNever = errors.New("do not try this task again")

// ErrTimeout is the cause of a task's context when the attempt took longer than the batch's task_timeout.
var ErrTimeout = errors.New("the task took too long")

// Execute does the tasks of a queue until ctx or the membership ends, or until the configuration says that it is
// enough: then it returns nil. An error of Redis that waiting does not cure ends it too. It calls do in up to
// c.Parallel goroutines.
//
// What do returns is the task's result. If it returns an error, the task is tried again later, by any executor, until
// it has had all its attempts; after an error that wraps ErrNever, it is not. The same task can be done more than once,
// also at the same time, after a process was lost; one of the results counts.
//
// The ctx of do ends when the attempt takes too long (ErrTimeout), when the batch was cancelled (ErrBatchOver), or when
// the task is not held any more (ErrNotHeld): do should return then. Execute cannot make it: a do that does not look at
// its ctx keeps its goroutine, and the task. What do returns after ErrTimeout still counts if it is no error.
//
// A panic of do is not recovered: it ends the process, as any other. Its tasks go to other executors, and one that has
// killed several executors is dead. Recover in do what should only end the task.
//
// When ctx ends, no task is begun. Those under way have the queue's drain timeout to end; then their contexts end
// (ErrDrained), and what returns an error goes back, uncharged. Execute returns after every do has returned, with the
// cause of the end of ctx or of the membership.
func Execute(
	ctx context.Context, p *Process, c ExecutorConfig, do func(ctx context.Context, t *Task) ([]byte, error),
) error {
	e := StartExecutor(p, c)
	host, _ := os.Hostname() // for people only
	var work sync.WaitGroup
	for range e.c.Parallel {
		work.Go(func() { e.consume(ctx, host, do) })
	}
	worked := make(chan struct{})
	go func() { work.Wait(); close(worked) }()

	select {
	case <-worked:
	case <-ctx.Done():
	}
	limit, done := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.Queue().Timeouts.Drain))
	defer done()
	err := e.Drain(limit)
	<-worked
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), err)
	}
	return errors.Join(e.failure(), err)
}

// failure is why the executor has ended, unless it was drained.
func (e *Executor) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(e.ended, ErrDrained) {
		return nil
	}
	return e.ended
}

// consume does one task after another.
func (e *Executor) consume(ctx context.Context, host string, do func(ctx context.Context, t *Task) ([]byte, error)) {
	for {
		t, err := e.Take(ctx)
		if err != nil {
			return
		}
		e.do(t, host, do)
	}
}

// do does a task.
func (e *Executor) do(t *Task, host string, do func(ctx context.Context, t *Task) ([]byte, error)) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), t.Timeout, ErrTimeout)
	defer cancel()
	begun := time.Now()
	body, err := do(ctx, t)
	took := time.Since(begun)
	outcome := store.Done
	switch {
	case err == nil:
	case errors.Is(err, ErrNever):
		outcome = store.Never
	case errors.Is(context.Cause(ctx), ErrTimeout):
		outcome, err = store.Again, fmt.Errorf("%w: more than %s: %w", ErrTimeout, t.Timeout, err)
	case ctx.Err() != nil: // it is in vain: there is nobody to tell
		e.Return(t)
		return
	default:
		outcome = store.Again
	}
	if err != nil {
		body = []byte(err.Error())
	}
	e.Finish(t, outcome, took, Answer{Host: host, Body: body}.Encode())
}
