package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"syscall"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/exitcode"
	"muster/member"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// finding is an outcome that is no error and needs no message. It only sets the exit code.
type finding int

func (f finding) Error() string { return fmt.Sprintf("finding %d", int(f)) }

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
	errAbsent     = errors.New("not there")       // a job, group or queue
	errUnreadable = errors.New("not readable")    // a job, group or queue whose record is damaged or gone
	errPrinted    = errors.New("already printed") // an error whose text was printed: it only sets the exit code
)

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

func usagef(next, format string, args ...any) error {
	return &problem{errUsage, fmt.Errorf(format, args...), next}
}

// outcome is what an error means: the exit code, and the default of what the user should do next.
type outcome struct {
	code int
	next string
	errs errorSet
}

// errorSet lists errors: sentinels, pointers to an error type, and functions that know one.
type errorSet []any

// outcomes is the one table from an error to the exit code; package exitcode says what the codes mean. Of several
// errors the first row here decides. A command chooses among its findings itself.
func outcomes() []outcome {
	return []outcome{
		{exitcode.Unreachable, "check --servers and MUSTER_SERVERS, or start a ZooKeeper to try things on: muster dev",
			errorSet{zkconn.ErrUnreachable}},
		{exitcode.Unreachable, "muster plan shows what is left to do", errorSet{zkconn.ErrSessionLost}},
		{exitcode.Unreachable, "set MUSTER_ZK_AUTH=digest:USER:PASSWORD, or MUSTER_ZK_AUTH_FILE, or correct what they hold",
			errorSet{zkconn.ErrNoAuth, zkconn.ErrInvalidACL}},
		{exitcode.Unreachable, "correct MUSTER_ZK_AUTH, or the sasl block or MUSTER_SASL_MECHANISM: M1608 explains them",
			errorSet{zkconn.ErrAuthFailed}},
		{exitcode.Unreachable, "", errorSet{errWithheld, errNoRedis}},
		// A command that did nothing.
		{exitcode.Usage, "", errorSet{errUsage}},
		{exitcode.Usage, "give --index if the job declares ids = \"index\"; otherwise leave it out",
			errorSet{worker.ErrIndex}},
		{exitcode.Usage, "start it with the index that it had, or under an identity of its own (--identity)",
			errorSet{worker.ErrOtherIndex}},
		{exitcode.Declined, "", errorSet{errDeclined}},
		{exitcode.Refused, "", errorSet{errRefused}},
		{exitcode.Locked, "wait for it, or raise --lock-timeout", errorSet{zkstate.ErrLocked}},
		// What a command found, after what kept it from finding all.
		{exitcode.Error, "", errorSet{errNotWritten}},
		{exitcode.Incomplete, "", errorSet{errIncomplete, foundIncomplete}},
		{exitcode.Attention, "", errorSet{foundAttention, errUnreadable, new(*znode.UnreadableError)}},
		{exitcode.Differences, "", errorSet{foundDifferences}},
		{exitcode.Error, "", errorSet{finding(exitcode.Error)}},
		{exitcode.Done, "", errorSet{finding(exitcode.Done), worker.ErrCompleted}},
		// Commands that have no findings.
		{exitcode.NotJoined, "muster status {job} shows who is live", errorSet{new(*worker.AbsentError)}},
		{exitcode.NotJoined, "muster status {job} shows who has joined", errorSet{worker.ErrNotOpen}},
		{exitcode.NotJoined, "", errorSet{new(*worker.UnpublishedError), member.ErrNotOpen, tasks.ErrNotOpen}},
		{exitcode.Aborted, "", errorSet{new(*worker.AbortedError)}},
		{exitcode.Fenced, "muster status {job} shows who is live", errorSet{worker.ErrFenced, worker.ErrHeld}},
		{exitcode.Fenced, "end: the worker starts this command again, if another attempt follows",
			errorSet{worker.ErrMoved}},
		{exitcode.GangFailed, "find out why, then: muster apply, which begins anew", errorSet{worker.ErrGangFailed}},
		{exitcode.Fenced, "", errorSet{member.ErrHeld, member.ErrNotHeld, tasks.ErrHeld}},
		{exitcode.Full, "muster status {job} shows who has joined", errorSet{worker.ErrFull, worker.ErrNoPlace}},
		{exitcode.Full, "declare as many workers as there are indexes, then: muster apply", errorSet{worker.ErrNoIndex}},
		{exitcode.Full, "", errorSet{
			worker.ErrDataFull, member.ErrStateTooLarge, member.ErrOperationLimit, member.ErrOutputTooLarge,
			tasks.ErrTooLarge, tasks.ErrManyBatches,
		}},
		{exitcode.NoJob, "declare it, then: muster apply", errorSet{worker.ErrNoJob}},
		{exitcode.NoJob, "", errorSet{
			errAbsent, member.ErrNoGroup, member.ErrNoDuty, member.ErrNoCron, member.ErrNoKey, member.ErrNoOperation,
			tasks.ErrNoQueue, tasks.ErrNoBatch, tasks.ErrNoDead,
		}},
		{exitcode.Locked, "", errorSet{member.ErrOperationBusy}},
		{exitcode.Declined, "", errorSet{member.ErrOtherScript, tasks.ErrOtherBatch}},
		{exitcode.NotJoined, "check the worker's connection to ZooKeeper, then start it again", errorSet{wrap.ErrLate}},
		{exitcode.Error, "free some space, then run the same command again",
			errorSet{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}},
		{exitcode.Error, "name a directory that can be written to; for temporary files TMPDIR does", errorSet{syscall.EROFS}},
		{exitcode.Error, "raise the limit of open files (ulimit -n)", errorSet{syscall.EMFILE, syscall.ENFILE}},
		{exitcode.Error, "check the name, and where -C leads", errorSet{fs.ErrNotExist, syscall.EISDIR, syscall.ENOTDIR}},
		{exitcode.Error, "leave out the port: muster dev takes a free one", errorSet{syscall.EADDRINUSE}},
		{exitcode.Error, "check who owns the file (ls -l)", errorSet{fs.ErrPermission}},
	}
}

