package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/group"
	"muster/group/schedule"
	"muster/member/ticks"
	"muster/zkstate/znode"
)

// The holder of a cron duty writes, below run/<g>/duty/<d>:
//
//	cursor       the last tick that has a fate
//	tick/<time>  a run, or a range of ticks that did not run; named after the (last) tick
//	now/n-<10>   a run that an operator asked for; the holder claims it by setting it
//
// Package ticks decides. Each decision is one transaction, which checks the gate, the duty and held as every write of a
// holder does. One that moves the cursor sets it at the version read, since the assigner sets it too when a pause ends.
// One that moves the cursor or starts a run checks the Record and the seat: who has old orders starts nothing. The run
// begins after the commit. So:
//
//	a holder dies before the commit   nothing was claimed; the next holder decides again
//	after it                          the run is recorded as running by an epoch that has ended: it is lost
//	before the end is written         the same, even if its work was done
//	after that                        nothing is open but runs that wait, which the next holder continues
//
// The last transaction of a hold deletes held, so that what it decided and the release are one.

// ErrTimeout means that a run took longer than the timeout of its duty. Stop it.
var ErrTimeout = errors.New("the run took longer than its timeout")

// heartbeat is how often a holder looks whether its clock was set.
const heartbeat = 10 * time.Second

// Run is one attempt of a run of a cron duty.
type Run struct {
	Duty    string
	Tick    time.Time // in UTC; zero: an operator asked for it
	Asked   int64     // the number of that request, from 1; 0: it is a tick
	Attempt int       // from 1
	Epoch   int64     // of the hold
	Hold    *Hold
}

// Ended is how an attempt ended.
type Ended struct {
	Result  ticks.Result
	Exit    int    // exit code; 128+n for a signal
	Tail    []byte // the end of the output; 4 KiB of it are kept
	Because string // for people; may be empty
	// ByItself says that the attempt ended before it was asked to stop: then Result is what is recorded, whatever has
	// ended since.
	ByItself bool
}

