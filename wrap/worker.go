package wrap

import (
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

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
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

// join makes this process a member, in another session if one is lost on the way.
func (ms *membership) join(ctx context.Context) error {
	if err := ms.chooseAddress(ctx); err != nil {
		return err
	}
	for {
		m, err := ms.joinOnce(ctx)
		if err == nil {
			ms.set(func() { ms.member = m })
			return nil
		}
		if !errors.Is(err, zkconn.ErrSessionLost) || ctx.Err() != nil {
			return err
		}
		path := resource.Join(ms.c.Worker.Root, ms.c.Worker.Job)
		ms.c.Log.Warn("the session is lost; joining again", "job", path, "reason", err)
		ms.c.Worker.Takeover = worker.TakeoverWait // the process that holds the identity may be this one
	}
}

// chooseAddress takes this machine's address and a free port if the configuration has no address, and the address as
// the identity if it has none.
func (ms *membership) chooseAddress(ctx context.Context) error {
	w := &ms.c.Worker
	if w.Info.IP == "" {
		var ip net.IP
		err := ms.sessions.waitForServer(ctx, func() (err error) {
			ip, err = ms.c.LocalIP(ctx)
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
		w.Info = znode.Worker{IP: ip.String(), Port: free.Addr().(*net.TCPAddr).Port}
	}
	if w.Identity == "" {
		w.Identity = w.Info.Address()
		if ms.c.Unstable != nil {
			ms.c.Unstable(w.Identity)
		}
	}
	return nil
}

// joinOnce opens a session, creates the job if that is asked for, and joins. If it fails it leaves no session behind.
func (ms *membership) joinOnce(ctx context.Context) (m *worker.Member, err error) {
	s, err := ms.sessions.open(ctx, ms.recordedTimeout)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ms.sessions.close()
		}
	}()
	if ms.c.Create != nil {
		if err := ms.c.Create(ctx, s); err != nil {
			return nil, unanswered(err)
		}
	}
	if m, err = worker.Join(ctx, s, ms.c.Worker); err != nil {
		return nil, err
	}
	if time.Duration(m.Job.Timeouts.Session) != ms.sessions.timeout { // the Record has changed while it waited
		first := m
		err = ms.sessions.waitForServer(ctx, func() (err error) {
			m, err = ms.rejoin(ctx, first)
			return err
		})
	}
	if err == nil && ms.c.Joined != nil {
		ms.c.Joined(m)
	}
	return m, err
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: worker.Join waits for the Record, or says what is wrong with it.
func (ms *membership) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	rec, err := readableRecord(ctx, s, job.Kind(), ms.c.Worker.Root, ms.c.Worker.Job)
	if err != nil || rec == nil {
		return ms.sessions.timeout, err
	}
	return time.Duration(job.Of(rec).Timeouts.Session), nil
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
	r.progress.enter(StageLeaving)
	m, _, _ := r.membership.now()
	limit, leave := leaveLimit, func(ctx context.Context, m *worker.Member) error { return m.Leave(ctx, end) }
	if completes {
		limit = completeLimit + time.Duration(m.Job.Timeouts.Session)
		leave = func(ctx context.Context, m *worker.Member) error { return m.Complete(ctx, 0) }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	err := r.step(ctx, signalLimit, func(ctx context.Context) error { return r.membership.do(ctx, leave) })
	who := fmt.Sprintf("worker %d (%s) of %s", m.ID, m.Identity, m.Job.Path())
	switch {
	case errors.Is(err, worker.ErrFenced):
		return who + " was no member any more"
	case errors.Is(err, worker.ErrUnfinished):
		r.c.Log.Warn("the job is left as it is", "job", m.Job.Path(), "id", m.ID, "error", err)
		return fmt.Sprintf("%s has %v", who, worker.ErrUnfinished)
	case err != nil && !errors.Is(err, worker.ErrDone):
		r.c.Log.Warn("leaving is not confirmed", "job", m.Job.Path(), "id", m.ID, "error", err)
		return fmt.Sprintf("it is not known whether ZooKeeper learnt that %s has ended: %v", who, err)
	case completes:
		return who + " has completed"
	case errors.Is(because, ErrTerminated): // its job is about to be deleted
		return who + " has left"
	}
	return who + " has left, and may come back"
}

// completes reports whether the command has ended well by itself.
func (e *commandEnd) completes() bool { return e.asked == 0 && e.code() == 0 }

// record is what the claim is to say of the command.
func (e *commandEnd) record() worker.End {
	switch {
	case e.err != nil:
		return worker.End{}
	case e.status.Signaled():
		return bySignal(e.status.Signal())
	}
	code := e.code()
	return worker.End{Exit: &code}
}

// String is how the command ended, for people.
func (e *commandEnd) String() string {
	s := "the command "
	switch {
	case e.err != nil:
		return s + "cannot be waited for: " + e.err.Error()
	case e.killed && e.asked == 0:
		s += "was killed at once"
	case e.killed:
		s += "did not end when it was asked to, and was killed"
	case e.status.Signaled():
		s += "was ended by " + signalName(e.status.Signal())
	default:
		s += fmt.Sprintf("exited with %d", e.status.ExitStatus())
	}
	if e.asked != 0 && !(e.status.Signaled() && e.asked == e.status.Signal()) {
		s += " after " + signalName(e.asked)
	}
	if e.restKilled {
		s += ", and what it had left behind was killed"
	}
	return s
}

// bySignal is the end of a command that a signal ended.
func bySignal(sig syscall.Signal) worker.End {
	return worker.End{Signal: strings.TrimPrefix(signalName(sig), "SIG")}
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
	var first worker.Worker // id 0 has joined: ids are given in order
	var m *worker.Member
	err := r.membership.within(ctx, 0, func(ctx context.Context, current *worker.Member) (err error) {
		m = current
		first, err = m.Lookup(ctx, 0)
		return err
	}, "where worker 0 is")
	if err != nil {
		return nil, err
	}
	roll := ""
	if r.c.Start != StartJoined {
		if roll, err = r.writeRoll(ctx); err != nil {
			return nil, err
		}
	}
	addr, port := first.IP, strconv.Itoa(first.Port)
	if first.Problem != "" {
		addr, port = "", ""
		r.c.Log.Warn("the address of worker 0 is not known, so the command does not get it", "reason", first.Problem)
	}
	id, size := strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers)
	return setVariables(r.c.Environ, [][2]string{
		{JobVariable, m.Job.Name}, {IDVariable, id}, {WorkersVariable, size}, {IdentityVariable, m.Identity},
		{GenerationVariable, m.Generation}, {SocketVariable, r.socket.path}, {RollVariable, roll},
		{AddressVariable, m.Address()},
		{rankVariable, id}, {sizeVariable, size}, {addrVariable, addr}, {portVariable, port},
	}), nil
}

// credentials are the variables that hold what this process proves with who it is, or name the files that do. A name
// that ends with an underscore stands for all that begin so.
func credentials() []string {
	return []string{
		"MUSTER_ZK_AUTH", "MUSTER_ZK_AUTH_FILE", "MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_REDIS_", "MUSTER_SENTINEL_",
	}
}

// WithoutCredentials returns an environment without what only muster itself needs to know: what a command has in its
// environment gets into its logs and its own children.
func WithoutCredentials(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(credentials(), func(one string) bool {
			return name == one || strings.HasSuffix(one, "_") && strings.HasPrefix(name, one)
		})
	})
}

// setVariables returns the environment with these variables set. An empty value removes the variable.
func setVariables(environ []string, variables [][2]string) []string {
	all := slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(variables, func(v [2]string) bool { return v[0] == name })
	})
	for _, v := range variables {
		if v[1] != "" {
			all = append(all, v[0]+"="+v[1])
		}
	}
	return all
}

// writeRoll writes all workers to a file, as JSON in the order of their ids.
func (r *run) writeRoll(ctx context.Context) (string, error) {
	var roll []worker.Worker
	err := r.membership.within(ctx, 0, func(ctx context.Context, m *worker.Member) (err error) {
		roll, err = m.Roll(ctx)
		return err
	}, "who has joined")
	if err != nil {
		return "", err
	}
	body, err := json.MarshalIndent(roll, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(r.socket.path), "roll.json")
	if err := os.WriteFile(path, append(body, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("the roll: %w", err)
	}
	return path, nil
}
