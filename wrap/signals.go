package wrap

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// Signals are those that a worker passes on to its command. A caller of Run catches all of them before it calls: a
// signal that is meant for the command must not end the worker.
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
}

// asksToEnd reports whether sig asks a command to end. A hang-up often means only "read your configuration again".
func asksToEnd(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}, sig)
}

// endsWaiting reports whether sig ends a worker while no command runs: these signals would have ended the command.
func endsWaiting(sig os.Signal) bool { return asksToEnd(sig) || sig == syscall.SIGHUP }

// signalName is the name that an operator searches for: "SIGTERM", where a syscall.Signal says "terminated".
func signalName(sig syscall.Signal) string {
	names := [...]string{
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL",
		syscall.SIGABRT: "ABRT", syscall.SIGFPE: "FPE", syscall.SIGKILL: "KILL", syscall.SIGSEGV: "SEGV",
		syscall.SIGPIPE: "PIPE", syscall.SIGTERM: "TERM", syscall.SIGBUS: "BUS", syscall.SIGUSR1: "USR1",
		syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH", syscall.SIGCONT: "CONT",
	}
	if int(sig) < len(names) && names[sig] != "" {
		return "SIG" + names[sig]
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// Echo is how soon the same signal again is not a second request: timeout(1) signals its child, and then the child's
// whole group.
const Echo = 200 * time.Millisecond

// step does something while no command runs. A signal that would have ended the command ends the step, after the delay.
func step(ctx context.Context, signals <-chan os.Signal, delay time.Duration, f func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil && delay == 0 { // also if f has succeeded meanwhile
				err = context.Cause(ctx)
			}
			return err
		case sig := <-signals:
			if !endsWaiting(sig) {
				continue
			}
			why := signalError(sig.(syscall.Signal))
			if delay == 0 {
				stop(why) // before done is looked at again: f may be about to end
			} else {
				time.AfterFunc(delay, func() { stop(why) })
			}
		}
	}
}
