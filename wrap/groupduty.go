package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/member"
	"muster/resource/group"
	"muster/zkstate/zkconn"
)

// hold is a duty that this member holds.
type hold struct {
	*member.Hold
	lease *lease
	ctx   context.Context // ends, with the cause, when what does the duty must stop
	drain time.Duration
	users sync.WaitGroup // commands of "muster duty"
}

// leaseOver is the cause when the lease is: the commands of duties have been asked to end. Only the ends of runs are
// written then; the session ends.
type leaseOver struct{ why error }

func (e *leaseOver) Error() string   { return e.why.Error() }
func (e *leaseOver) Unwrap() []error { return []error{member.ErrLeaving, e.why} }

// errOtherType means that a duty is declared with another type now.
var errOtherType = fmt.Errorf("%w: it has another type now", member.ErrHandOver)

// serve does the duties of one membership until ctx or the membership ends, and returns why. No command of a duty runs
// then.
func (r *memberRun) serve(ctx context.Context, m *member.Member, s *zkconn.Session) error {
	ofDuties, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(m.Context(), func() { end(context.Cause(m.Context())) })()
	l := &lease{session: s, killed: r.killAll}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := l.watch(ofDuties); err != nil {
			end(&leaseOver{err})
		}
	})
	tasks.Go(func() {
		if m.StopRequested(ofDuties) == nil {
			end(fmt.Errorf("%w: %w", member.ErrLeaving, ErrTerminated))
		}
	})
	// Duties are given back after ofDuties has ended.
	ofWatch, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer endWatch()
	events := m.Events(ofWatch)
	watcher.Go(func() { r.watch(events) })
	for _, duty := range r.c.Member.Can {
		tasks.Go(func() {
			if err := r.host(ofDuties, m, l, duty, end); err != nil {
				end(err)
			}
		})
	}
	<-ofDuties.Done()
	cause := context.Cause(ofDuties)
	if r.c.OnLoss == LossStop && ctx.Err() == nil && !errors.Is(cause, ErrTerminated) {
		r.lost <- cause
	}
	tasks.Wait()
	return cause
}

// host does a duty whenever the assigner gives it to this member. It returns an error if it cannot go on. end ends all
// duties.
func (r *memberRun) host(
	ctx context.Context, m *member.Member, l *lease, duty string, end context.CancelCauseFunc,
) error {
	for {
		kind, ok := awaitType(ctx, m, duty)
		if !ok {
			return nil
		}
		ofType, stop := context.WithCancelCause(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() {
			for g := range m.Declared(ofType) {
				if d, there := g.Duty(duty); there && d.Type != kind {
					stop(errOtherType)
				}
			}
		})
		var err error
		if kind == group.Cron {
			err = m.RunTicks(ofType, duty, func(ctx context.Context, run member.Run) member.Ended {
				return r.tick(ctx, run, l, end)
			})
		} else {
			err = m.Lead(ofType, duty, func(ctx context.Context, h *member.Hold) error { return r.do(ctx, h, l, end) })
		}
		stop(nil)
		watcher.Wait()
		if ctx.Err() != nil || err != nil && !errors.Is(err, errOtherType) {
			return err
		}
	}
}

// awaitType waits until the duty is declared. ok is false when ctx or the membership has ended.
func awaitType(ctx context.Context, m *member.Member, duty string) (t group.Type, ok bool) {
	for g := range m.Declared(ctx) {
		if d, there := g.Duty(duty); there {
			return d.Type, true
		}
	}
	return "", false
}

// holding makes the hold known to the socket and the health server until the function it returns is called.
func (r *memberRun) holding(ctx context.Context, h *member.Hold, l *lease) (*hold, func()) {
	drain := time.Duration(r.now().member.Group().Timeouts.Drain)
	held := &hold{Hold: h, lease: l, ctx: ctx, drain: max(drain, time.Millisecond)}
	r.set(func(s *memberState) { s.holds[h.Duty] = held })
	return held, func() { r.set(func(s *memberState) { delete(s.holds, h.Duty) }) }
}

// do is the duty of a leader. An error that is not ctx's is the blame.
func (r *memberRun) do(ctx context.Context, h *member.Hold, l *lease, end context.CancelCauseFunc) error {
	held, release := r.holding(ctx, h, l)
	defer release()
	path, ok := r.c.Duties[h.Duty]
	if !ok {
		return r.leaveToCommand(held, release, end)
	}
	files := []*os.File{r.null, r.c.Files[1], r.c.Files[2]}
	e, err := r.runDuty(held, path, r.dutyEnvironment(h, nil), files, end)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case e.Code != 0:
		return errors.New(e.Text)
	}
	return nil
}

