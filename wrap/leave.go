package wrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"muster/worker"
)

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
