package wrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"muster/member"
	"muster/resource"
	"muster/zkstate/zkconn"
)

// MemberConfig says which group to join as whom, and what to run.
type MemberConfig struct {
	// Member says who joins which group. RunMember sets its Can. With NotReady the member is given no duty until
	// "muster ready" in its command.
	Member member.Config
	Duties map[string]string // the file to execute for each duty that has one
	Can    []string          // the duties that the command does itself

	Command []string   // with its arguments; the member lives as long as it. Without one it lives until a signal
	Dir     string     // where the command and those of duties run; empty is where this process does
	Environ []string   // NAME=value; RunMember adds its own. See WithoutCredentials
	Files   []*os.File // the standard streams

	OnLoss      OnLoss        // what becomes of the command; those of duties are always ended
	JoinTimeout time.Duration // for ZooKeeper and the join; 0 leaves it to the group
	Grace       time.Duration // for a command that was asked to end
	HTTP        string        // address of the health server; empty: none. Port 0 is a free port
	Guard       []string      // the command line that calls Guard with a path and arguments

	Serving func(addr net.Addr)    // unless nil, told where the health server listens
	Joined  func(m *member.Member) // unless nil, called after each join

	// Connect and SessionTimeout are as in Config.
	Connect        func(ctx context.Context, sessionTimeout time.Duration) (*zkconn.Session, error)
	SessionTimeout time.Duration

	Signals <-chan os.Signal // see Signals
	Log     *slog.Logger
}

// errUnkillableDuty means that something that a duty has started could not be killed. The member must end.
var errUnkillableDuty = errors.New("a command of a duty cannot be killed")

// RunMember joins a group, does what the assigner gives it, runs the command, and leaves. When the session is lost it
// ends the commands of duties and joins as a new member. The end of ctx is like SIGTERM.
func RunMember(ctx context.Context, c MemberConfig) Result {
	r := newMemberRun(c)
	defer r.sessions.close()
	err := r.open()
	defer r.close()
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	err = step(ctx, c.Signals, 0, inTime(c.JoinTimeout, r.join))
	if r.now().member == nil {
		return notStarted(err)
	}
	return r.asMember(ctx, err)
}

// open does first what may fail for reasons of this machine.
func (r *memberRun) open() (err error) {
	if len(r.c.Command) > 0 {
		if r.path, err = lookUp(r.c.Command[0]); err != nil {
			return err
		}
	}
	if r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if r.socket, err = openSocket(); err != nil {
		return err
	}
	if r.c.HTTP != "" {
		r.health, err = openHealth(r.c.HTTP, r.healthOf(), r.c.Log)
	}
	if r.health != nil && r.c.Serving != nil {
		r.c.Serving(r.health.addr)
	}
	return err
}

func (r *memberRun) close() {
	if r.socket != nil {
		r.socket.close()
	}
	if r.health != nil {
		r.health.close()
	}
	if r.null != nil {
		_ = r.null.Close()
	}
}

// asMember is everything after the first join. err, unless nil, came up during the join: then the member leaves.
func (r *memberRun) asMember(ctx context.Context, err error) Result {
	ofMember, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	var kept error
	done := make(chan struct{})
	go func() {
		defer close(done)
		kept = r.keep(ofMember)
	}()
	r.socket.serve(context.WithoutCancel(ctx), r.routes(), r.c.Log)
	var result Result
	switch {
	case err != nil:
		result = notStarted(err)
	case r.path == "":
		r.enter(StageRunning)
		result = notStarted(step(ctx, r.c.Signals, 0, func(ctx context.Context) error {
			select {
			case <-done:
				return kept
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
	default:
		ofCommand, stop := context.WithCancelCause(ctx)
		go func() {
			<-done
			stop(kept) // nil, after leave, is nothing: the command has ended or was asked to
		}()
		result = r.command(ofCommand, func() { leave(member.ErrLeaving) })
	}
	r.enter(StageLeaving)
	leave(member.ErrLeaving)
	r.awaitEnd(done)
	if kept != nil && (result.Err == nil && errors.Is(kept, errUnkillableDuty) || r.path != "" && r.lostCommand) {
		result.Code, result.Err = 0, kept
	}
	result.Text += r.c.Member.Identity + " of " + resource.Join(r.c.Member.Root, r.c.Member.Group) + " has left"
	return result
}

// awaitEnd waits until all duties are given back. A signal meanwhile kills their commands at once, unless it is an
// echo.
func (r *memberRun) awaitEnd(done <-chan struct{}) {
	begun, killed := time.Now(), false
	for {
		select {
		case <-done:
			return
		case sig := <-r.c.Signals:
			if asksToEnd(sig) && !killed && time.Since(begun) > Echo {
				killed = true
				close(r.killAll)
			}
		}
	}
}

// command runs the command to its end. asked is called when it is asked to end.
func (r *memberRun) command(ctx context.Context, asked func()) Result {
	c, err := start(launch{r.path, r.c.Command, r.environment(), r.c.Dir, r.c.Files, false})
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	r.enter(StageRunning)
	s := supervisor{command: c, grace: r.c.Grace, echo: Echo, lost: r.lost, onAsked: func() {
		r.enter(StageDraining)
		asked()
	}}
	e := s.run(ctx, r.c.Signals)
	takeTerminal(r.c.Files)
	r.lostCommand = e.killed && e.cause != nil
	return Result{Code: e.code(), Text: e.String() + "; "}
}

// keep does the duties of this membership, and of the next one whenever it is lost. It returns nil when ctx ends, and
// otherwise why there will be no other membership.
func (r *memberRun) keep(ctx context.Context) error {
	for {
		now, begun := r.now(), time.Now()
		cause := r.serve(ctx, now.member, now.session)
		r.set(func(s *memberState) { s.member, s.session = nil, nil })
		if err := now.member.Leave(); err != nil {
			r.c.Log.Warn("the end of the session", "error", err)
		}
		switch {
		case errors.Is(cause, errUnkillableDuty):
			return cause
		case ctx.Err() != nil:
			return nil
		case errors.Is(cause, ErrTerminated):
			return ErrTerminated
		case r.c.OnLoss == LossStop:
			return cause
		}
		// A membership that ends as it begins, such as for a znode that it may not write, must not do so all the time.
		select {
		case <-time.After(retryPause - time.Since(begun)):
		case <-ctx.Done():
			return nil
		}
		if err := r.joinAgain(ctx, cause); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// joinAgain joins as a new member, until that succeeds or can never succeed.
func (r *memberRun) joinAgain(ctx context.Context, cause error) error {
	path := resource.Join(r.c.Member.Root, r.c.Member.Group)
	r.c.Log.Warn("the membership is lost; joining again",
		"group", path, "identity", r.c.Member.Identity, "reason", cause)
	for {
		err := r.join(ctx)
		switch {
		case err == nil:
			r.set(func(s *memberState) { s.rejoins++ })
			r.c.Log.Warn("joined again as a new member", "group", path, "identity", r.c.Member.Identity)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, member.ErrHeld) && r.takeover == member.TakeoverFail:
			return err
		}
		r.c.Log.Warn("joining again", "group", path, "identity", r.c.Member.Identity, "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
