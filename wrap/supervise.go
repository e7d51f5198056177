package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// groupCheck is how often to look whether a group whose leader has ended is empty: its processes are not children of
// this one, so it cannot wait for them.
const groupCheck = 20 * time.Millisecond

// killLimit is how long a group may take to end after SIGKILL: long, because on a machine with too much to do even that
// takes seconds. A process that takes longer is left to the kernel.
const killLimit = 20 * time.Second

// commandEnd is how a command, and then the rest of its group, ended.
type commandEnd struct {
	exitStatus
	asked      syscall.Signal // the first signal that asked it to end; 0 if it ended by itself
	cause      error          // why it was stopped, if the context or the membership ended first
	killed     bool           // the grace was over, somebody asked twice, or the membership was lost
	restKilled bool           // it left processes behind that had to be killed
	left       bool           // not even SIGKILL ended all of its group in time
}

// endWithin is the cause of a context that asks a command to end, and gives it another grace than the supervisor's.
type endWithin struct {
	grace time.Duration
	why   error
}

func (e *endWithin) Error() string { return e.why.Error() }
func (e *endWithin) Unwrap() error { return e.why }

// errUnkillable is why the status of a command is not known.
var errUnkillable = fmt.Errorf("it did not end within %s of SIGKILL", killLimit)

// supervisor passes signals on to a running command. When the command has ended it ends the rest of the group: what a
// member has started must not outlive the membership.
type supervisor struct {
	command *command
	grace   time.Duration // between being asked to end and SIGKILL
	rest    time.Duration // likewise for what the command leaves behind, if it is not 0
	echo    time.Duration // in which the same signal is the same request
	onAsked func()        // unless nil, called when the command is asked to end
	lost    <-chan error  // why to kill the whole group at once; the context may end as well, but not before

	end     commandEnd
	exited  bool     // the command has ended; its group may have not
	request struct { // the last signal passed on that asks to end, if there was one
		signal os.Signal
		at     time.Time
	}

	graceOver <-chan time.Time
	checkNow  <-chan time.Time // time to look whether the group is empty
	giveUp    <-chan time.Time // time to leave the group to the kernel
}

// run returns when the group has ended. The end of ctx asks the command to end, as SIGTERM does.
func (s *supervisor) run(ctx context.Context, signals <-chan os.Signal) commandEnd {
	exited, stop := s.command.exited, ctx.Done()
	for {
		select {
		case s.end.exitStatus = <-exited:
			exited, stop = nil, nil
			if !s.endRest() {
				return s.end
			}
		case <-s.checkNow:
			if !s.command.signalGroup(0) {
				return s.end
			}
		case sig := <-signals:
			s.forward(sig)
		case <-stop:
			stop = nil
			if len(s.lost) > 0 {
				continue
			}
			cause := context.Cause(ctx)
			if e, ok := errors.AsType[*endWithin](cause); ok {
				s.grace = e.grace
			}
			if !s.command.hasExited() { // or else it has ended by itself
				s.end.cause = cause
				s.askToEnd(syscall.SIGTERM)
			}
		case cause := <-s.lost:
			stop = nil
			if !s.exited && !s.command.hasExited() {
				s.end.cause = cause
			}
			s.killGroup()
		case <-s.graceOver:
			s.killGroup()
		case <-s.giveUp:
			s.end.left = true
			if !s.exited {
				s.end.err = errUnkillable
			}
			return s.end
		}
	}
}

// forward passes a signal on. The second one that asks to end kills the group at once.
func (s *supervisor) forward(sig os.Signal) {
	switch {
	case !asksToEnd(sig):
		s.command.signal(sig)
	case sig == s.request.signal && time.Since(s.request.at) < s.echo:
	case s.request.signal != nil || s.exited:
		s.killGroup()
	default:
		s.request.signal, s.request.at = sig, time.Now()
		s.askToEnd(sig.(syscall.Signal))
	}
}

// askToEnd asks the command to end within the grace.
func (s *supervisor) askToEnd(sig syscall.Signal) {
	s.command.signal(sig)
	if s.end.asked == 0 {
		s.end.asked = sig
		s.graceOver = time.After(s.grace)
		if s.onAsked != nil {
			s.onAsked()
		}
	}
}

// endRest asks what is left of the group to end, and reports whether anything is.
func (s *supervisor) endRest() bool {
	s.exited = true
	if !s.command.signalGroup(syscall.SIGTERM) {
		return false
	}
	s.checkNow = time.Tick(groupCheck)
	switch {
	case s.end.killed:
		s.giveUp = time.After(killLimit)
	case s.rest > 0:
		s.graceOver = time.After(min(s.rest, s.grace))
	case s.graceOver == nil:
		s.graceOver = time.After(s.grace)
	}
	return true
}

func (s *supervisor) killGroup() {
	s.graceOver = nil
	s.command.signalGroup(syscall.SIGKILL)
	if s.exited {
		s.end.restKilled = s.end.restKilled || s.giveUp == nil
	} else {
		s.end.killed = true
	}
	if s.giveUp == nil {
		s.giveUp = time.After(killLimit)
	}
}
