package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
)

// Run joins, runs the command, and leaves or completes. The end of ctx is like SIGTERM.
func Run(ctx context.Context, c Config) Result {
	r := &run{
		life: newLife(c.Life, place{
			kind: job.Kind(), root: c.Worker.Root, name: c.Worker.Job, identity: c.Worker.Identity, who: "worker",
			declared:  func(rec *resource.Record) resource.Duration { return job.Of(rec).Timeouts.Session },
			joinLimit: job.DefaultJoinTimeout, waiting: c.Worker.Waiting,
		}),
		c: c, begun: time.Now(), barriers: newBarriers(),
	}
	r.membership = &membership{life: r.life, c: c, changed: make(chan struct{})}
	return r.run(ctx, healthOf{info: r.info, counts: []prometheus.Collector{r.barriers}}, true,
		r.membership.join, r.asMember)
}

// run is one Run.
type run struct {
	*life
	c          Config
	begun      time.Time
	membership *membership
	barriers   *prometheus.HistogramVec
}

// info is the labels of the info metric, once there is a Member.
func (r *run) info() []string {
	m, _, _ := r.membership.now()
	if m == nil {
		return nil
	}
	return []string{
		"identity", m.Identity, "id", strconv.Itoa(m.ID), "workers", strconv.Itoa(m.Job.Workers),
		"generation", m.Generation,
	}
}

// asMember is everything after the join. err, unless nil, came up during the join: then the worker leaves.
func (r *run) asMember(ctx context.Context, err error) Result {
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
			r.Log.Warn("requests to stop are not heard any more", "reason", err)
		}
	})
	defer stop(nil)
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
		err = step(ofCommand, r.Signals, 0, func(ctx context.Context) error { return r.membership.do(ctx, r.c.Idle) })
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
	e, err := r.runCommand(ofCommand, environ, func() {})
	if err != nil {
		failed := commandEnd{exitStatus: exitStatus{status: syscall.WaitStatus(startCode(err) << 8)}}
		return Result{Code: failed.code(), Err: err, Text: r.leave(ofMember, false, failed.record(), err)}
	}
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

// notStarted is the Result of a process that has no command whose exit code counts.
func notStarted(err error) Result {
	var by stopped
	switch {
	case errors.As(err, &by):
		return Result{Code: 128 + int(by), Err: err}
	case errors.Is(err, ErrTerminated):
		return Result{Code: 128 + int(syscall.SIGTERM), Err: err}
	}
	return Result{Err: err}
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
	m, _, _ := r.membership.now()
	limit, leave := leaveLimit, func(ctx context.Context, m *worker.Member) error { return m.Leave(ctx, end) }
	if completes {
		limit = completeLimit + time.Duration(m.Job.Timeouts.Session)
		leave = func(ctx context.Context, m *worker.Member) error { return m.Complete(ctx, 0) }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	err := step(ctx, r.Signals, signalLimit, func(ctx context.Context) error { return r.membership.do(ctx, leave) })
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
	case errors.Is(because, ErrTerminated): // its job is about to be deleted
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
	var first worker.Worker // id 0 has joined: ids are given in order
	var m *worker.Member
	err := r.membership.ask(ctx, func(ctx context.Context, current *worker.Member) (err error) {
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
		r.Log.Warn("the address of worker 0 is not known, so the command does not get it", "reason", first.Problem)
	}
	id, size := strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers)
	return setVariables(r.Environ, [][2]string{
		{JobVariable, m.Job.Name}, {IDVariable, id}, {WorkersVariable, size}, {IdentityVariable, m.Identity},
		{GenerationVariable, m.Generation}, {SocketVariable, r.socket.path}, {RollVariable, roll},
		{AddressVariable, m.Address()},
		{rankVariable, id}, {sizeVariable, size}, {addrVariable, addr}, {portVariable, port},
	}), nil
}

// writeRoll writes all workers to a file, as JSON in the order of their ids.
func (r *run) writeRoll(ctx context.Context) (string, error) {
	var roll []worker.Worker
	err := r.membership.ask(ctx, func(ctx context.Context, m *worker.Member) (err error) {
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
