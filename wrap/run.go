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

// Run joins, runs the command, and parts. The end of ctx is like SIGTERM.
func Run(ctx context.Context, c Config) Ending {
	r := &run{c: c, begun: time.Now(), progress: newProgress(), membership: newMembership(c), lost: make(chan error, 1)}
	defer r.membership.sessions.close()
	err := r.open()
	defer r.close()
	if err != nil {
		return Ending{Code: startCode(err), Err: err}
	}
	err = r.attend(ctx, 0, r.join)
	if m, _, _ := r.membership.now(); m == nil {
		return beforeStart(err)
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

// open does first what may fail for other reasons than the job: who cannot run its command must not take a place.
func (r *run) open() (err error) {
	if len(r.c.Command) > 0 {
		if r.path, err = lookUp(r.c.Command[0]); err != nil {
			return err
		}
	}
	if r.socket, err = openSocket(r.progress); err != nil {
		return err
	}
	if r.c.HTTP != "" {
		r.health, err = openHealth(r.c.HTTP, r.progress, r.c.Log)
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
	limited, cancel := r.limited(ctx)
	defer cancel()
	err := r.membership.join(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrLate, err)
	}
	return err
}

// asMember is everything after the join. err, unless nil, came up during the join: then the worker leaves.
func (r *run) asMember(ctx context.Context, err error) Ending {
	r.progress.joined(r.membership)
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // of the membership
	work, stop := context.WithCancelCause(ctx)                  // of the command
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	beside.Go(func() {
		if err := r.membership.keep(life); err != nil {
			if r.c.OnLoss == LossStop {
				r.lost <- err
			}
			stop(err)
		}
	})
	beside.Go(func() {
		err := r.membership.do(work, func(ctx context.Context, m *worker.Member) error { return m.StopRequested(ctx) })
		switch {
		case err == nil:
			stop(ErrTerminated)
		case work.Err() == nil:
			r.c.Log.Warn("requests to stop are not heard any more", "reason", err)
		}
	})
	defer stop(nil)
	r.socket.serve(life, r.membership)
	var environ []string
	if err == nil {
		err = r.attend(work, 0, func(ctx context.Context) (err error) {
			environ, err = r.await(ctx)
			return err
		})
	}
	if err == nil && r.path == "" {
		r.progress.enter(StageRunning)
		err = r.attend(work, 0, func(ctx context.Context) error { return r.membership.do(ctx, r.c.Idle) })
	}
	if err != nil || r.path == "" {
		e := beforeStart(err)
		var end worker.End
		if e.Code > 128 {
			end = bySignal(syscall.Signal(e.Code - 128))
		}
		e.Text = r.part(life, false, end)
		return e
	}
	return r.command(work, life, environ)
}

// command runs the command, and parts.
func (r *run) command(work, life context.Context, environ []string) Ending {
	c, err := start(launch{r.path, r.c.Command, environ, r.c.Dir, r.c.Files})
	if err != nil {
		exited := ending{ended: ended{status: syscall.WaitStatus(startCode(err) << 8)}}
		return Ending{Code: exited.code(), Err: err, Text: r.part(life, false, exited.end())}
	}
	r.progress.enter(StageRunning)
	o := overseer{command: c, grace: r.c.Grace, echo: Echo, asked: func() { r.progress.enter(StageDraining) }, lost: r.lost}
	e := o.run(work, r.c.Signals)
	background(r.c.Files)
	text := e.String() + "; " + r.part(life, e.completes(), e.end())
	if r.membership.lostTo(e.why) { // not if that is only found while it parts: the command had ended
		return Ending{Err: e.why, Text: text}
	}
	return Ending{Code: e.code(), Text: text}
}

// attend does a step in which there is no command. A signal that would have ended the command ends the step, some time
// later if there is a delay.
func (r *run) attend(ctx context.Context, delay time.Duration, step func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- step(ctx) }()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil && delay == 0 { // also if the step has succeeded meanwhile
				err = context.Cause(ctx)
			}
			return err
		case sig := <-r.c.Signals:
			if withdraws(sig) {
				time.AfterFunc(delay, func() { stop(signalError(sig.(syscall.Signal))) })
			}
		}
	}
}

// limited is ctx until the time to join is over.
func (r *run) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.c.JoinTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, r.begun.Add(r.c.JoinTimeout))
}

// beforeStart is the Ending of a worker that has not started a command.
func beforeStart(err error) Ending {
	var sig signalError
	switch {
	case errors.As(err, &sig):
		return Ending{Code: 128 + int(sig), Err: err}
	case errors.Is(err, ErrTerminated):
		return Ending{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return Ending{Err: err}
}

// await waits for whom the command is to wait for, and then makes the command's environment.
func (r *run) await(ctx context.Context) ([]string, error) {
	r.progress.enter(StageWaiting)
	if r.c.Start != StartJoined {
		limited, cancel := r.limited(ctx)
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