// isRanked reports whether outcomes has a row for f. A finding without one is the code of a worker, a member or a
// command that muster ran, and nothing comes before it.
func (f finding) isRanked() bool {
	return slices.ContainsFunc(outcomes(), func(o outcome) bool { return slices.Contains(o.errs, any(f)) })
}

// exitCode is the exit code of a command that ended with err: that of a signal, of a command that muster ran, or of the
// first row of outcomes.
func exitCode(ctx context.Context, err error) int {
	var stopped Stopped
	var found finding
	var done *worker.DoneError
	switch {
	case errors.As(context.Cause(ctx), &stopped):
		return stopped.ExitCode()
	case err == nil:
		return exitcode.Done
	case errors.As(err, &found) && !found.isRanked():
		return int(found)
	}
	for _, row := range outcomes() {
		if isAny(err, row.errs...) {
			return row.code
		}
	}
	if errors.As(err, &done) {
		return done.Exit
	}
	return exitcode.Error
}

// remedy is what some errors mean to one command: their kind, unless nil, and what the user should do next.
type remedy struct {
	kind error
	next string
	errs errorSet
}

// withRemedy makes a problem of err: the first remedy counts that is for it. names are pairs of a word in braces of the
// next step and what stands for it.
func withRemedy(err error, remedies []remedy, names ...string) error {
	for _, r := range remedies {
		if isAny(err, r.errs...) {
			return &problem{r.kind, err, strings.NewReplacer(names...).Replace(r.next)}
		}
	}
	return err
}

func isAny(err error, of ...any) bool {
	return err != nil && slices.ContainsFunc(of, func(one any) bool {
		switch one := one.(type) {
		case error:
			return errors.Is(err, one)
		case func(error) bool:
			return one(err)
		}
		return errors.As(err, one)
	})
}

func (p *process) printError(ctx context.Context, err error) {
	var found finding
	var stopped Stopped
	if errors.As(context.Cause(ctx), &stopped) && errors.Is(err, context.Canceled) {
		err = stopped
	}
	if err == nil || errors.As(err, &found) || errors.Is(err, errPrinted) {
		return
	}
	next := strings.ReplaceAll(nextStep(err), jobPlaceholder, p.jobName())
	if p.record(ctx, slog.LevelError, err.Error(), slog.String("next", p.paste(next))) {
		return
	}
	fmt.Fprintf(p.err, "muster: %s\n", text.EscapeLines(err.Error()))
	p.printNext(next)
}

