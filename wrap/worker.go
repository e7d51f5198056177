package wrap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/worker"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Run joins, runs the command, and leaves or completes. The end of ctx is like SIGTERM.
func Run(ctx context.Context, c Config) command.Result {
	r := &run{
		life: newLife(c.Life, place{
			kind: job.Kind(), root: c.Worker.Root, name: c.Worker.Job, identity: c.Worker.Identity, who: "worker",
			declared:  func(rec *resource.Record) resource.Duration { return job.Of(rec).Timeouts.Session },
			joinLimit: job.DefaultJoinTimeout, waiting: c.Worker.Waiting,
		}),
		c: c, begun: time.Now(), barriers: newBarriers(), changed: make(chan struct{}),
	}
	return r.run(ctx, healthOf{info: r.info, counts: []prometheus.Collector{r.barriers}}, true,
		r.join, r.asMembers)
}

// run is one Run: this process's place in a job over all its sessions. It is one Member after the other, until the last
// one has left or completed, or the place is lost for good. Everything but join needs a first Member.
type run struct {
	*life
	c        Config // join completes its Worker
	begun    time.Time
	barriers *prometheus.HistogramVec

	roll        []byte // as JSON; nil until the command needs it
	rollVersion int64
	overAttempt int // of a gang, that this process has seen the end of
	toldAttempt int // the newest that it has told of
	undecided   *undecided

	// What set changes.
	member  *worker.Member // the newest; nil before the join
	over    error          // why there will be no other Member
	changed chan struct{}  // closed when any of these changes, or isMember or rejoins
}

// info is the labels of the info metric, once there is a Member.
func (r *run) info() []string {
	m, _, _ := r.now()
	if m == nil {
		return nil
	}
	return []string{
		"identity", m.Identity, "id", strconv.Itoa(m.ID), "workers", strconv.Itoa(m.Job.Workers),
		"generation", m.Generation,
	}
}

// asMembers is everything after the join. If a spare takes the id of this process, it joins again, as a spare itself.
func (r *run) asMembers(ctx context.Context, err error) command.Result {
	for {
		result := r.asMember(ctx, err)
		if !errors.Is(result.Err, worker.ErrReplaced) {
			return result
		}
		r.Log.Warn("joining again, for another id", "reason", result.Err)
		r.closeSession()
		r.set(func() { r.member, r.over = nil, nil })
		r.overAttempt, r.toldAttempt, r.undecided, r.roll, r.rollVersion = 0, 0, nil, nil, 0
		err = step(ctx, r.Signals, 0, r.join)
		if m, _, _ := r.now(); m == nil {
			return notStarted(err)
		}
	}
}