// RunTicks does a cron duty whenever the assigner gives it to this member: it takes the duty, claims the ticks that are
// due, calls run for each attempt, one at a time, and records how it ended.
//
// The context of run ends when run must stop. Its cause is ErrTimeout, the cause of ctx, or the reason why the duty was
// lost, as in Lead. A run that was stopped by its timeout has failed, and one that was stopped because ctx ended is
// interrupted, which counts as lost, even if run returns Succeeded then: a command may well exit with 0 on a signal.
// ByItself prevents that. A hand-over stops no run.
//
// RunTicks returns the cause when ctx or the membership ends, after run has returned and its end is written. Call Leave
// after that. Any other error means that ZooKeeper refuses what a member needs.
func (m *Member) RunTicks(ctx context.Context, duty string, run func(ctx context.Context, r Run) Ended) error {
	for {
		h, err := m.Take(ctx, duty)
		if err != nil {
			return err
		}
		c := &cron{m: m, h: h, do: run, cursor: -1}
		err = c.serve(ctx)
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case err != nil && h.ctx.Err() == nil:
			return fmt.Errorf("%s: %w", duty, errors.Join(err, h.Resign(m.ctx, true, err.Error())))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// cron is a cron duty that this process holds. One goroutine uses it.
type cron struct {
	m  *Member
	h  *Hold
	do func(ctx context.Context, r Run) Ended

	duty  group.Duty // as it was last declared
	sched schedule.Schedule

	state   ticks.State
	cursor  int32                       // version; -1: there is no cursor
	records map[string]znode.TickRecord // by path
	asked   []int64                     // requests that are not claimed
	asks    <-chan struct{}             // closed at the next one

	taken   bool      // the first decision is written
	leave   bool      // nothing may start any more
	running *attempt  // nil: none
	ended   *end      // how running ended; nil: it goes on
	again   time.Time // look again then; zero: never
	tries   int       // how often a write was refused without a success

	clock clockCheck
}

// attempt is a run that goes on in this process.
type attempt struct {
	run   ticks.Run
	ended chan Ended // receives one
	stop  context.CancelCauseFunc
}

// end is how an attempt ended, and when.
type end struct {
	Ended
	at time.Time
}

// serve works until the duty is given back or lost.
func (c *cron) serve(ctx context.Context) error {
	defer c.abandon()
	err := c.compareClock()
	if err == nil {
		err = c.load()
	}
	if err != nil {
		return c.m.removed(err)
	}
	if c.clock.wrong { // what an earlier holder left is for the next one
		return c.h.Resign(c.m.ctx, true, c.wrongClock())
	}
	for {
		o, released, err := c.settle(ctx)
		if released || err != nil {
			return err
		}
		if err := c.wait(ctx, o); err != nil {
			return err
		}
	}
}

// wait waits until there is something to decide.
func (c *cron) wait(ctx context.Context, o orders) error {
	handOver, left := c.h.HandOver(), ctx.Done()
	if c.leave {
		handOver, left = nil, nil
	}
	var ended chan Ended
	if c.running != nil {
		ended = c.running.ended
	}
	for {
		pause := heartbeat
		if !c.again.IsZero() {
			pause = min(pause, max(0, c.again.Sub(c.now())))
		}
		timer := time.NewTimer(pause)
		select {
		case <-handOver:
		case <-left:
		case <-o.changed:
		case <-c.asks:
		case e := <-ended:
			c.ended = &end{e, c.now()}
		case <-c.h.ctx.Done():
			timer.Stop()
			return context.Cause(c.h.ctx)
		case <-timer.C:
			if !c.clock.jumped(c.m.clock()) && (c.again.IsZero() || c.again.After(c.now())) {
				continue
			}
		}
		timer.Stop()
		return nil
	}
}

// start begins what is recorded as running, unless this process runs it already.
func (c *cron) start(ctx context.Context) {
	if c.running != nil {
		return
	}
	for _, r := range c.state.Runs {
		if r.Running {
			c.running = c.attempt(ctx, r)
			return
		}
	}
}

// attempt calls the function of the user.
func (c *cron) attempt(ctx context.Context, r ticks.Run) *attempt {
	timed, cancel := context.WithTimeoutCause(c.h.ctx, time.Duration(c.duty.Timeout), ErrTimeout)
	rctx, stop := context.WithCancelCause(timed)
	a := &attempt{run: r, ended: make(chan Ended, 1), stop: stop}
	run := Run{
		Duty: c.h.Duty, Tick: r.Tick, Asked: r.Asked, Attempt: r.Attempt, Epoch: c.h.Epoch, Hold: c.h,
	}
	c.emit(EventRunStarted, nameOfRun(r))
	go func() {
		defer cancel()
		watch := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
		e := judge(c.do(rctx, run), context.Cause(rctx))
		watch()
		stop(nil)
		a.ended <- e
	}()
	return a
}

// judge says how an attempt ended that was stopped because of cause; nil if it was not.
func judge(e Ended, cause error) Ended {
	switch {
	case cause == nil || e.ByItself || e.Result == ticks.NotStarted:
		return e
	case errors.Is(cause, ErrTimeout):
		e.Result = ticks.Unsuccessful
	default:
		e.Result = ticks.Interrupted
	}
	if e.Because == "" {
		e.Because = cause.Error()
	}
	return e
}

// abandon stops what still goes on, and waits for it. Its end is not written.
func (c *cron) abandon() {
	if c.running != nil && c.ended == nil {
		c.running.stop(ErrNotHeld)
		<-c.running.ended
	}
}

// emit tells the readers of Events.
func (c *cron) emit(kind EventKind, text string) {
	c.m.emit(Event{Kind: kind, Duty: c.h.Duty, Epoch: c.h.Epoch, Text: text})
}

// nameOfRun is a run for people.
func nameOfRun(r ticks.Run) string {
	name := r.Tick.Format(time.RFC3339)
	if r.Asked != 0 {
		name = fmt.Sprintf("asked for, number %d", r.Asked)
	}
	if r.Attempt > 1 {
		name = fmt.Sprintf("%s, attempt %d", name, r.Attempt)
	}
	return name
}