// jobPlaceholder stands in next steps for the job of the worker whose error it is.
const jobPlaceholder = "{job}"

// jobName is the path or the name of the job of this worker, or of the worker whose command this is.
func (p *process) jobName() string {
	if name := cmp.Or(p.job, p.environ.value(wrap.JobVariable)); name != "" {
		return text.ShellWord(name)
	}
	return "JOB"
}

func (p *process) printNext(step string) {
	if step != "" {
		fmt.Fprintf(p.err, "  next: %s\n", text.EscapeLines(p.paste(step)))
	}
}

// nextStep returns what the user should do about err: what a problem says, or a default for its sentinel.
func nextStep(err error) string {
	var prob *problem
	var aborted *worker.AbortedError
	var unreadable *znode.UnreadableError
	switch {
	case errors.As(err, new(Stopped)):
		return ""
	case errors.As(err, &prob) && prob.next != "":
		return prob.next
	case isAny(err, zkserver.ErrNotInstalled, redisserver.ErrNotInstalled):
		return "" // the error names the command
	case errors.As(err, &aborted):
		return afterAbort(aborted)
	case errors.As(err, &unreadable):
		return "muster explain " + text.ShellWord(unreadable.Path)
	}
	for _, row := range outcomes() {
		if row.next != "" && isAny(err, row.errs...) {
			return row.next
		}
	}
	return "muster --help"
}

// errNoRedis is the kind of problems of who cannot use Redis.
var errNoRedis = errors.New("no redis")

// queueError adds to an error about a queue, one of its processes or a batch what the user should do. It is the one
// list of these: of f only the path has to be known, and of errors about a batch its id.
func queueError(err error, f foundQueue) error {
	return withRemedy(err, []remedy{
		{errNoRedis, "look what answers there, or correct where the queue says its Redis is: muster explain {queue}",
			errorSet{store.ErrReply}},
		{errNoRedis, "start Redis, or look at its address: muster explain {queue}", errorSet{tasks.ErrRedis}},
		{errNoRedis, "correct that Redis, or where the queue says it is: muster explain {queue}", errorSet{tasks.Unfit}},
		{errNoRedis, "add the host to " + queue.EnvHosts + ", if it may have the password", errorSet{store.ErrHost}},
		{errNoRedis, "set " + queue.EnvPassword + ", and " + queue.EnvUsername + " if it has users, and " +
			queue.EnvHosts + " to the host", errorSet{tasks.Denied}},
		{nil, "muster status --root {root} lists the queues there; if this one is missing, declare it, then: muster apply",
			errorSet{tasks.ErrNoQueue}},
		{nil, "wait until the other process has ended, or give another --identity", errorSet{tasks.ErrHeld}},
		{nil, "muster queue batches {queue} lists those that there are", errorSet{tasks.ErrNoBatch}},
		{nil, "muster queue batches {batch}", errorSet{tasks.ErrNoDead}},
		{errUnreadable, "delete that znode with another program; live processes then delete its tasks",
			errorSet{tasks.ErrManifest}},
		// The batch is not in a state in which what was asked for can be done.
		{errIncomplete, "muster queue retry {batch}, or: muster queue drop {batch}", errorSet{store.ErrDead}},
		{errIncomplete, "muster queue cancel {batch}, then submit it again", errorSet{store.ErrBroken}},
		{errIncomplete, "submit it again with its --id, or: muster queue cancel {batch}",
			errorSet{tasks.ErrLost, store.ErrNoBatch}},
		{errIncomplete, "wait for that; if its submitter is gone, submit it again with its --id",
			errorSet{tasks.ErrSubmitting}},
		{errIncomplete, "muster queue batches {batch} shows what is left of them", errorSet{tasks.ErrGoesOn}},
		{errIncomplete, "wait until the watcher has ended, or stop it", errorSet{store.ErrClaimed}},
		{errIncomplete, "muster queue batches {batch}", errorSet{tasks.ErrCancelled, tasks.ErrIncomplete}},
	}, "{queue}", text.ShellWord(f.path), "{root}", text.ShellWord(path.Dir(f.path)), "{batch}", f.words())
}
