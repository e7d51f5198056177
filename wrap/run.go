package wrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"muster/worker"
)

// Run joins, runs the command, and leaves or completes. The end of ctx is like SIGTERM.
func Run(ctx context.Context, c Config) Result {
	r := &run{c: c, begun: time.Now(), progress: newProgress(), membership: newMembership(c), lost: make(chan error, 1)}
	defer r.membership.sessions.close()
	err := r.open()
	defer r.close()
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	err = r.step(ctx, 0, r.join)
	if m, _, _ := r.membership.now(); m == nil {
		return notStarted(err)
	}
	return r.asMember(ctx, err)
}

// run is one Run.
type run struct {
	c          Config
	begun      time.Time
	path       string // of the command
	progress   *progress
	membership *membership
	lost       chan error // why the membership is over, if the command must not outlive it
	socket     *socket
	health     *health
}

// open does first what may fail for reasons of this machine: a worker that cannot run its command must not take a
// place.
func (r *run) open() (err error) {
	if len(r.c.Command) > 0 {
		if r.path, err = lookUp(r.c.Command[0]); err != nil {
			return err
		}
	}
	if r.socket, err = openSocket(); err != nil {
		return err
	}
	if r.c.HTTP != "" {
		r.health, err = openHealth(r.c.HTTP, healthOf{ready: r.progress.ready, metrics: r.progress.registry()}, r.c.Log)
	}
	if r.health != nil && r.c.Serving != nil {
		r.c.Serving(r.health.addr)
	}
	return err
}

func (r *run) close() {
	if r.socket != nil {
		r.socket.close()
	}
	if r.health != nil {
		r.health.close()
	}
}

// join joins, if that is possible in time.
func (r *run) join(ctx context.Context) error {
	limited, cancel := r.untilJoinTimeout(ctx)
	defer cancel()
	err := r.membership.join(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrLate, err)
	}
	return err
}

// asMember is everything after the join. err, unless nil, came up during the join: then the worker leaves.
func (r *run) asMember(ctx context.Context, err error) Result {
	r.progress.joined(r.membership)
	ofMember, end := context.WithCancel(context.WithoutCancel(ctx))
	ofCommand, stop := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()
	watchers.Go(func() {
		if err := r.membership.keep(ofMember); err != nil {
			if r.c.OnLoss == LossStop {
				r.lost <- err
			}
			stop(err)
		}
	})
	watchers.Go(func() {
		err := r.membership.do(ofCommand, func(ctx context.Context, m *worker.Member) error {
			return m.StopRequested(ctx)
		})
		switch {
		case err == nil:
			stop(ErrTerminated)
		case ofCommand.Err() == nil && !errors.Is(err, context.Canceled): // not when it has left or completed
			r.c.Log.Warn("requests to stop are not heard any more", "reason", err)
		}
	})
	defer stop(nil)
	r.socket.serve(ofMember, workerRoutes(r.membership, r.progress), r.c.Log)
	var environ []string
	if err == nil {
		err = r.step(ofCommand, 0, func(ctx context.Context) (err error) {
			environ, err = r.awaitStart(ctx)
			return err
		})
	}
	if err == nil && r.path == "" {
		r.progress.enter(StageRunning)
		err = r.step(ofCommand, 0, func(ctx context.Context) error { return r.membership.do(ctx, r.c.Idle) })
	}
	if err != nil || r.path == "" {
		result := notStarted(err)
		var end worker.End
		if result.Code > 128 {
			end = bySignal(syscall.Signal(result.Code - 128))
		}
		result.Text = r.leave(ofMember, false, end, err)
		return result
	}
	return r.command(ofCommand, ofMember, environ)
}

// command runs the command, and leaves or completes.
func (r *run) command(ofCommand, ofMember context.Context, environ []string) Result {
	c, err := start(launch{r.path, r.c.Command, environ, r.c.Dir, r.c.Files, false})
	if err != nil {
		failed := commandEnd{exitStatus: exitStatus{status: syscall.WaitStatus(startCode(err) << 8)}}
		return Result{Code: failed.code(), Err: err, Text: r.leave(ofMember, false, failed.record(), err)}
	}
	r.progress.enter(StageRunning)
	s := supervisor{
		command: c, grace: r.c.Grace, echo: Echo, lost: r.lost,
		onAsked: func() { r.progress.enter(StageDraining) },
	}
	e := s.run(ofCommand, r.c.Signals)
	takeTerminal(r.c.Files)
	text := e.String()
	if errors.Is(e.cause, ErrTerminated) {
		text += ", because " + e.cause.Error()
	}
	text += "; " + r.leave(ofMember, e.completes(), e.record(), e.cause)
	if r.membership.lostBecause(e.cause) { // not if that is found only while it leaves: the command had ended
		return Result{Err: e.cause, Text: text}
	}
	return Result{Code: e.code(), Text: text}
}

// step does something while no command runs; see step.
func (r *run) step(ctx context.Context, delay time.Duration, f func(context.Context) error) error {
	return step(ctx, r.c.Signals, delay, f)
}

// untilJoinTimeout is ctx until the time to join is over.
func (r *run) untilJoinTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.c.JoinTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, r.begun.Add(r.c.JoinTimeout))
}

// notStarted is the Result of a worker that has not started a command.
func notStarted(err error) Result {
	var sig signalError
	switch {
	case errors.As(err, &sig):
		return Result{Code: 128 + int(sig), Err: err}
	case errors.Is(err, ErrTerminated):
		return Result{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return Result{Err: err}
}

// awaitStart waits until the command may start, and returns the command's environment.
func (r *run) awaitStart(ctx context.Context) ([]string, error) {
	r.progress.enter(StageWaiting)
	if r.c.Start != StartJoined {
		limited, cancel := r.untilJoinTimeout(ctx)
		defer cancel()
		if err := r.membership.waitAll(limited, 0); err != nil {
			return nil, err
		}
	}
	if r.c.Start == StartBarrier {
		if err := r.membership.startBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if r.path == "" {
		return nil, nil
	}
	return r.environment(ctx)
}
