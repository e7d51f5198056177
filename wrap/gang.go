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
	"muster/zkstate/znode"
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

	watching sync.WaitGroup // for what ends the attempt

	mu        sync.Mutex
	closed    bool           // the socket takes no more requests
	answering sync.WaitGroup // requests of its command
}

// undecided is why an attempt is over for this worker, until it knows that this was decided: its session may be lost
// before.
type undecided struct {
	attempt int
	loss    worker.Loss
}

// isGang reports whether the workers of the job live and die together.
func (r *run) isGang() bool {
	m, _, _ := r.now()
	return m != nil && m.Job.Gang != nil
}

// runGang takes part in one attempt after the other, until this worker's command has ended well in one that all have
// finished, the gang has failed, or the worker is asked to end. ofCommand ends when the workers are asked to stop, or
// when this one is fenced.
func (r *run) runGang(ofCommand, ofMember context.Context) command.Result {
	for {
		result, err := r.takePart(ofCommand, ofMember)
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
	if errors.Is(err, worker.ErrDone) { // all have finished while it was away
		return command.Result{Text: r.leave(ofMember, true, worker.End{}, nil)}
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
func (r *run) takePart(ofCommand, ofMember context.Context) (result command.Result, err error) {
	g := &gang{run: r}
	g.ctx, g.end = context.WithCancelCause(ofCommand)
	defer g.end(nil)
	err = step(ofCommand, r.Signals, 0, func(ctx context.Context) error {
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
	}
	if g.a.Number > 1 && g.a.Number > r.toldAttempt {
		g.Log.Info("another attempt follows", "job", g.m.Job.Path(), "id", g.m.ID, "attempt", g.a.Number,
			"because", g.a.Because, "restarts_used", g.a.Used, "restarts", g.m.Job.Gang.Restarts)
	}
	r.toldAttempt = g.a.Number
	if err := g.pause(ofCommand); err != nil {
		return command.Result{}, err
	}
	defer func() {
		if errors.Is(err, worker.ErrMoved) {
			r.overAttempt = g.a.Number
		}
	}()
	switch {
	case g.a.Begun && !g.a.Arrived:
		why := worker.Loss{
			Because: fmt.Sprintf("worker %d (%s) came back without its command", g.m.ID, g.m.Identity), Lost: []int{g.m.ID},
		}
		if u := r.undecided; u != nil && u.attempt == g.a.Number {
			why = u.loss
		}
		return command.Result{}, g.decide(ofCommand, why)
	case !g.a.Begun:
		if err := g.start(ofCommand); err != nil {
			return command.Result{}, err
		}
	}
	over := make(chan struct{})
	var membership sync.WaitGroup
	defer membership.Wait()
	defer close(over)
	defer g.stopWatching()
	membership.Go(func() { // also while the attempt is decided, and while the command has its grace
		select {
		case <-g.m.Context().Done():
			g.lostMember(context.Cause(g.m.Context()))
		case <-over:
		}
	})
	g.watching.Go(g.watch)
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

// pause waits if the attempt is the one that was over before: then somebody has changed by hand what a decision writes.
func (g *gang) pause(ofCommand context.Context) error {
	if g.a.Number != g.overAttempt {
		return nil
	}
	g.Log.Warn("the attempt is over, and no other has begun", "job", g.m.Job.Path(), "id", g.m.ID, "attempt", g.a.Number)
	return step(ofCommand, g.Signals, 0, func(ctx context.Context) error {
		zkconn.Pause(ctx, retryPause)
		return nil
	})
}

// stopWatching ends the attempt for this worker.
func (g *gang) stopWatching() {
	g.end(nil)
	g.watching.Wait()
}

// completed ends a worker that has finished, as all have.
func (g *gang) completed(ofMember context.Context) command.Result {
	g.stopWatching() // the others leave, and are not lost
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

// decide ends an attempt that has begun, because of what happened to this worker, or until a signal ends this worker
// too. ErrMoved: it is over.
func (g *gang) decide(ctx context.Context, l worker.Loss) error {
	g.undecided = &undecided{g.a.Number, l}
	err := step(ctx, g.Signals, 0, func(ctx context.Context) error {
		err := g.decideNow(ctx, l)
		if errors.Is(err, worker.ErrMoved) {
			return nil
		}
		return err
	})
	if err == nil {
		g.undecided = nil
	}
	return cmp.Or(err, worker.ErrMoved)
}

// decideNow is decide while others hear the signals.
func (g *gang) decideNow(ctx context.Context, l worker.Loss) error {
	err := g.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.Decide(ctx, g.a, l) })
	if errors.Is(err, worker.ErrStopRequested) {
		return ErrTerminated
	}
	return cmp.Or(err, worker.ErrMoved)
}

// drain ends an attempt that has begun, since this worker was asked to end.
func (g *gang) drain(ofMember context.Context) {
	g.decideLast(ofMember, worker.Loss{
		Because: fmt.Sprintf("worker %d (%s) was asked to end", g.m.ID, g.m.Identity), Drained: true,
	})
}

// decideLast is decide of a worker that ends in any case.
func (g *gang) decideLast(ofMember context.Context, l worker.Loss) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ofMember), signalLimit)
	defer cancel()
	if err := g.decideNow(ctx, l); !errors.Is(err, worker.ErrMoved) {
		g.Log.Info("the others may find this worker lost", "reason", err)
	}
}

// start waits until the commands may start. Who is asked to end meanwhile is not waited for any more.
func (g *gang) start(ofCommand context.Context) error {
	g.enter(StageWaiting)
	stop := g.whileWaiting(ofCommand, barrierTitle(znode.StartBarrier), barrierNotice(znode.StartBarrier))
	err := step(ofCommand, g.Signals, 0, func(ctx context.Context) error {
		return g.do(ctx, func(ctx context.Context, m *worker.Member) error { return m.StartAttempt(ctx, g.a) })
	})
	stop()
	if err == nil || errors.Is(err, worker.ErrMoved) || errors.Is(err, errOtherMember) {
		return err
	}
	begun := false
	limited, cancel := context.WithTimeout(context.WithoutCancel(ofCommand), signalLimit)
	defer cancel()
	withdraw := g.do(limited, func(ctx context.Context, m *worker.Member) (err error) {
		begun, err = m.Withdraw(ctx, g.a)
		return err
	})
	switch {
	case withdraw != nil:
		g.Log.Info("the others may wait for this worker", "reason", withdraw)
	case begun && !errors.Is(err, ErrTerminated):
		g.drain(ofCommand)
	}
	return err
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
			err = g.decideNow(g.ctx, worker.Loss{Because: lost.Error(), Lost: lost.IDs})
		}
		switch {
		case errors.Is(err, worker.ErrMoved):
			g.end(worker.ErrMoved)
			return
		case g.m.Context().Err() != nil:
			return
		}
		g.Log.Warn("the attempt is watched again", "job", g.m.Job.Path(), "id", g.m.ID, "error", err)
		zkconn.Pause(g.ctx, retryPause)
	}
}