// leaveToCommand holds a duty that the command does itself. At the end it waits for the commands of "muster duty",
// which end when they are told to.
func (r *memberRun) leaveToCommand(held *hold, release func(), end context.CancelCauseFunc) error {
	<-held.ctx.Done()
	release() // nobody may start anything
	done := make(chan struct{})
	go func() {
		defer close(done)
		held.users.Wait()
	}()
	select {
	case <-done:
	case <-time.After(held.drain + orderLimit):
		end(fmt.Errorf("%w: %s: a command of muster duty goes on", errUnkillableDuty, held.Duty))
	}
	return context.Cause(held.ctx)
}

// runDuty runs a command of a duty under a guard. The error means that it cannot be run.
func (r *memberRun) runDuty(
	held *hold, path string, environ []string, files []*os.File, end context.CancelCauseFunc,
) (guardEnd, error) {
	if err := held.lease.check(); err != nil {
		end(&leaseOver{err})
		return guardEnd{Text: err.Error(), Stopped: true}, nil
	}
	g, err := startGuarded(held.ctx, r.c.Guard, held.lease, launch{path, []string{path}, environ, r.c.Dir, files, false})
	if err != nil {
		return guardEnd{}, err
	}
	e := g.run(held.ctx, held.lease, held.stopAs)
	switch {
	case e.Left:
		end(fmt.Errorf("%w: %s: %s", errUnkillableDuty, held.Duty, e.Text))
	case e.Overdue:
		end(&leaseOver{fmt.Errorf("%w: %s: %s", member.ErrSessionLost, held.Duty, e.Text)})
	}
	return e, nil
}

// stopAs is how a command is ended when its context ends with this cause. What has lost its duty is killed at once,
// because somebody else may have it.
func (h *hold) stopAs(cause error) order {
	var over *leaseOver
	switch {
	case errors.As(cause, &over): // the guard has the deadlines
		return h.lease.order()
	case errors.Is(cause, member.ErrHandOver), errors.Is(cause, member.ErrLeaving),
		errors.Is(cause, member.ErrTimeout):
		return order{End: h.drain}
	}
	return order{Now: true}
}

// environment is what a command is told: Config's, with what it should know about its member.
func (r *memberRun) environment() []string {
	c := r.c.Member
	return setVariables(r.c.Environ, [][2]string{
		{GroupVariable, c.Group}, {RootVariable, c.Root}, {VersionVariable, c.Version},
		{IdentityVariable, c.Identity}, {AddressVariable, c.Address}, {SocketVariable, r.socket.path},
		{DutyVariable, ""}, {EpochVariable, ""}, {TickVariable, ""}, {AttemptVariable, ""},
	})
}

// dutyEnvironment is what a command of a duty is told besides.
func (r *memberRun) dutyEnvironment(h *member.Hold, more []string) []string {
	environ := append(r.environment(),
		DutyVariable+"="+h.Duty, EpochVariable+"="+strconv.FormatInt(h.Epoch, 10))
	return append(environ, more...)
}

// The variables that the commands of a member are given, besides IdentityVariable and SocketVariable. Only commands of
// duties have the last four, and only runs of a cron the last two.
const (
	GroupVariable   = "MUSTER_GROUP"
	RootVariable    = "MUSTER_ROOT"
	VersionVariable = "MUSTER_VERSION"
	AddressVariable = "MUSTER_ADDRESS" // at which followers reach the member, or others the worker; empty: nobody said
	DutyVariable    = "MUSTER_DUTY"
	EpochVariable   = "MUSTER_EPOCH"
	TickVariable    = "MUSTER_TICK" // RFC 3339, in UTC; empty for a run that somebody asked for
	AttemptVariable = "MUSTER_ATTEMPT"
)

// ReadDuties finds the commands of duties in a directory: an executable file for each, called as the duty. Files whose
// names begin with a dot are nothing. warnings say what else is not a duty, and why.
func ReadDuties(dir string) (files map[string]string, warnings []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	files = map[string]string{}
	for _, entry := range entries {
		name, path := entry.Name(), filepath.Join(dir, entry.Name())
		if strings.HasPrefix(name, ".") {
			continue
		}
		info, err := os.Stat(path) // follows links
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%s is no duty of this member: %v", path, err))
		case !info.Mode().IsRegular():
			warnings = append(warnings, fmt.Sprintf("%s is no duty of this member: it is not a file", path))
		case info.Mode()&0o111 == 0:
			warnings = append(warnings, fmt.Sprintf("%s is no duty of this member: it is not executable", path))
		case group.CheckDutyName(name) != nil:
			warnings = append(warnings, fmt.Sprintf("%s is no duty of this member: %v", path, group.CheckDutyName(name)))
		default:
			files[name] = path
		}
	}
	slices.Sort(warnings)
	return files, warnings, nil
}
