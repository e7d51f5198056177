package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"syscall"

	"muster/worker"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// errOtherMember means that the session was lost since the attempt was read.
var errOtherMember = errors.New("joined again")

// gang is one attempt of a gang, as this process takes part in it.
type gang struct {
	*run
	m *worker.Member // that has read it
	a *worker.Attempt

	ctx context.Context // ends with the attempt, or with this member
	end context.CancelCauseFunc

	answering sync.WaitGroup // requests of its command
}

// isGang reports whether the workers of the job live and die together.
func (r *run) isGang() bool {
	m, _, _ := r.now()
	return m != nil && m.Job.Gang != nil
}

// runGang takes part in one attempt after the other, until this worker's command has ended well in one that all have
// finished, the gang has failed, or the worker is asked to end. The end of of is like SIGTERM.
func (r *run) runGang(of, ofMember context.Context) command.Result {
	for {
		result, err := r.takePart(of, ofMember)
		switch {
		case err == nil:
			return result
		case errors.Is(err, worker.ErrMoved), errors.Is(err, errOtherMember):
			continue
		}
		return r.endGang(ofMember, result, err)
	}
}

// endGang leaves because of err.
func (r *run) endGang(ofMember context.Context, result command.Result, err error) command.Result {
	if result.Code > 0 { // the command of this worker was why
		result.Text = err.Error() + "; " + r.leave(ofMember, false, worker.End{Exit: &result.Code}, err)
		return result
	}
	result = notStarted(err)
	var end worker.End
	if result.Code > 128 {
		end = bySignal(syscall.Signal(result.Code - 128))
	}
	result.Text = r.leave(ofMember, false, end, err)
	return result
}

// takePart takes part in the newest attempt. ErrMoved and errOtherMember: look again. Another error: leave.
func (r *run) takePart(of, ofMember context.Context) (command.Result, error) {
	g := &gang{run: r}
	g.ctx, g.end = context.WithCancelCause(of)
	defer g.end(nil)
	err := step(of, r.Signals, 0, func(ctx context.Context) error {
		return r.do(ctx, func(ctx context.Context, m *worker.Member) (err error) {
			g.m = m
			g.a, err = m.Attempt(ctx)
			return err
		})
	})
	switch {
	case err != nil:
		return command.Result{}, err
	case g.a.Failed():
		return g.failed()
	case g.a.Finished:
		return g.completed(ofMember), nil
	case g.a.Begun && !g.a.Arrived:
		return command.Result{}, g.decide(of, worker.Loss{
			Because: fmt.Sprintf("worker %d (%s) came back without its command", g.m.ID, g.m.Identity), Lost: []int{g.m.ID},
		})
	case !g.a.Begun:
		if err := g.start(of); err != nil {
			return command.Result{}, err
		}
	}
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer g.end(nil)
	watcher.Go(g.watch)
	if !g.a.Arrived {
		result, err := g.command(ofMember)
		if result.Err != nil || result.Text != "" || err != nil {
			return result, err
		}
	}
	return g.finish(ofMember)
}

// failed is how a worker of a gang ends that has failed: with the code of its command, if that was why.
func (g *gang) failed() (command.Result, error) {
	if g.a.By == g.m.Identity && g.a.Exit != nil { // in this life: nobody joins a gang that has failed
		return command.Result{Code: *g.a.Exit}, g.a.Err()
	}
	return command.Result{}, g.a.Err()
}

// completed ends a worker that has finished, as all have.
func (g *gang) completed(ofMember context.Context) command.Result {
	return command.Result{Text: "attempt " + strconv.Itoa(g.a.Number) + " is finished; " +
		g.leave(ofMember, true, worker.End{Exit: new(int)}, nil)}
}

// do calls f as the member that has read the attempt.
func (g *gang) do(ctx context.Context, f func(ctx context.Context, m *worker.Member) error) error {
	return g.run.do(ctx, func(ctx context.Context, m *worker.Member) error {
		if m != g.m {
			return errOtherMember
		}
		return f(ctx, m)
	})
}

