package wrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/wrap/command"
	"muster/wrap/lines"
	"muster/zkstate/zkconn"
)

// MemberConfig says which group to join as whom, and what to run.
type MemberConfig struct {
	// Life has the command of the member, which lives as long as that; without one it lives until a signal. Dir and Files
	// are also for the commands of duties.
	Life

	// Member says who joins which group. RunMember sets its Can. With NotReady the member is given no duty until
	// "muster ready" in its command.
	Member member.Config
	Duties map[string]string // the file to execute for each duty that has one
	Can    []string          // the duties that the command does itself

	OnLoss OnLoss                 // what becomes of the command; those of duties are always ended
	Joined func(m *member.Member) // unless nil, called after each join
}

// memberRun is one RunMember.
type memberRun struct {
	seated[*member.Member]
	c           MemberConfig
	ticks       *prometheus.CounterVec
	takeovers   prometheus.Histogram
	lostCommand bool // the command was killed for that

	// What note changes.
	holds     map[string]*hold  // by duty: what a command does now
	taken     map[string]int64  // the epoch of each duty that is held, also of a cron between two runs
	saysReady bool              // the command has said so
	opRuns    map[string]*opRun // by their random names
}

// RunMember joins a group, does what the assigner gives it, runs the command, and leaves. When the session is lost it
// ends the commands of duties and joins as a new member. The end of ctx is like SIGTERM.
func RunMember(ctx context.Context, c MemberConfig) command.Result {
	can := slices.Concat(slices.Collect(maps.Keys(c.Duties)), c.Can)
	slices.Sort(can)
	c.Member.Can = slices.Compact(can)
	r := &memberRun{
		c: c, ticks: newTicks(), takeovers: newTakeovers(),
		holds: map[string]*hold{}, taken: map[string]int64{}, opRuns: map[string]*opRun{},
	}
	r.seated = seated[*member.Member]{
		life: newLife(c.Life, place{
			kind: group.Kind(), root: c.Member.Root, name: c.Member.Group, identity: c.Member.Identity, who: "member",
			declared:  func(rec *resource.Record) resource.Duration { return group.Of(rec).Timeouts.Session },
			joinLimit: group.Default().Timeouts.Join, waiting: c.Member.Waiting,
		}),
		take: r.take, joined: c.Joined, work: r.doDuties,
		again:   func(error, bool) bool { return c.OnLoss != LossStop },
		refused: func(err error) bool { return errors.Is(err, member.ErrHeld) && c.Member.FailHeld },
	}
	return r.run(ctx, r.healthOf(), true, inTime(r.JoinTimeout, r.join), r.asMember)
}

func (r *memberRun) take(
	ctx context.Context, s *zkconn.Session, again bool,
) (m *member.Member, session resource.Duration, err error) {
	c := r.c.Member
	r.note(func() { c.NotReady = c.NotReady && !r.saysReady })
	c.MaxSilence = (&command.Lease{Session: s}).Limit()
	c.FailHeld = c.FailHeld && !again
	if m, err = member.Join(ctx, s, c); err == nil {
		session = m.Group().Timeouts.Session
	}
	return m, session, err
}

// epochOf is the epoch under which a duty is held.
func (r *memberRun) epochOf(duty string) (epoch int64, held bool) {
	r.note(func() { epoch, held = r.taken[duty] })
	return epoch, held
}

