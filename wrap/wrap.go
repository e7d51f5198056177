// Package wrap runs a command as a member of a job. It waits for ZooKeeper, opens a session and joins. It then starts
// the command, passes signals on, joins again when a session is lost, and leaves as the command has ended.
//
// The exit code is the command's whenever the command has ended by itself or by a signal. A worker's own codes say
// what kept the command from running or took the membership away. When Run returns, nothing of the command's process
// group is left.
//
// The package knows neither flags nor servers: its caller says how to open a session and how to create a missing job.
// As process 1 it reaps every child process, so the command must be the only one that it has.
package wrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"muster/worker"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// Start says what a worker waits for between its join and the start of its command.
type Start string

// A command starts as soon as its worker has joined; when all have joined; or when all are live at one moment.
const (
	StartJoined  Start = "joined"
	StartAll     Start = "all"
	StartBarrier Start = "barrier"
)

// OnLoss says what becomes of a command when its worker loses the session.
type OnLoss string

// LossRejoin lets the command go on while the worker joins again. If another process has taken the identity over, both
// commands run until this worker finds out; then its command is asked to end within the grace.
//
// LossStop kills the command and all of its process group as soon as the membership has ended, without a grace: from
// then on ZooKeeper may make another process this worker.
const (
	LossRejoin OnLoss = "rejoin"
	LossStop   OnLoss = "stop"
)

// Config says what to run, and as which member of a job.
type Config struct {
	Life // its JoinTimeout is also for all to join

	// Idle is called instead of a command if there is none. It returns when ctx ends. If it fails after m has lost its
	// session, it is called again with the next Member.
	Idle func(ctx context.Context, m *worker.Member) error

	Start  Start
	OnLoss OnLoss // empty: LossStop in a gang, else LossRejoin

	// Worker says who joins which job. Without an Info.IP the address is what LocalIP returns, and a free port.
	// Without an Identity the address is the identity.
	Worker  worker.Config
	LocalIP func(ctx context.Context) (net.IP, error)
	// Create, unless nil, creates the job if it is missing. Without it a missing job is waited for.
	Create func(ctx context.Context, s *zkconn.Session) error

	Unstable func(identity string)  // unless nil, called with an identity that is only the address
	Joined   func(m *worker.Member) // unless nil, called after the first join
}

// Why a worker does not start its command, or stops it, besides the errors of package worker.
var (
	// ErrLate means that the time was over before the worker had joined, or while no server answered it. Start it
	// again.
	ErrLate = errors.New("time is over")
	// ErrHealth means that the health server cannot listen at its address. Choose another address.
	ErrHealth = errors.New("nothing can be served there")
	// ErrTerminated means that the workers of the job, or the members of the group, were asked to stop. Exit as after
	// SIGTERM.
	ErrTerminated = errors.New("muster terminate asked everybody to stop")
)

// stopped is why a process has ended that a signal asked to.
type stopped syscall.Signal

func (e stopped) Error() string { return "stopped by " + command.SignalName(syscall.Signal(e)) }

// endsWaiting reports whether sig ends a worker while no command runs: these signals would have ended the command.
func endsWaiting(sig os.Signal) bool { return command.AsksToEnd(sig) || sig == syscall.SIGHUP }

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
			why := fmt.Errorf("%w while no command ran", stopped(sig.(syscall.Signal)))
			if delay == 0 {
				stop(why) // before done is looked at again: f may be about to end
			} else {
				time.AfterFunc(delay, func() { stop(why) })
			}
		}
	}
}
