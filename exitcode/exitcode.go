// Package exitcode is the table of muster's exit codes: one meaning each, in every command. Which one a command ends
// with is decided in cli. A test holds the tables of README.md and docs/exit-codes.md against this one.
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
	Terminate   = Signal + 15
)

// Row is what one code means, or several that belong together.
type Row struct {
	Codes   []int
	Name    string // in a report
	Meaning string // in the documentation
}

// Table has a row for each code that is not a command's own.
func Table() []Row {
	return []Row{
		{[]int{Done}, "done", "done, or clean"},
		{[]int{Error}, "error", "error: the configuration, a file, standard output, or a defect"},
		{[]int{Differences}, "differences", "differences: `plan --detailed-exitcode`, `drift`, `fmt --check`; " +
			"`apply --detailed-exitcode` that changed something"},
		{[]int{Attention}, "something needs attention", "attention: a declared job is blocked or waiting, " +
			"or something could not be read; `submit --wait`: some tasks are dead"},
		{[]int{Incomplete}, "incomplete", "incomplete: a change was refused because the job moved, failed, " +
			"or its outcome is unknown; `terminate` timed out; " +
			"a request to the clerk of a group was refused, not answered in time, or moved nothing; " +
			"a batch of a queue was cancelled or lost, or is not in a state in which this can be done; " +
			"`muster wait JOB` ran out of time, or what it waited for was deleted"},
		{[]int{Refused}, "saved plan refused", "saved plan refused: a row moved, already applied, another ensemble, " +
			"damaged, expired. Nothing was written"},
		{[]int{Locked}, "an apply was in the way", "the apply lock was not obtained; " +
			"`drift` could not wait out an apply; another `muster op` runs the operation"},
		{[]int{Declined}, "declined", "declined, at the prompt or by a guard (`--allow-empty`, `--max-delete`); " +
			"`init` where a configuration is; " +
			"another script opened the operation (`--adopt`); another batch has this `--id`"},
		{[]int{Unreachable}, "ZooKeeper could not be reached, or did not allow it", "ZooKeeper unreachable, " +
			"or did not answer a process in time; session lost; not authorised; " +
			"Redis, for executors, watchers and commands about batches"},
		{[]int{Usage}, "bad usage", "bad usage; no terminal and no `--yes`"},
		{[]int{NotJoined}, "not joined in time", "worker, member, executor, watcher: not joined in time; " +
			"inside its command: " +
			"`muster wait` or `get` ran out of time, or `muster barrier` or `muster members` did while no server answered"},
		{[]int{Aborted}, "a barrier was aborted", "worker: a barrier was aborted"},
		{[]int{Fenced}, "somebody else is this worker", "worker, member, executor, watcher: " +
			"somebody else has its identity; inside the command of a duty: its member does not hold the duty any more"},
		{[]int{Full}, "the job is full", "worker: the job is full; " +
			"`muster publish`, `state`, `op`, `step` and `submit`: too large, or too many"},
		{[]int{NoJob}, "no such job, group or duty", "worker, member, `muster wait JOB`: no such job or group; " +
			"of a command about a duty: no such group, duty, key or open operation; " +
			"no such queue or batch, or it has no dead tasks"},
		{[]int{CannotRun, NotFound}, "no command", "worker, member, executor, watcher: its command " +
			"cannot be run, or is not there; 126 also if that of `executor --lines` never answers"},
		{[]int{Signal}, "ended by a signal", "worker, member: its command was ended by signal n; " +
			"any other code is its command's own"},
		{[]int{Hangup, Interrupt, Terminate}, "stopped by a signal", "stopped by SIGHUP, SIGINT, SIGTERM after " +
			"finishing what was in flight; a worker or member: before its command was started; " +
			"an executor or watcher: whatever its commands ended with; 143 also by `muster terminate`"},
	}
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