// lostMember ends the command: at once, or as soon as the worker has joined again.
func (g *gang) lostMember(cause error) {
	if g.stopsOnLoss() {
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
		_ = g.decide(ofMember, worker.Loss{Because: g.says(err.Error())})
		return command.Result{}, err
	}
	defer closeSocket()
	var environ []string
	err = step(g.ctx, g.Signals, 0, func(ctx context.Context) (err error) {
		environ, err = g.environment(ctx)
		return err
	})
	if err != nil {
		return command.Result{}, g.interrupted(ofMember, err)
	}
	e, err := g.runCommand(g.ctx, environ, g.sessionOfCommand(), func() {})
	if err != nil {
		why := worker.Loss{Because: g.says(err.Error())}
		if code := command.StartCode(err); code > 0 {
			why.Exit = &code
		}
		return command.Result{}, g.decide(ofMember, why)
	}
	text := e.String()
	switch {
	case e.Left():
		return command.Result{}, fmt.Errorf("%w: %s", ErrUnkillable, text)
	case e.Told, errors.Is(e.Cause, ErrTerminated):
		if e.Told {
			g.drain(ofMember)
		} else {
			text += ", because " + e.Cause.Error()
		}
		return g.leaves(ofMember, e.Code(), text, &e, e.Cause), nil
	case e.Late != 0 && (e.Cause != nil || e.Completes()):
		g.drain(ofMember)
		return g.leaves(ofMember, 128+int(e.Late), text, &e, e.Cause), nil
	case e.Cause != nil:
		g.Log.Warn("the command has ended with its attempt", "job", g.m.Job.Path(), "id", g.m.ID,
			"attempt", g.a.Number, "end", text, "reason", e.Cause)
		return command.Result{}, g.interrupted(ofMember, e.Cause)
	case e.Completes():
		return command.Result{}, nil
	}
	code := e.Code()
	g.Log.Warn("the command has failed: those of all end", "job", g.m.Job.Path(), "id", g.m.ID, "attempt", g.a.Number,
		"end", text, "restarts_used", g.a.Used, "restarts", g.m.Job.Gang.Restarts)
	why := worker.Loss{Because: g.says(text), Exit: &code}
	if e.Late == 0 {
		err = g.decide(ofMember, why)
		if errors.Is(err, worker.ErrMoved) || errors.Is(err, errOtherMember) {
			return command.Result{}, err
		}
	} else {
		g.decideLast(ofMember, why)
	}
	// The workers were asked to end, or this one was: the exit code is still the command's.
	return g.leaves(ofMember, code, text, &e, err), nil
}

// leaves ends a worker whose command has ended so.
func (g *gang) leaves(
	ofMember context.Context, code int, text string, e *command.End, because error,
) command.Result {
	return command.Result{Code: code, Text: text + "; " + g.leave(ofMember, false, endOf(e), because)}
}

// says is what a decision says of this worker's command.
func (g *gang) says(what string) string {
	return fmt.Sprintf("worker %d (%s): %s", g.m.ID, g.m.Identity, what)
}

// interrupted is what to do after what ended the attempt for this worker: look again, unless the worker is to end.
func (g *gang) interrupted(ofMember context.Context, err error) error {
	switch {
	case errors.As(err, new(stopped)):
		g.drain(ofMember)
	case errors.Is(err, worker.ErrSessionLost):
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
	switch {
	case err == nil || g.a.Finished:
		return g.completed(ofMember), nil
	case errors.Is(err, worker.ErrSessionLost):
		return command.Result{}, errOtherMember
	}
	return command.Result{}, err
}

// openSocket opens the socket of the command of this attempt. After the attempt is over it answers only that. The
// function that it returns closes it, and waits until no request is under way.
func (g *gang) openSocket() (func(), error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	routes := g.routes()
	s.serve(g.ctx, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		g.mu.Lock()
		over := g.closed || g.ctx.Err() != nil
		if !over {
			g.answering.Add(1)
		}
		g.mu.Unlock()
		if over {
			handle(func(http.ResponseWriter, *http.Request) error { return worker.ErrMoved })(w, q)
			return
		}
		defer g.answering.Done()
		routes.ServeHTTP(w, q)
	}), g.Log)
	g.socket.close() // of the attempt before
	g.socket = s
	return func() {
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
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
