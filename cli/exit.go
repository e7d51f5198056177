package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"muster/exitcode"
	"muster/member"
	"muster/tasks"

	"muster/redisserver"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/zkserver"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// finding is an outcome that is no error and needs no message. It only sets the exit code.
type finding int

func (f finding) Error() string { return fmt.Sprintf("finding %d", int(f)) }

// The findings.
const (
	foundDifferences = finding(exitcode.Differences)
	foundAttention   = finding(exitcode.Attention)
	foundIncomplete  = finding(exitcode.Incomplete)
)

// The kinds of problems of this package. The kind of a problem decides the exit code.
var (
	errUsage      = errors.New("bad usage")
	errDeclined   = errors.New("declined")
	errRefused    = errors.New("saved plan refused")
	errIncomplete = errors.New("incomplete")
	errNotWritten = errors.New("not written")     // standard output, or a report that was required
	errPrinted    = errors.New("already printed") // an error whose text was printed: it only sets the exit code
)

// problem is an error and what the user should do next.
type problem struct {
	kind error // one of the kinds above, or nil
	err  error
	next string // a command or a flag; may be empty
}

func (p *problem) Error() string { return p.err.Error() }

func (p *problem) Unwrap() []error {
	if p.kind == nil {
		return []error{p.err}
	}
	return []error{p.err, p.kind}
}

// usagef returns a problem with the arguments.
func usagef(next, format string, args ...any) error {
	return &problem{errUsage, fmt.Errorf(format, args...), next}
}

// exitCode is the one switch from an error to the exit code; package exitcode says what the codes mean. Of several
// errors the first case here decides: a signal, Unreachable, the codes of a command that did nothing, an error of
// writing, Incomplete, a finding. A command chooses among its findings itself.
func exitCode(ctx context.Context, err error) int {
	var stopped Stopped
	var found finding
	var done *worker.DoneError
	var absent *worker.AbsentError
	var aborted *worker.AbortedError
	switch {
	case errors.As(context.Cause(ctx), &stopped):
		return stopped.ExitCode()
	case err == nil:
		return exitcode.Done
	case errors.As(err, &found) && found > foundIncomplete: // the code of a worker or a member
		return int(found)
	case unreachable(err), errors.Is(err, errNoRedis):
		return exitcode.Unreachable
	case errors.Is(err, errUsage):
		return exitcode.Usage
	case errors.Is(err, errDeclined):
		return exitcode.Declined
	case errors.Is(err, errRefused):
		return exitcode.Refused
	case errors.Is(err, zkstate.ErrLocked):
		return exitcode.Locked
	case errors.Is(err, errNotWritten):
		return exitcode.Error
	case errors.Is(err, errIncomplete):
		return exitcode.Incomplete
	case errors.As(err, &found):
		return int(found)
	case errors.As(err, &done):
		return done.Exit
	case errors.Is(err, worker.ErrCompleted):
		return exitcode.Done
	case errors.Is(err, worker.ErrNotOpen), errors.Is(err, worker.ErrHeld), errors.As(err, &absent),
		errors.Is(err, member.ErrNotOpen), errors.Is(err, tasks.ErrNotOpen):
		return exitcode.NotJoined
	case errors.As(err, &aborted):
		return exitcode.Aborted
	case errors.Is(err, worker.ErrFenced), errors.Is(err, member.ErrHeld), errors.Is(err, member.ErrNotHeld),
		errors.Is(err, tasks.ErrHeld):
		return exitcode.Fenced
	case errors.Is(err, worker.ErrFull), errors.Is(err, member.ErrStateTooLarge),
		errors.Is(err, member.ErrOperationLimit), errors.Is(err, member.ErrOutputTooLarge),
		errors.Is(err, tasks.ErrTooLarge), errors.Is(err, tasks.ErrManyBatches):
		return exitcode.Full
	case errors.Is(err, worker.ErrNoJob), errors.Is(err, member.ErrNoGroup), errors.Is(err, member.ErrNoDuty),
		errors.Is(err, member.ErrNoCron), errors.Is(err, member.ErrNoKey), errors.Is(err, member.ErrNoOperation),
		errors.Is(err, tasks.ErrNoQueue), errors.Is(err, tasks.ErrNoBatch), errors.Is(err, tasks.ErrNoDead):
		return exitcode.NoJob
	case errors.Is(err, member.ErrOperationBusy):
		return exitcode.Locked
	case errors.Is(err, member.ErrOtherScript), errors.Is(err, tasks.ErrOtherBatch):
		return exitcode.Declined
	case errors.Is(err, wrap.ErrLate):
		return exitcode.NotJoined
	}
	return exitcode.Error
}

// printError prints err on standard error, and on a second line what the user should do next.
func (p *process) printError(ctx context.Context, err error) {
	var found finding
	var stopped Stopped
	if errors.As(context.Cause(ctx), &stopped) && errors.Is(err, context.Canceled) {
		err = stopped
	}
	if err == nil || errors.As(err, &found) || errors.Is(err, errPrinted) {
		return
	}
	fmt.Fprintf(p.err, "muster: %s\n", text.EscapeLines(err.Error()))
	if next := nextStep(err); next != "" {
		fmt.Fprintf(p.err, "  next: %s\n", text.EscapeLines(next))
	}
}

// nextStep returns what the user should do about err: what a problem says, or a default for its sentinel.
func nextStep(err error) string {
	var prob *problem
	var stopped Stopped
	switch {
	case errors.As(err, &stopped):
		return ""
	case errors.As(err, &prob) && prob.next != "":
		return prob.next
	case errors.Is(err, zkconn.ErrUnreachable):
		return "check --servers and MUSTER_SERVERS, or start a ZooKeeper to try things on: muster dev"
	case errors.Is(err, zkconn.ErrSessionLost):
		return "muster plan shows what is left to do"
	case errors.Is(err, zkconn.ErrNoAuth), errors.Is(err, zkconn.ErrAuthFailed), errors.Is(err, zkconn.ErrInvalidACL):
		return "set MUSTER_ZK_AUTH=digest:USER:PASSWORD, or MUSTER_ZK_AUTH_FILE, or correct what they hold"
	case errors.Is(err, zkstate.ErrLocked):
		return "wait for it, or raise --lock-timeout"
	case errors.Is(err, worker.ErrNoJob):
		return "declare it, then: muster apply"
	case errors.Is(err, worker.ErrFenced),
		errors.As(err, new(*worker.AbsentError)), errors.As(err, new(*worker.AbortedError)):
		return "muster status NAME shows who is live"
	case errors.Is(err, worker.ErrFull), errors.Is(err, worker.ErrNotOpen), errors.Is(err, worker.ErrHeld):
		return "muster status NAME shows who has joined"
	case errors.Is(err, wrap.ErrLate):
		return "check the worker's connection to ZooKeeper, then start it again"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "free some space, then run the same command again"
	case errors.Is(err, syscall.EROFS):
		return "name a directory that can be written to; for temporary files TMPDIR does"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "raise the limit of open files (ulimit -n)"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return "check the name, and where -C leads"
	case errors.Is(err, syscall.EADDRINUSE):
		return "leave out the port: muster dev takes a free one"
	case errors.Is(err, fs.ErrPermission):
		return "check who owns the file (ls -l)"
	case errors.Is(err, zkserver.ErrNotInstalled), errors.Is(err, redisserver.ErrNotInstalled):
		return "" // the error names the command
	}
	return "muster --help"
}
