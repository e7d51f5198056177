// Package exitcode holds muster's exit codes: one meaning each, in every command. docs/exit-codes.md says what they
// mean and what to do then; which one a command ends with is decided in cli.
package exitcode

import (
	"cmp"
	"fmt"
)

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
	GangFailed  = 75
	CannotRun   = 126
	NotFound    = 127
	Signal      = 128 // and the number of the signal
	Hangup      = Signal + 1
	Interrupt   = Signal + 2
	Abort       = Signal + 6
	Terminate   = Signal + 15
)

// Name is how a run with this code ended, in words.
func Name(code int) string {
	return cmp.Or(map[int]string{
		Done:        "done",
		Error:       "error",
		Differences: "differences",
		Attention:   "something needs attention",
		Incomplete:  "incomplete",
		Refused:     "saved plan refused",
		Locked:      "an apply was in the way",
		Declined:    "declined",
		Unreachable: "ZooKeeper could not be reached, or did not allow it",
		Usage:       "bad usage",
		NotJoined:   "not joined in time",
		Aborted:     "a barrier was aborted",
		Fenced:      "somebody else is this worker",
		Full:        "the job is full",
		NoJob:       "no such job, group or duty",
		GangFailed:  "the gang has failed",
		CannotRun:   "no command",
		NotFound:    "no command",
		Signal:      "ended by a signal",
		Hangup:      "stopped by a signal",
		Interrupt:   "stopped by a signal",
		Terminate:   "stopped by a signal",
		Abort:       "aborted",
	}[code], fmt.Sprintf("exit code %d", code))
}
