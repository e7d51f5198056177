package wrap

import (
	"context"
	"os"
	"syscall"
	"time"
)

// emptyCheck is how often a group whose leader has ended is looked at: its processes are not ours to wait for.
const emptyCheck = 20 * time.Millisecond

// unkillable is how long a group may take to end after SIGKILL. What hangs in the kernel for longer is left to it.
const unkillable = 5 * time.Second

// ending is how a command, and then the rest of its group, ended.
type ending struct {
	ended
	asked  syscall.Signal // the first that asked it to end; 0 if it ended by itself
	why    error          // that it was stopped for, if the context or the membership ended before it did
	killed bool           // the grace was over, somebody asked twice, or the membership was lost
	rest   bool           // it left processes behind that had to be killed
}

// overseer passes signals on to a running command, and sees to it that nothing of its group is left when it has ended: what
// a member started must not outlive the membership.
type overseer struct {
	command *command
	grace   time.Duration // between being asked to end and SIGKILL
	echo    time.Duration // in which the same signal is the same request
	asked   func()        // called when the command is asked to end, unless nil
	lost    <-chan error  // why the whole group is to be killed at once; the context may end as well, but not before

	ending ending
	over   bool     // the command has ended; its group may have not
	passed struct { // the signal that asks to end that was passed on, if any was
		sig os.Signal
		at  time.Time
	}

	kill  <-chan time.Time // the end of the grace
	empty <-chan time.Time // time to look at the group
	limit <-chan time.Time // time to give the group up
}

// run returns when the group has ended. The end of ctx asks the command to end, as SIGTERM does.
func (o *overseer) run(ctx context.Context, signals <-chan os.Signal) ending {
	leader, stop := o.command.ended, ctx.Done()
	for {
		select {
		case o.ending.ended = <-leader:
			leader, stop = nil, nil
			if !o.sweep() {
				return o.ending
			}
		case <-o.empty:
			if !o.command.signalGroup(0) {
				return o.ending
			}
		case sig := <-signals:
			o.pass(sig)
		case <-stop:
			stop = nil
			if len(o.lost) == 0 {
				o.ending.why = context.Cause(ctx)
				o.ask(syscall.SIGTERM)
			}
		case why := <-o.lost:
			stop = nil
			if !o.over {
				o.ending.why = why
			}
			o.killGroup()
		case <-o.kill:
			o.killGroup()
		case <-o.limit:
			return o.ending
		}
	}
}

// pass hands a signal on. The second that asks to end means at once.
func (o *overseer) pass(sig os.Signal) {
	switch {
	case !stops(sig):
		o.command.signal(sig)
	case sig == o.passed.sig && time.Since(o.passed.at) < o.echo:
	case o.passed.sig != nil || o.over:
		o.killGroup()
	default:
		o.passed.sig, o.passed.at = sig, time.Now()
		o.ask(sig.(syscall.Signal))
	}
}

// ask asks the command to end within the grace.
func (o *overseer) ask(sig syscall.Signal) {
	o.command.signal(sig)
	if o.ending.asked == 0 {
		o.ending.asked = sig
		o.kill = time.After(o.grace)
		if o.asked != nil {
			o.asked()
		}
	}
}

// sweep asks what is left of the group to end, and reports whether anything is.
func (o *overseer) sweep() bool {
	o.over = true
	if !o.command.signalGroup(syscall.SIGTERM) {
		return false
	}
	o.empty = time.Tick(emptyCheck)
	switch {
	case o.ending.killed:
		o.limit = time.After(unkillable)
	case o.kill == nil:
		o.kill = time.After(o.grace)
	}
	return true
}

func (o *overseer) killGroup() {
	o.kill = nil
	o.command.signalGroup(syscall.SIGKILL)
	switch {
	case !o.over:
		o.ending.killed = true
	case o.limit == nil:
		o.ending.rest = true
		o.limit = time.After(unkillable)
	}
}
