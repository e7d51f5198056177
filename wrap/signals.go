package wrap

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// Signals are those that a worker passes on to its command. Whoever calls Run catches them all, from before it joins: what
// the command should be told must not end the worker that would tell it.
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
}

// stops reports whether sig asks a command to end. A hang-up often means no more than "read your configuration again".
func stops(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}, sig)
}

// withdraws reports whether sig ends a worker that has not started its command: there is nobody to pass it on to, and
// these are the signals that would have ended it.
func withdraws(sig os.Signal) bool { return stops(sig) || sig == syscall.SIGHUP }

// signalName is what an operator greps for; the text of a syscall.Signal ("terminated") is not.
func signalName(sig syscall.Signal) string {
	names := [...]string{
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL", syscall.SIGABRT: "ABRT",
		syscall.SIGFPE: "FPE", syscall.SIGKILL: "KILL", syscall.SIGSEGV: "SEGV", syscall.SIGPIPE: "PIPE", syscall.SIGTERM: "TERM",
		syscall.SIGBUS: "BUS", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH", syscall.SIGCONT: "CONT",
	}
	if int(sig) < len(names) && names[sig] != "" {
		return "SIG" + names[sig]
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// Echo is how soon the same signal again is no second request: timeout(1) signals its child, and then the child's whole group.
const Echo = 200 * time.Millisecond