// asMember is everything after the first join. err, unless nil, came up during the join: then the member leaves.
func (r *memberRun) asMember(ctx context.Context, err error) command.Result {
	ofMember, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	var kept error
	done := make(chan struct{})
	go func() {
		defer close(done)
		kept = r.keep(ofMember)
	}()
	r.socket.serve(context.WithoutCancel(ctx), r.routes(), r.Log)
	var result command.Result
	switch {
	case err != nil:
		result = notStarted(err)
	case r.path == "":
		r.enter(StageRunning)
		result = notStarted(step(ctx, r.Signals, 0, func(ctx context.Context) error {
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
	if kept != nil && (result.Err == nil && errors.Is(kept, ErrUnkillable) || r.path != "" && r.lostCommand) {
		result.Code, result.Err = 0, kept
	}
	result.Text += r.c.Member.Identity + " of " + resource.Join(r.c.Member.Root, r.c.Member.Group) + " has left"
	return result
}

// awaitEnd waits until all duties are given back. A signal meanwhile kills their commands at once, unless it is an
// echo.
func (r *memberRun) awaitEnd(done <-chan struct{}) {
	begun := time.Now()
	for {
		select {
		case <-done:
			return
		case sig := <-r.Signals:
			if command.AsksToEnd(sig) && time.Since(begun) > command.Echo {
				r.kill()
			}
		}
	}
}

// command runs the command to its end. asked is called when it is asked to end.
func (r *memberRun) command(ctx context.Context, asked func()) command.Result {
	e, err := r.runCommand(ctx, r.environment(), nil, asked)
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	r.lostCommand = e.Killed && e.Cause != nil
	return command.Result{Code: e.Code(), Text: e.String() + "; "}
}

// hold is a duty that this member holds.
type hold struct {
	*member.Hold
	lease *command.Lease
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

// doDuties does the duties of one membership.
func (r *memberRun) doDuties(ctx context.Context, end context.CancelCauseFunc, m *member.Member) error {
	l := &command.Lease{Session: r.session.Load(), Killed: r.killAll.Done()}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := l.Watch(ctx); err != nil {
			end(&leaseOver{err})
		}
	})
	// Duties are given back after ctx has ended.
	ofWatch, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer endWatch()
	events := m.Events(ofWatch)
	watcher.Go(func() { r.watch(events) })
	for _, duty := range r.c.Member.Can {
		tasks.Go(func() {
			if err := r.host(ctx, m, l, duty, end); err != nil {
				end(err)
			}
		})
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	//nolint:errorlint // itself: a leaseOver is one, too
	leaves := cause == member.ErrLeaving || errors.Is(cause, ErrTerminated)
	if r.c.OnLoss == LossStop && !leaves {
		r.lost <- cause
	}
	tasks.Wait()
	return nil
}

// host does a duty whenever the assigner gives it to this member. It returns an error if it cannot go on. end ends all
// duties.
func (r *memberRun) host(
	ctx context.Context, m *member.Member, l *command.Lease, duty string, end context.CancelCauseFunc,
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
				ended := r.tick(ctx, run, l, end)
				r.ticks.WithLabelValues(run.Duty, resultName(ended.Result)).Inc()
				return ended
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
func (r *memberRun) holding(ctx context.Context, h *member.Hold, l *command.Lease) (*hold, func()) {
	m, _ := r.now()
	drain := time.Duration(m.Group().Timeouts.Drain)
	held := &hold{Hold: h, lease: l, ctx: ctx, drain: max(drain, time.Millisecond)}
	r.note(func() { r.holds[h.Duty] = held })
	return held, func() { r.note(func() { delete(r.holds, h.Duty) }) }
}

// do is the duty of a leader. An error that is not ctx's is the blame.
func (r *memberRun) do(ctx context.Context, h *member.Hold, l *command.Lease, end context.CancelCauseFunc) error {
	held, release := r.holding(ctx, h, l)
	defer release()
	path, ok := r.c.Duties[h.Duty]
	if !ok {
		return r.leaveToCommand(held, release, end)
	}
	files := []*os.File{r.null, r.Files[1], r.Files[2]}
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
	case <-time.After(held.drain + command.OrderLimit):
		end(fmt.Errorf("%w: %s: a command of muster duty goes on", ErrUnkillable, held.Duty))
	}
	return context.Cause(held.ctx)
}

// runDuty runs a command of a duty under a guard. The error means that it cannot be run.
func (r *memberRun) runDuty(
	held *hold, path string, environ []string, files []*os.File, end context.CancelCauseFunc,
) (command.GuardEnd, error) {
	over := func(err error) (command.GuardEnd, error) {
		err = &leaseOver{err}
		end(err)
		return command.GuardEnd{}, err
	}
	if err := held.lease.Check(); err != nil {
		return over(err)
	}
	l := command.Launch{Path: path, Argv: []string{path}, Environ: environ, Dir: r.Dir, Files: files}
	g, err := command.StartGuarded(held.ctx, r.Guard, held.lease, l)
	if err != nil {
		if late := held.lease.Check(); late != nil { // then the guard starts nothing
			return over(late)
		}
		return command.GuardEnd{}, err
	}
	e := g.Run(held.ctx, held.lease, held.stopAs)
	switch {
	case e.Left:
		end(fmt.Errorf("%w: %s: %s", ErrUnkillable, held.Duty, e.Text))
	case e.Overdue:
		end(&leaseOver{fmt.Errorf("%w: %s: %s", member.ErrSessionLost, held.Duty, e.Text)})
	}
	return e, nil
}

// stopAs is how a command is ended when its context ends with this cause. What has lost its duty is killed at once,
// because somebody else may have it.
func (h *hold) stopAs(cause error) command.Order {
	var over *leaseOver
	switch {
	case errors.As(cause, &over): // the guard has the deadlines
		return h.lease.Order()
	case errors.Is(cause, member.ErrHandOver), errors.Is(cause, member.ErrLeaving),
		errors.Is(cause, member.ErrTimeout):
		return command.Order{End: h.drain}
	}
	return command.Order{Now: true}
}

// environment is what a command is told: Config's, with what it should know about its member.
func (r *memberRun) environment() []string {
	c := r.c.Member
	return command.SetVariables(r.Environ, [][2]string{
		{GroupVariable, c.Group}, {RootVariable, c.Root}, {VersionVariable, c.Version},
		{IdentityVariable, c.Identity}, {AddressVariable, c.Address}, {SocketVariable, r.socket.path},
		{DutyVariable, ""}, {EpochVariable, ""}, {TickVariable, ""}, {lines.AttemptVariable, ""},
	})
}

// dutyEnvironment is what a command of a duty is told besides.
func (r *memberRun) dutyEnvironment(h *member.Hold, more []string) []string {
	environ := append(r.environment(),
		DutyVariable+"="+h.Duty, EpochVariable+"="+strconv.FormatInt(h.Epoch, 10))
	return append(environ, more...)
}

// The variables that the commands of a member are given, besides IdentityVariable and SocketVariable. Only commands of
// duties have the last three, and only runs of a cron the last one and lines.AttemptVariable.
const (
	GroupVariable   = "MUSTER_GROUP"
	RootVariable    = "MUSTER_ROOT"
	VersionVariable = "MUSTER_VERSION"
	AddressVariable = "MUSTER_ADDRESS" // at which followers reach the member, or others the worker; empty: nobody said
	DutyVariable    = "MUSTER_DUTY"
	EpochVariable   = "MUSTER_EPOCH"
	TickVariable    = "MUSTER_TICK" // RFC 3339, in UTC; empty for a run that somebody asked for
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
		if err := checkDutyFile(name, path); err != nil {
			warnings = append(warnings, fmt.Sprintf("%s is no duty of this member: %v", path, err))
			continue
		}
		files[name] = path
	}
	slices.Sort(warnings)
	return files, warnings, nil
}

func checkDutyFile(name, path string) error {
	info, err := os.Stat(path) // follows links
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a file")
	case info.Mode()&0o111 == 0:
		return errors.New("it is not executable")
	}
	return group.CheckDutyName(name)
}

// tick is one attempt of a run of a cron.
func (r *memberRun) tick(
	ctx context.Context, run member.Run, l *command.Lease, end context.CancelCauseFunc,
) member.Ended {
	held, release := r.holding(ctx, run.Hold, l)
	defer release()
	path, ok := r.c.Duties[run.Duty]
	if !ok {
		return member.Ended{Result: ticks.NotStarted, Exit: command.NotFound,
			Because: "this member has no file for it: a cron cannot be done by --can"}
	}
	out, err := command.OpenOutput(r.null, r.Files[1], r.Files[2])
	if err != nil {
		return member.Ended{Result: ticks.NotStarted, Exit: command.CannotRun, Because: err.Error()}
	}
	tick := ""
	if !run.Tick.IsZero() {
		tick = run.Tick.UTC().Format(time.RFC3339)
	}
	environ := r.dutyEnvironment(run.Hold, []string{
		TickVariable + "=" + tick, lines.AttemptVariable + "=" + strconv.Itoa(run.Attempt),
	})
	e, err := r.runDuty(held, path, environ, out.Files, end)
	kept := out.Close()
	tail := kept.Last(command.TailSize)
	var over *leaseOver
	switch {
	case errors.As(err, &over):
		return member.Ended{Result: ticks.Interrupted, Exit: member.NoExit, Because: err.Error()}
	case err != nil:
		code := max(command.StartCode(err), command.CannotRun)
		return member.Ended{Result: ticks.NotStarted, Exit: code, Because: err.Error()}
	case e.Stopped && errors.Is(context.Cause(ctx), member.ErrTimeout):
		return member.Ended{Result: ticks.Unsuccessful, Exit: e.Code, Tail: tail, Because: e.Text}
	case e.Stopped:
		return member.Ended{Result: ticks.Interrupted, Exit: e.Code, Tail: tail, Because: e.Text}
	}
	ended := member.Ended{Result: ticks.ResultOf(e.Code), Exit: e.Code, Tail: tail, ByItself: true}
	if ended.Result != ticks.Succeeded {
		ended.Because = e.Text
	}
	return ended
}

// resultName is the result in a metric.
func resultName(r ticks.Result) string {
	return map[ticks.Result]string{
		ticks.Succeeded: "succeeded", ticks.Unsuccessful: "failed", ticks.Interrupted: "interrupted",
		ticks.CannotRun: "cannot-run", ticks.NotStarted: "not-started",
	}[r]
}