// asMember is the life of one member. err, unless nil, came up during the join: then the worker leaves.
func (r *run) asMember(ctx context.Context, err error) command.Result {
	ofMember, end := context.WithCancel(context.WithoutCancel(ctx))
	ofCommand, stop := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()
	watchers.Go(func() {
		if err := r.keep(ofMember); err != nil {
			if r.stopsOnLoss() {
				select {
				case r.lost <- err:
				default: // it is told already
				}
			}
			stop(err)
		}
	})
	watchers.Go(func() {
		err := r.do(ofCommand, func(ctx context.Context, m *worker.Member) error {
			return m.StopRequested(ctx)
		})
		switch {
		case err == nil:
			stop(ErrTerminated)
		case ofCommand.Err() == nil && !errors.Is(err, context.Canceled): // not when it has left or completed
			r.Log.Warn("requests to stop are not heard any more", "reason", err)
		}
	})
	defer stop(nil)
	if err == nil && r.isGang() {
		return r.runGang(ofCommand, ofMember)
	}
	r.socket.serve(ofMember, r.routes(), r.Log)
	var environ []string
	if err == nil {
		err = step(ofCommand, r.Signals, 0, func(ctx context.Context) (err error) {
			environ, err = r.awaitStart(ctx)
			return err
		})
	}
	if err == nil && r.path == "" {
		r.enter(StageRunning)
		err = step(ofCommand, r.Signals, 0, func(ctx context.Context) error { return r.do(ctx, r.c.Idle) })
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
func (r *run) command(ofCommand, ofMember context.Context, environ []string) command.Result {
	e, err := r.runCommand(ofCommand, environ, r.sessionOfCommand(), func() {})
	if err != nil {
		code := command.StartCode(err)
		return command.Result{Code: code, Err: err, Text: r.leave(ofMember, false, worker.End{Exit: &code}, err)}
	}
	text := e.String()
	if errors.Is(e.Cause, ErrTerminated) {
		text += ", because " + e.Cause.Error()
	}
	text += "; " + r.leave(ofMember, e.Completes(), endOf(&e), e.Cause)
	_, _, lost := r.now()
	//nolint:errorlint // this error, not one like it: not if it is found only while it leaves
	if lost != nil && lost == e.Cause {
		return command.Result{Err: e.Cause, Text: text}
	}
	return command.Result{Code: e.Code(), Text: text}
}

// stopsOnLoss reports whether the command ends at once if the session is lost.
func (r *run) stopsOnLoss() bool { return r.c.OnLoss == LossStop || r.c.OnLoss == "" && r.isGang() }

// sessionOfCommand is the session that the command may not outlive; nil: it may.
func (r *run) sessionOfCommand() *zkconn.Session {
	if !r.stopsOnLoss() {
		return nil
	}
	return r.session.Load()
}

// notStarted is the Result of a process that has no command whose exit code counts.
func notStarted(err error) command.Result {
	var by stopped
	switch {
	case errors.As(err, &by):
		return command.Result{Code: 128 + int(by), Err: err}
	case errors.Is(err, ErrTerminated):
		return command.Result{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return command.Result{Err: err}
}

// awaitStart waits until the command may start, and returns the command's environment.
func (r *run) awaitStart(ctx context.Context) ([]string, error) {
	r.enter(StageWaiting)
	if r.c.Start != StartJoined {
		limited := ctx
		if r.JoinTimeout > 0 {
			var cancel context.CancelFunc
			limited, cancel = context.WithDeadline(ctx, r.begun.Add(r.JoinTimeout))
			defer cancel()
		}
		if err := r.waitAll(limited, 0); err != nil {
			return nil, err
		}
	}
	if r.c.Start == StartBarrier {
		if err := r.startBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if r.path == "" {
		return nil, nil
	}
	return r.environment(ctx)
}

// How long a worker tries to leave or complete. Completing gets longer: the job waits for it, while a worker that
// leaves is gone with its session anyway. After a signal it tries no longer than signalLimit.
const (
	leaveLimit    = 5 * time.Second
	completeLimit = 10 * time.Second // and a session timeout, in which an old session ends
	signalLimit   = 2 * time.Second
)

// leave completes if the command has ended well by itself, and leaves otherwise; because is what stopped it, or nil. It
// returns what became of the membership.
func (r *run) leave(ctx context.Context, completes bool, end worker.End, because error) string {
	r.enter(StageLeaving)
	m, _, _ := r.now()
	limit, leave := leaveLimit, func(ctx context.Context, m *worker.Member) error { return m.Leave(ctx, end) }
	if completes {
		limit = completeLimit + time.Duration(m.Job.Timeouts.Session)
		leave = func(ctx context.Context, m *worker.Member) error { return m.Complete(ctx, 0) }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	err := step(ctx, r.Signals, signalLimit, func(ctx context.Context) error { return r.do(ctx, leave) })
	who := fmt.Sprintf("worker %d (%s) of %s", m.ID, m.Identity, m.Job.Path())
	switch {
	case errors.Is(err, worker.ErrFenced):
		return who + " was no member any more"
	case errors.Is(err, worker.ErrUnfinished):
		r.Log.Warn("the job is left as it is", "job", m.Job.Path(), "id", m.ID, "error", err)
		return fmt.Sprintf("%s has %v", who, worker.ErrUnfinished)
	case err != nil && !errors.Is(err, worker.ErrDone):
		r.Log.Warn("leaving is not confirmed", "job", m.Job.Path(), "id", m.ID, "error", err)
		return fmt.Sprintf("it is not known whether ZooKeeper learnt that %s has ended: %v", who, err)
	case completes:
		return who + " has completed"
	case errors.Is(because, ErrTerminated), errors.Is(because, worker.ErrGangFailed): // nobody joins any more
		return who + " has left"
	}
	return who + " has left, and may come back"
}

// The variables that a command is given, besides AddressVariable. Launchers of distributed training and of MPI programs
// set the last four.
const (
	JobVariable        = "MUSTER_JOB"
	IDVariable         = "MUSTER_ID"
	WorkersVariable    = "MUSTER_WORKERS"
	IdentityVariable   = "MUSTER_IDENTITY"
	GenerationVariable = "MUSTER_GENERATION"
	SocketVariable     = "MUSTER_SOCKET"
	RollVariable       = "MUSTER_ROLL"
	rankVariable       = "RANK"
	sizeVariable       = "WORLD_SIZE"
	addrVariable       = "MASTER_ADDR"
	portVariable       = "MASTER_PORT"
)

// environment is the command's: Config's, with what it should know about its worker.
func (r *run) environment(ctx context.Context) ([]string, error) {
	var first worker.Worker
	var m *worker.Member
	err := r.ask(ctx, func(ctx context.Context, current *worker.Member) (err error) {
		m = current
		first, err = m.Lookup(ctx, 0)
		if errors.Is(err, worker.ErrNoWorker) && m.Job.IDs == job.ByIndex { // they join in any order
			first, err = worker.Worker{Problem: "it has not joined yet: --start=all waits for it"}, nil
		}
		return err
	}, "where worker 0 is")
	if err != nil {
		return nil, err
	}
	roll := ""
	gang := m.Job.Gang != nil
	if gang && m.Job.Workers <= maxGangRoll || !gang && r.c.Start != StartJoined {
		if roll, err = r.writeRoll(ctx); err != nil {
			return nil, err
		}
	}
	addr, port := first.IP, strconv.Itoa(first.Port)
	if first.Problem != "" {
		addr, port = "", ""
		r.Log.Warn("the address of worker 0 is not known, so the command does not get it", "reason", first.Problem)
	}
	id, size := strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers)
	return command.SetVariables(r.Environ, [][2]string{
		{JobVariable, m.Job.Name}, {IDVariable, id}, {WorkersVariable, size}, {IdentityVariable, m.Identity},
		{GenerationVariable, m.Generation}, {SocketVariable, r.socket.path}, {RollVariable, roll},
		{AddressVariable, m.Address()},
		{rankVariable, id}, {sizeVariable, size}, {addrVariable, addr}, {portVariable, port},
	}), nil
}

// maxGangRoll is how many workers of a gang get the roll at most: all read it, in each attempt.
const maxGangRoll = 1000

// writeRoll writes all workers to a file, as JSON in the order of their ids. It reads them again only if the roll has
// changed since an attempt of before.
func (r *run) writeRoll(ctx context.Context) (string, error) {
	err := r.ask(ctx, func(ctx context.Context, m *worker.Member) error {
		version, err := m.RollVersion(ctx)
		if err != nil || version > 0 && version == r.rollVersion {
			return err
		}
		roll, err := m.Roll(ctx)
		if err != nil {
			return err
		}
		r.roll, err = json.MarshalIndent(roll, "", "  ")
		r.rollVersion = version
		return err
	}, "who has joined")
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(r.socket.path), "roll.json")
	if err := os.WriteFile(path, append(r.roll, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("the roll: %w", err)
	}
	return path, nil
}

// join makes this process a member. A spare waits for that without a limit.
func (r *run) join(ctx context.Context) error {
	for {
		if err := inTime(r.JoinTimeout, r.joinAsWorker)(ctx); !errors.Is(err, worker.ErrSpare) {
			return err
		}
		r.c.Worker.Limit = r.JoinTimeout
		switch err := r.joinOnce(ctx, worker.Spare); {
		case errors.Is(err, worker.ErrStopRequested):
			return ErrTerminated
		case errors.Is(err, worker.ErrSpare): // a join of this identity that came too late was withdrawn
			continue
		case !r.joinsAgain(ctx, err):
			return err
		}
	}
}

// joinAsWorker joins, in another session if one is lost on the way.
func (r *run) joinAsWorker(ctx context.Context) error {
	if err := r.chooseAddress(ctx); err != nil {
		return err
	}
	for {
		if err := r.joinOnce(ctx, worker.Join); !r.joinsAgain(ctx, err) {
			return err
		}
	}
}

// joinsAgain reports whether another session is worth a try.
func (r *run) joinsAgain(ctx context.Context, err error) bool {
	if !errors.Is(err, zkconn.ErrSessionLost) || ctx.Err() != nil {
		return false
	}
	path := resource.Join(r.c.Worker.Root, r.c.Worker.Job)
	r.Log.Warn("the session is lost; joining again", "job", path, "reason", err)
	r.c.Worker.FailHeld = false // the process that holds the identity may be this one
	return true
}

// chooseAddress takes this machine's address and a free port if the configuration has no address, and the address as
// the identity if it has none.
func (r *run) chooseAddress(ctx context.Context) error {
	w := &r.c.Worker
	if w.Info.IP == "" {
		var ip net.IP
		err := r.waitForServer(ctx, func() (err error) {
			ip, err = r.c.LocalIP(ctx)
			return err
		})
		if err != nil {
			return err
		}
		free, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
		if err != nil {
			return err
		}
		defer free.Close()
		w.Info.IP, w.Info.Port = ip.String(), free.Addr().(*net.TCPAddr).Port
	}
	if w.Identity == "" {
		w.Identity = w.Info.Address()
		if r.c.Unstable != nil {
			r.c.Unstable(w.Identity)
		}
	}
	return nil
}

// joinOnce opens a session, creates the job if that is asked for, and joins. If it fails it leaves no session behind.
func (r *run) joinOnce(
	ctx context.Context, join func(context.Context, *zkconn.Session, worker.Config) (*worker.Member, error),
) (err error) {
	s, err := r.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.closeSession()
		}
	}()
	if r.c.Create != nil {
		if err := r.c.Create(ctx, s); err != nil {
			return unanswered(err)
		}
	}
	m, err := join(ctx, s, r.c.Worker)
	if err != nil {
		return err
	}
	if time.Duration(m.Job.Timeouts.Session) != r.timeout { // the Record has changed while it waited
		first := m
		err = r.waitForServer(ctx, func() (err error) {
			m, err = r.rejoin(ctx, first)
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.c.Joined != nil {
		r.c.Joined(m)
	}
	r.set(func() { r.member, r.isMember = m, true })
	return nil
}

// keep joins again whenever the session is lost. It returns nil when the Member has left or completed, or ctx ends;
// otherwise it returns why the membership is lost for good.
func (r *run) keep(ctx context.Context) error {
	for {
		m, _, _ := r.now()
		select {
		case <-m.Context().Done():
		case <-ctx.Done():
			return nil
		}
		cause := context.Cause(m.Context())
		if cause == context.Canceled { //nolint:errorlint // itself: it left or completed
			return nil
		}
		r.set(func() { r.isMember = false })
		next, err := r.next(ctx, m, cause)
		if ctx.Err() != nil {
			return nil
		}
		r.set(func() {
			if r.over = err; err == nil {
				r.member, r.isMember = next, true
				r.rejoins++
			}
		})
		if err != nil {
			return err
		}
		r.Log.Warn("joined again after a lost session", "job", m.Job.Path(), "id", m.ID)
	}
}

// next is the Member after m, which ended with cause. The error is final.
func (r *run) next(ctx context.Context, m *worker.Member, cause error) (*worker.Member, error) {
	if r.c.OnLoss == LossStop && m.Job.Gang == nil || !errors.Is(cause, worker.ErrSessionLost) {
		return nil, cause
	}
	r.Log.Warn("the session is lost; joining again", "job", m.Job.Path(), "id", m.ID, "reason", cause)
	for {
		next, err := r.rejoin(ctx, m)
		if err == nil || errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) {
			return next, err
		}
		r.Log.Warn("joining again", "job", m.Job.Path(), "id", m.ID, "error", err)
		zkconn.Pause(ctx, retryPause)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// rejoin makes m a Member again, in another session.
func (r *run) rejoin(ctx context.Context, m *worker.Member) (next *worker.Member, err error) {
	err = r.replaceSession(ctx, time.Duration(m.Job.Timeouts.Session), func(s *zkconn.Session) (err error) {
		next, err = m.Rejoin(ctx, s)
		return err
	})
	return next, err
}

// now is the newest Member, a channel that is closed when that changes, and why there will be no other.
func (r *run) now() (*worker.Member, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.member, r.changed, r.over
}

func (r *run) set(change func()) {
	r.note(func() {
		change()
		close(r.changed)
		r.changed = make(chan struct{})
	})
}

// do calls f as the Member, and again as the next one whenever the session is lost on the way: f must bear to be
// repeated.
func (r *run) do(ctx context.Context, f func(context.Context, *worker.Member) error) error {
	for {
		m, changed, lost := r.now()
		if lost != nil {
			return lost
		}
		err := f(ctx, m)
		if err == nil || m.Context().Err() == nil || ctx.Err() != nil {
			return err
		}
		//nolint:errorlint // itself: it left or completed, and what failed came after that
		if context.Cause(m.Context()) == context.Canceled {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// What all members wait for together has one time limit, in however many sessions. The time passes also while the
// session is lost and no server can be asked. What has become of the wait then is not known.

// lateError is ErrLate of a request, and says what is not known.
type lateError string

func (e lateError) Error() string { return string(e) }
func (e lateError) Unwrap() error { return ErrLate }

// waitAll waits until all have joined, for at most the job's join timeout, and at most limit unless that is 0.
func (r *run) waitAll(ctx context.Context, limit time.Duration) error {
	m, _, _ := r.now()
	if longest := time.Duration(m.Job.Timeouts.Join); limit == 0 || limit > longest {
		limit = longest
	}
	defer r.whileWaiting(ctx, "all workers to join", joinNotice)()
	return r.within(ctx, limit, func(ctx context.Context, m *worker.Member) error { return m.WaitAll(ctx) },
		fmt.Sprintf("whether all %d workers have joined", m.Job.Workers))
}

// ask calls f as the Member. It waits for a session for at most the job's join timeout. what says what f would have
// found out.
func (r *run) ask(
	ctx context.Context, f func(context.Context, *worker.Member) error, what string,
) error {
	m, _, _ := r.now()
	return r.within(ctx, time.Duration(m.Job.Timeouts.Join), f, what)
}

// within is ask with another limit.
func (r *run) within(
	ctx context.Context, limit time.Duration, f func(context.Context, *worker.Member) error, what string,
) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return explainLate(ctx, r.do(ctx, f), func() string {
		return fmt.Sprintf("waited %s, and it is not known %s: ZooKeeper does not answer this worker",
			since(begun), what)
	})
}

// barrier waits at a barrier.
func (r *run) barrier(ctx context.Context, b worker.Barrier) error {
	b.Attempt = new(int) // kept over sessions, as the round below
	defer r.whileWaiting(ctx, barrierTitle(b.Name), barrierNotice(b.Name))()
	return r.waitAtBarrier(ctx, b.Timeout, func(m *worker.Member, remains time.Duration) error {
		if b.Round == nil { // chosen once: a call that is repeated after a lost session is for the same round
			next, err := m.NextRound(ctx, b.Name)
			if err != nil {
				return err
			}
			b.Round = &next
		}
		b.Timeout = remains
		return m.Barrier(ctx, b)
	}, func() string {
		if b.Round == nil {
			return "barrier " + b.Name
		}
		return fmt.Sprintf("round %d of barrier %s", *b.Round, b.Name)
	})
}

// startBarrier waits at the start barrier.
func (r *run) startBarrier(ctx context.Context) error {
	attempt := 0
	defer r.whileWaiting(ctx, barrierTitle(znode.StartBarrier), barrierNotice(znode.StartBarrier))()
	wait := func(m *worker.Member, remains time.Duration) error { return m.StartBarrier(ctx, remains, &attempt) }
	return r.waitAtBarrier(ctx, 0, wait, func() string { return "the start barrier" })
}

// waitAtBarrier calls wait, which aborts the round when what remains of the limit has passed. Without a session
// nobody can abort it: then this call alone gives up at the limit. name is called for the text of that error.
func (r *run) waitAtBarrier(
	ctx context.Context, limit time.Duration,
	wait func(m *worker.Member, remains time.Duration) error, name func() string,
) error {
	first, _, _ := r.now()
	limit = cmp.Or(limit, time.Duration(first.Job.Timeouts.Barrier))
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.do(limited, func(_ context.Context, m *worker.Member) error {
		remains := limit
		if m != first {
			remains = max(limit-since(begun), precision)
		}
		return wait(m, remains)
	})
	return explainLate(limited, err, func() string {
		return fmt.Sprintf("waited %s at %s, and its outcome is not known: this worker lost its session with "+
			"ZooKeeper, so it could not abort the round, which the others may still pass", since(begun), name())
	})
}

// explainLate is err. If that says only that ctx's time was over, or that there was no session then, it is what text
// says.
func explainLate(ctx context.Context, err error, text func() string) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		errors.As(err, new(*worker.AbsentError)) || errors.As(err, new(*worker.UnpublishedError)) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, worker.ErrSessionLost) {
		return lateError(text())
	}
	return err
}

// precision is how exactly people are told a time.
const precision = 100 * time.Millisecond

func since(begun time.Time) time.Duration { return time.Since(begun).Round(precision) }

// A worker that waits for others says for whom: 10 s after it began, and then ever more rarely.
const firstNotice, rarestNotice = 10 * time.Second, 10 * time.Minute

// maxAsked is for how many workers the others are named. In a larger job thousands would read long lists at the same
// time.
const maxAsked = 1000

// maxNamed is how many workers one notice names.
const maxNamed = 20

// whileWaiting calls notice at those times, until the function that it returns is called. The attributes that notice
// returns are logged; nil: nothing is.
func (r *run) whileWaiting(
	ctx context.Context, what string, notice func(context.Context, *worker.Member) []any,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var notices sync.WaitGroup
	notices.Go(func() {
		begun := time.Now()
		for pause := firstNotice; ; pause = min(2*pause, rarestNotice) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			m, _, _ := r.now()
			if _, isMember, _ := r.state(); !isMember || !r.connected() {
				continue // which was said
			}
			attrs := []any{"job", m.Job.Path(), "id", m.ID, "since", since(begun)}
			if m.Job.Workers <= maxAsked {
				more := notice(ctx, m)
				if more == nil {
					continue
				}
				attrs = append(attrs, more...)
			}
			r.Log.Info("waiting for "+what, attrs...)
		}
	})
	return func() { cancel(); notices.Wait() }
}

// joinNotice says who has not joined.
func joinNotice(ctx context.Context, m *worker.Member) []any {
	absent, err := m.Absent(ctx)
	if err != nil {
		return nil
	}
	attrs := []any{"joined", absent.Joined, "workers", absent.Workers}
	if len(absent.Missing) > 0 {
		attrs = append(attrs, "missing", text.List(absent.Missing, maxNamed))
	}
	if len(absent.NotLive) > 0 {
		attrs = append(attrs, "not_live", text.List(absent.NotLive, maxNamed))
	}
	return attrs
}

// barrierNotice says who has not arrived at the round that this worker waits at.
func barrierNotice(name string) func(context.Context, *worker.Member) []any {
	return func(ctx context.Context, m *worker.Member) []any {
		rounds, err := m.Rounds(ctx)
		if err != nil {
			return nil
		}
		for _, r := range rounds {
			if r.Name == name && slices.Contains(r.Arrived, m.ID) {
				return []any{
					"round", r.Round, "arrived", len(r.Arrived), "workers", r.Workers,
					"missing", text.List(r.Missing, maxNamed),
				}
			}
		}
		return nil
	}
}

// barrierTitle is what a notice calls a barrier.
func barrierTitle(name string) string {
	if name == znode.StartBarrier {
		return "the start barrier"
	}
	return "barrier " + name
}

// valueNotice says who has not published a key.
func valueNotice(key string, ids []int) func(context.Context, *worker.Member) []any {
	return func(ctx context.Context, m *worker.Member) []any {
		missing, err := m.Unpublished(ctx, key, ids)
		if err != nil || len(missing) == 0 {
			return nil
		}
		return []any{"missing", text.List(missing, maxNamed)}
	}
}

// endOf is what the claim is to say of the command.
func endOf(e *command.End) worker.End {
	if sig := e.Signal(); sig != 0 {
		return bySignal(sig)
	}
	return worker.End{Exit: e.Exit()}
}

// bySignal is the end of a command that a signal ended.
func bySignal(sig syscall.Signal) worker.End {
	return worker.End{Signal: strings.TrimPrefix(command.SignalName(sig), "SIG")}
}
