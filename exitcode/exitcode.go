// Package exitcode is the table of muster's exit codes: one meaning each, in every command. Which one a command ends
// with is decided in cli. A test holds the table of docs/exit-codes.md against this one.
package exitcode

import (
	"fmt"
	"slices"
)

// The codes.
const (
	Done        = 0
	Error       = 1
	Differences = 2
	Attention   = 3
	Incomplete  = 4
	Refused     = 5
	Locked      = 6
	Declined    = 7
	Unreachable = 8
	Usage       = 64
	NotJoined   = 70
	Aborted     = 71
	Fenced      = 72
	Full        = 73
	NoJob       = 74
	CannotRun   = 126
	NotFound    = 127
	Signal      = 128 // and the number of the signal
	Hangup      = Signal + 1
	Interrupt   = Signal + 2
	Abort       = Signal + 6
	Terminate   = Signal + 15
)

// Row is what one code means, or several that belong together.
type Row struct {
	Codes   []int
	Name    string // in a report
	Meaning string // in the documentation
	Remedy  string // what to do then, in the documentation; may be empty
}

// Table has a row for each code that is not a command's own.
func Table() []Row {
	return []Row{
		{[]int{Done}, "done", "done, or clean", ""},
		{[]int{Error}, "error", "error: the configuration, a file, standard output, a report, " +
			"an address that another process listens at, or a defect",
			"read standard error; never anything else has this code"},
		{[]int{Differences}, "differences", "differences: `plan --detailed-exitcode`, `drift`, `fmt --check`; " +
			"`apply --detailed-exitcode` that changed something",
			"look at the plan"},
		{[]int{Attention}, "something needs attention", "attention: a declared job is blocked or waiting, " +
			"or something could not be read; `submit --wait`: some tasks are dead",
			"the output names what, and the next command"},
		{[]int{Incomplete}, "incomplete", "incomplete: a change was refused because the job moved, failed, " +
			"or its outcome is unknown; `terminate` timed out; " +
			"a request to the assigner of a group was refused, not answered in time, or moved nothing; " +
			"a batch of a queue was cancelled or lost, or is not in a state in which this can be done; " +
			"`muster wait JOB` ran out of time, or what it waited for was deleted",
			"plan again; of a group, or after `muster wait`: `muster status NAME`"},
		{[]int{Refused}, "saved plan refused", "saved plan refused: a row moved, already applied, another ensemble, " +
			"damaged, expired. Nothing was written",
			"make a new plan"},
		{[]int{Locked}, "an apply was in the way", "the apply lock was not obtained; " +
			"`drift` could not wait out an apply; another `muster op` runs the operation",
			"wait, or `--lock-timeout`, `--wait-lock`"},
		{[]int{Declined}, "declined", "declined, at the prompt or by a guard (`--allow-empty`, `--max-delete`); " +
			"`init` where a configuration is; " +
			"another script opened the operation (`--adopt`); another batch has this `--id`",
			"answer the prompt with what it asks for, or give the flag that the message names"},
		{[]int{Unreachable}, "ZooKeeper could not be reached, or did not allow it", "ZooKeeper unreachable, " +
			"or did not answer a process in time; session lost; not authorised; credentials that are not for the server; " +
			"Redis, for executors, watchers and commands about batches",
			"check servers and credentials; after a lost session, plan again"},
		{[]int{Usage}, "bad usage", "bad usage; no terminal and no `--yes`",
			"the message names the flag"},
		{[]int{NotJoined}, "not joined in time", "worker, member, executor, watcher: not joined in time; " +
			"inside its command: " +
			"`muster wait` or `get` ran out of time, or `muster barrier` or `muster members` did while no server answered",
			"start who is missing; for lost connections, which the start barrier can have too, see " +
				"docs/worker.md"},
		{[]int{Aborted}, "a barrier was aborted", "worker: a barrier was aborted",
			"the message says whether that is final. The start barrier, and `muster barrier --retry`: start " +
				"or call again, as the others do; otherwise another round"},
		{[]int{Fenced}, "somebody else is this worker", "worker, member, executor, watcher: " +
			"somebody else has its identity; inside the command of a duty: its member does not hold the duty any more",
			"let each process have an `--identity` of its own; one that was replaced may just end"},
		{[]int{Full}, "the job is full", "worker: the job is full; " +
			"`muster publish`, `state`, `op`, `step` and `submit`: too large, or too many",
			"the message says what is too large or too many: raise `workers`, or save less"},
		{[]int{NoJob}, "no such job, group or duty", "worker, member, `muster wait JOB`: no such job or group; " +
			"of a command about a duty: no such group, duty, key or open operation; " +
			"no such queue or batch, or it has no dead tasks",
			"check the name and `--root`: `muster status` shows what is there; `muster apply` creates what " +
				"is declared"},
		{[]int{CannotRun, NotFound}, "no command", "worker, member, executor, watcher: its command " +
			"cannot be run, or is not there; 126 also if that of `executor --lines` never answers",
			"check the command after `--`: its name, the PATH, its permissions"},
		{[]int{Signal}, "ended by a signal", "worker, member: its command was ended by signal n; " +
			"any other code is its command's own",
			"the last line says whose it is"},
		{[]int{Hangup, Interrupt, Terminate}, "stopped by a signal", "stopped by SIGHUP, SIGINT, SIGTERM after " +
			"finishing what was in flight; a worker or member: before its command was started; " +
			"an executor or watcher: whatever its commands ended with; 143 also by `muster terminate`",
			"plan again; a worker may be started again"},
		{[]int{Abort}, "aborted", "muster was aborted (SIGABRT): memory ran out, or a defect",
			"raise the limit of memory, then the same again; after an apply, plan again"},
	}
}

// Of returns the row of a code. The codes of commands that a signal ended have the row of Signal, unless they have one
// of their own; ok is false for what is only a command's.
func Of(code int) (row Row, ok bool) {
	const lastSignal = 64
	for _, c := range []int{code, Signal} {
		for _, row := range Table() {
			if slices.Contains(row.Codes, c) {
				return row, true
			}
		}
		if code <= Signal || code > Signal+lastSignal {
			break
		}
	}
	return Row{}, false
}

// Name is how a run with this code ended, in words.
func Name(code int) string {
	for _, row := range Table() {
		if slices.Contains(row.Codes, code) {
			return row.Name
		}
	}
	return fmt.Sprintf("exit code %d", code)
}
