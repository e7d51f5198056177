package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"syscall"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/exitcode"
	"muster/member"
	"muster/tasks"
	"muster/text"
	"muster/worker"
	"muster/wrap"
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
	errNotWritten = errors.New("not written") // standard output, or a report
	errWithheld   = errors.New("credentials withheld")
	errAbsent     = errors.New("not there")       // a job, group or queue that was waited for
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
	var unpublished *worker.UnpublishedError
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
	case errors.As(err, &absent), errors.As(err, &unpublished),
		isAny(err, worker.ErrNotOpen, worker.ErrHeld, member.ErrNotOpen, tasks.ErrNotOpen):
		return exitcode.NotJoined
	case errors.As(err, &aborted):
		return exitcode.Aborted
	case isAny(err, worker.ErrFenced, member.ErrHeld, member.ErrNotHeld, tasks.ErrHeld):
		return exitcode.Fenced
	case isAny(err, worker.ErrFull, worker.ErrDataFull, member.ErrStateTooLarge, member.ErrOperationLimit,
		member.ErrOutputTooLarge, tasks.ErrTooLarge, tasks.ErrManyBatches):
		return exitcode.Full
	case isAny(err, errAbsent, worker.ErrNoJob, member.ErrNoGroup, member.ErrNoDuty, member.ErrNoCron, member.ErrNoKey,
		member.ErrNoOperation, tasks.ErrNoQueue, tasks.ErrNoBatch, tasks.ErrNoDead):
		return exitcode.NoJob
	case errors.Is(err, member.ErrOperationBusy):
		return exitcode.Locked
	case isAny(err, member.ErrOtherScript, tasks.ErrOtherBatch):
		return exitcode.Declined
	case errors.Is(err, wrap.ErrLate):
		return exitcode.NotJoined
	}
	return exitcode.Error
}

// isAny reports whether err is one of these errors.
func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
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
	next := nextStep(err)
	if p.record(ctx, slog.LevelError, err.Error(), slog.String("next", p.paste(next))) {
		return
	}
	fmt.Fprintf(p.err, "muster: %s\n", text.EscapeLines(err.Error()))
	p.printNext(next)
}

// printNext prints on standard error what the user should do next, if anything.
func (p *process) printNext(step string) {
	if step != "" {
		fmt.Fprintf(p.err, "  next: %s\n", text.EscapeLines(p.paste(step)))
	}
}

// nextStep returns what the user should do about err: what a problem says, or a default for its sentinel.
func nextStep(err error) string {
	var prob *problem
	var stopped Stopped
	var aborted *worker.AbortedError
	switch {
	case errors.As(err, &stopped):
		return ""
	case errors.As(err, &prob) && prob.next != "":
		return prob.next
	case errors.Is(err, zkconn.ErrUnreachable):
		return "check --servers and MUSTER_SERVERS, or start a ZooKeeper to try things on: muster dev"
	case errors.Is(err, zkconn.ErrSessionLost):
		return "muster plan shows what is left to do"
	case isAny(err, zkconn.ErrNoAuth, zkconn.ErrAuthFailed, zkconn.ErrInvalidACL):
		return "set MUSTER_ZK_AUTH=digest:USER:PASSWORD, or MUSTER_ZK_AUTH_FILE, or correct what they hold"
	case errors.Is(err, zkstate.ErrLocked):
		return "wait for it, or raise --lock-timeout"
	case errors.Is(err, worker.ErrNoJob):
		return "declare it, then: muster apply"
	case errors.As(err, &aborted):
		return afterAbort(aborted)
	case errors.Is(err, worker.ErrFenced), errors.As(err, new(*worker.AbsentError)):
		return "muster status NAME shows who is live"
	case isAny(err, worker.ErrFull, worker.ErrNotOpen, worker.ErrHeld):
		return "muster status NAME shows who has joined"
	case errors.Is(err, wrap.ErrLate):
		return "check the worker's connection to ZooKeeper, then start it again"
	case isAny(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return "free some space, then run the same command again"
	case errors.Is(err, syscall.EROFS):
		return "name a directory that can be written to; for temporary files TMPDIR does"
	case isAny(err, syscall.EMFILE, syscall.ENFILE):
		return "raise the limit of open files (ulimit -n)"
	case isAny(err, fs.ErrNotExist, syscall.EISDIR, syscall.ENOTDIR):
		return "check the name, and where -C leads"
	case errors.Is(err, syscall.EADDRINUSE):
		return "leave out the port: muster dev takes a free one"
	case errors.Is(err, fs.ErrPermission):
		return "check who owns the file (ls -l)"
	case isAny(err, zkserver.ErrNotInstalled, redisserver.ErrNotInstalled):
		return "" // the error names the command
	}
	return "muster --help"
}