// decide ends an attempt that has begun. ErrMoved: that is so.
func (g *gang) decide(ctx context.Context, l worker.Loss) error {
	err := g.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.Decide(ctx, g.a, l) })
	if errors.Is(err, worker.ErrStopRequested) {
		return ErrTerminated
	}
	return cmp.Or(err, worker.ErrMoved)
}

// start waits until the commands may start. Who is asked to end meanwhile is not waited for any more.
func (g *gang) start(of context.Context) error {
	g.enter(StageWaiting)
	err := step(of, g.Signals, 0, func(ctx context.Context) error {
		return g.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.StartAttempt(ctx, g.a) })
	})
	if err == nil || errors.Is(err, worker.ErrMoved) || errors.Is(err, errOtherMember) {
		return err
	}
	begun := false
	limited, cancel := context.WithTimeout(context.WithoutCancel(of), signalLimit)
	defer cancel()
	withdraw := g.do(limited, func(ctx context.Context, m *worker.Member) (err error) {
		begun, err = m.Withdraw(ctx, g.a)
		return err
	})
	if withdraw == nil && begun && !errors.Is(err, ErrTerminated) {
		withdraw = g.decide(limited, g.drained())
	}
	if withdraw != nil && !errors.Is(withdraw, worker.ErrMoved) {
		g.Log.Info("the others may wait for this worker", "reason", withdraw)
	}
	return err
}

func (g *gang) drained() worker.Loss {
	return worker.Loss{Because: fmt.Sprintf("worker %d (%s) was asked to end", g.m.ID, g.m.Identity), Drained: true}
}

// watch ends the attempt for this worker as soon as it is over, and decides if it sees a loss.
func (g *gang) watch() {
	for {
		err := g.m.AwaitLoss(g.ctx, g.a)
		var lost *worker.LostError
		switch {
		case g.ctx.Err() != nil:
			return
		case errors.As(err, &lost):
			g.Log.Warn("a worker is lost: the commands of all end", "job", g.m.Job.Path(), "id", g.m.ID, "lost", lost.IDs)
			err = g.decide(g.ctx, worker.Loss{Because: lost.Error(), Lost: lost.IDs})
		}
		switch {
		case errors.Is(err, worker.ErrMoved):
			g.end(worker.ErrMoved)
			return
		case g.m.Context().Err() != nil:
			g.lostMember(context.Cause(g.m.Context()))
			return
		}
		g.Log.Warn("the attempt is watched again", "job", g.m.Job.Path(), "id", g.m.ID, "error", err)
		zkconn.Pause(g.ctx, retryPause)
	}
}

// lostMember ends the command: at once, or as soon as the worker has joined again.
func (g *gang) lostMember(cause error) {
	if g.c.OnLoss != LossRejoin {
		select {
		case g.lost <- cause:
		default: // it is told already
		}
		g.end(cause)
		return
	}
	for {
		m, changed, over := g.now()
		if m != g.m || over != nil {
			g.end(cause)
			return
		}
		select {
		case <-changed:
		case <-g.ctx.Done():
			return
		}
	}
}

