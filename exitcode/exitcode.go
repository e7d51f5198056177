// Package exitcode holds muster's exit codes: one meaning each, in every command. docs/exit-codes.md says what they
// mean and what to do then; which one a command ends with is decided in cli.
package exitcode

import "fmt"

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

// Name is how a run with this code ended, in words.
func Name(code int) string {
	switch code {
	case Done:
		return "done"
	case Error:
		return "error"
	case Differences:
		return "differences"
	case Attention:
		return "something needs attention"
	case Incomplete:
		return "incomplete"
	case Refused:
		return "saved plan refused"
	case Locked:
		return "an apply was in the way"
	case Declined:
		return "declined"
	case Unreachable:
		return "ZooKeeper could not be reached, or did not allow it"
	case Usage:
		return "bad usage"
	case NotJoined:
		return "not joined in time"
	case Aborted:
		return "a barrier was aborted"
	case Fenced:
		return "somebody else is this worker"
	case Full:
		return "the job is full"
	case NoJob:
		return "no such job, group or duty"
	case CannotRun, NotFound:
		return "no command"
	case Signal:
		return "ended by a signal"
	case Hangup, Interrupt, Terminate:
		return "stopped by a signal"
	case Abort:
		return "aborted"
	}
	return fmt.Sprintf("exit code %d", code)
}
