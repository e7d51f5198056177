package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// memberRun is one RunMember.
type memberRun struct {
	c           MemberConfig
	takeover    member.Takeover // as the caller wants it
	path        string          // of the command
	null        *os.File
	sessions    sessions
	socket      *socket
	health      *health
	metrics     *memberMetrics
	killAll     chan struct{} // closed when the commands of all duties are to be killed at once
	lost        chan error    // why the command is to be killed at once
	lostCommand bool          // the command was killed for that
	opRuns      opRuns

	mu    sync.Mutex
	state memberState
}

// memberState is what a member tells of itself.
type memberState struct {
	stage   Stage
	member  *member.Member // nil while there is none
	session *zkconn.Session
	holds   map[string]*hold // by duty: what a command does now
	taken   map[string]int64 // the epoch of each duty that is held, also of a cron between two runs
	ready   bool             // the command has said so
	rejoins int
}

func newMemberRun(c MemberConfig) *memberRun {
	r := &memberRun{
		c: c, takeover: c.Member.Takeover, metrics: newMemberMetrics(),
		killAll: make(chan struct{}), lost: make(chan error, 1),
		sessions: sessions{
			connect: c.Connect, timeout: c.SessionTimeout, waiting: c.Member.Waiting, log: c.Log,
			limit: cmp.Or(c.JoinTimeout, time.Duration(group.Default().Timeouts.Join)),
		},
		state: memberState{stage: StageJoining, holds: map[string]*hold{}, taken: map[string]int64{}},
	}
	can := slices.Concat(slices.Collect(maps.Keys(c.Duties)), c.Can)
	slices.Sort(can)
	r.c.Member.Can = slices.Compact(can)
	return r
}

// now is a copy of the state.
func (r *memberRun) now() memberState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.holds, s.taken = maps.Clone(s.holds), maps.Clone(s.taken)
	return s
}

func (r *memberRun) set(change func(*memberState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

func (r *memberRun) enter(stage Stage) { r.set(func(s *memberState) { s.stage = stage }) }

// join makes this process a member, in another session if one is lost on the way, or the answer to a join is.
func (r *memberRun) join(ctx context.Context) error {
	return r.sessions.join(ctx, r.joinOnce, func() {
		r.c.Member.Takeover = member.TakeoverWait // the process that holds the identity may be this one
	})
}

// joinOnce opens a session and joins. If it fails it leaves no session behind.
func (r *memberRun) joinOnce(ctx context.Context) error {
	s, err := r.sessions.open(ctx, r.recordedTimeout)
	if err != nil {
		return err
	}
	c := r.c.Member
	c.NotReady = c.NotReady && !r.now().ready
	c.MaxSilence = (&lease{session: s}).limit()
	m, err := member.Join(ctx, s, c)
	if err != nil {
		r.sessions.close()
		return err
	}
	if timeout := time.Duration(m.Group().Timeouts.Session); timeout != r.sessions.timeout {
		r.sessions.timeout = timeout
		return errors.Join(errOtherTimeout, m.Leave())
	}
	r.set(func(now *memberState) { now.member, now.session = m, s })
	if r.c.Joined != nil {
		r.c.Joined(m)
	}
	return nil
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: member.Join waits for the Record, or says what is wrong with it.
func (r *memberRun) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	root, name := r.c.Member.Root, r.c.Member.Group
	rec, err := readableRecord(ctx, s, group.Kind(), root, name)
	if err != nil || rec == nil {
		return r.sessions.timeout, err
	}
	return time.Duration(group.Of(rec).Timeouts.Session), nil
}

// readableRecord is the Record of a job or a group; nil if there is none that can be read.
func readableRecord(
	ctx context.Context, s *zkconn.Session, kind resource.Kind, root, name string,
) (*resource.Record, error) {
	body, _, err := s.Get(ctx, znode.Record(kind.Name, root, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec, err := znode.DecodeRecordAt(kind, resource.Join(root, name), body)
	if err != nil {
		return nil, nil
	}
	return &rec, nil
}

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

// tick is one attempt of a run of a cron.
func (r *memberRun) tick(ctx context.Context, run member.Run, l *lease, end context.CancelCauseFunc) member.Ended {
	ended := r.runTick(ctx, run, l, end)
	r.metrics.ticks.WithLabelValues(run.Duty, resultName(ended.Result)).Inc()
	return ended
}

func (r *memberRun) runTick(ctx context.Context, run member.Run, l *lease, end context.CancelCauseFunc) member.Ended {
	held, release := r.holding(ctx, run.Hold, l)
	defer release()
	path, ok := r.c.Duties[run.Duty]
	if !ok {
		return member.Ended{Result: ticks.NotStarted, Exit: notFound,
			Because: "this member has no file for it: a cron cannot be done by --can"}
	}
	out, err := openOutput(r.c.Files[1], r.c.Files[2])
	if err != nil {
		return member.Ended{Result: ticks.NotStarted, Exit: cannotRun, Because: err.Error()}
	}
	tick := ""
	if !run.Tick.IsZero() {
		tick = run.Tick.UTC().Format(time.RFC3339)
	}
	environ := r.dutyEnvironment(run.Hold, []string{
		TickVariable + "=" + tick, AttemptVariable + "=" + strconv.Itoa(run.Attempt),
	})
	e, err := r.runDuty(held, path, environ, []*os.File{r.null, out.pipes[0], out.pipes[1]}, end)
	kept := out.close()
	tail := kept.last(tailSize)
	switch {
	case err != nil:
		return member.Ended{Result: ticks.NotStarted, Exit: max(startCode(err), cannotRun), Because: err.Error()}
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
	switch r {
	case ticks.Succeeded:
		return "succeeded"
	case ticks.Unsuccessful:
		return "failed"
	case ticks.Interrupted:
		return "interrupted"
	case ticks.CannotRun:
		return "cannot-run"
	}
	return "not-started"
}