// command runs the command of the attempt to its end. The zero Result without an error means that it has ended well.
func (g *gang) command(ofMember context.Context) (command.Result, error) {
	select {
	case <-g.lost: //nolint:errcheck // of an attempt before
	default:
	}
	closeSocket, err := g.openSocket()
	if err != nil {
		return command.Result{}, err
	}
	defer closeSocket()
	var environ []string
	err = step(g.ctx, g.Signals, 0, func(ctx context.Context) (err error) {
		environ, err = g.environment(ctx)
		return err
	})
	if err != nil {
		return command.Result{}, g.interrupted(err)
	}
	e, err := g.runCommand(g.ctx, environ, func() {})
	if err != nil {
		code := command.StartCode(err)
		decided := g.decide(ofMember, worker.Loss{Because: g.says(err.Error()), Exit: &code})
		return command.Result{}, decided
	}
	text := e.String()
	switch {
	case e.Left():
		return command.Result{}, fmt.Errorf("%w: %s", ErrUnkillable, text)
	case e.Told, errors.Is(e.Cause, ErrTerminated):
		if e.Told {
			_ = g.decide(ofMember, g.drained())
		} else {
			text += ", because " + e.Cause.Error()
		}
		return command.Result{Code: e.Code(), Text: text + "; " + g.leave(ofMember, false, endOf(&e), e.Cause)}, nil
	case e.Cause != nil:
		g.Log.Warn("the command has ended with its attempt", "job", g.m.Job.Path(), "id", g.m.ID,
			"attempt", g.a.Number, "end", text, "reason", e.Cause)
		return command.Result{}, g.interrupted(e.Cause)
	case e.Completes():
		return command.Result{}, nil
	}
	code := e.Code()
	return command.Result{}, g.decide(ofMember, worker.Loss{Because: g.says(text), Exit: &code})
}

// says is what a decision says of this worker's command.
func (g *gang) says(what string) string {
	return fmt.Sprintf("worker %d (%s): %s", g.m.ID, g.m.Identity, what)
}

// interrupted is what to do after what ended the attempt for this worker: look again, unless the worker is to end.
func (g *gang) interrupted(err error) error {
	var by stopped
	switch {
	case errors.As(err, &by):
		_ = g.decide(context.WithoutCancel(g.ctx), g.drained())
		return err
	case errors.Is(err, ErrTerminated), errors.Is(err, worker.ErrFenced):
		return err
	case errors.Is(err, worker.ErrMoved), g.m.Context().Err() != nil:
		return errOtherMember
	}
	return err
}

// finish waits until the commands of all have ended well.
func (g *gang) finish(ofMember context.Context) (command.Result, error) {
	g.enter(StageLeaving)
	err := step(g.ctx, g.Signals, 0, func(ctx context.Context) error {
		return g.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.FinishAttempt(ctx, g.a) })
	})
	var by stopped
	switch {
	case err == nil || g.a.Finished:
		return g.completed(ofMember), nil
	case errors.As(err, &by), errors.Is(err, ErrTerminated), errors.Is(err, worker.ErrFenced):
		return command.Result{}, err
	case errors.Is(err, worker.ErrMoved), errors.Is(err, errOtherMember):
		return command.Result{}, err
	case g.m.Context().Err() != nil:
		return command.Result{}, errOtherMember
	}
	return command.Result{}, err
}

// openSocket opens the socket of the command of this attempt. The function that it returns closes it. Between the end
// of the attempt and that the socket answers that another one has begun.
func (g *gang) openSocket() (func(), error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	of, routes := g.ctx, g.routes()
	s.serve(of, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		g.answering.Add(1)
		defer g.answering.Done()
		if of.Err() == nil {
			routes.ServeHTTP(w, q)
			return
		}
		handle(func(http.ResponseWriter, *http.Request) error { return worker.ErrMoved })(w, q)
	}), g.Log)
	g.socket.close() // of the attempt before
	g.socket = s
	return func() {
		s.close()
		g.answering.Wait()
	}, nil
}

// The variables that the command of a gang is given besides.
const (
	AttemptVariable     = "MUSTER_ATTEMPT"
	restartsVariable    = "TORCHELASTIC_RESTART_COUNT"
	maxRestartsVariable = "TORCHELASTIC_MAX_RESTARTS"
)

func (g *gang) environment(ctx context.Context) ([]string, error) {
	environ, err := g.run.environment(ctx)
	return command.SetVariables(environ, [][2]string{
		{AttemptVariable, strconv.Itoa(g.a.Number)},
		{restartsVariable, strconv.Itoa(g.a.Number - 1)},
		{maxRestartsVariable, strconv.Itoa(g.m.Job.Gang.Restarts)},
	}), err
}
