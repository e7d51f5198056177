package member

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/group"
	"muster/group/schedule"
	"muster/member/ticks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// look reads the clock, and what was asked for since.
func (c *cron) look() (now time.Time, err error) {
	now = c.m.clock() // read once: it may be set at any moment
	if c.clock.jumped(now) {
		err = c.compareClock()
		now = c.clock.wall
	}
	if err == nil && isClosed(c.asks) {
		err = c.readAsks()
	}
	return now, err
}

// settle decides until there is nothing to decide now. It returns the orders of the last decision, and whether the duty
// was given back.
func (c *cron) settle(ctx context.Context) (_ orders, released bool, _ error) {
	for {
		o := c.m.orders()
		now, err := c.look()
		if err == nil && !c.declared(o) {
			return o, true, c.h.Resign(c.m.ctx, true, "this member does it as a cron, and it is declared as a leader")
		}
		if err == nil && c.duty.Name == "" { // it was taken out since: without a schedule nothing is decided
			return o, true, c.h.Release(c.m.ctx)
		}
		var d ticks.Decision
		var written func()
		if err == nil {
			// What was read says so before HandOver does.
			handOver := isClosed(c.h.HandOver()) || !o.wants(c.h.Duty)
			c.leave = c.leave || c.clock.wrong || ctx.Err() != nil || handOver
			d, written = c.decide(now.Add(-c.clock.ahead))
			err = c.write(d, o)
		}
		switch {
		case c.h.ctx.Err() != nil && d.Release && errors.Is(context.Cause(c.h.ctx), context.Canceled):
			c.over() // if the reply was lost, the watch of held may tell first
			return o, true, nil
		case c.h.ctx.Err() != nil:
			return o, false, context.Cause(c.h.ctx)
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return o, false, err
		}
		c.tries, c.state, c.again = 0, d.State, d.Again
		if written != nil {
			written()
		}
		c.start(ctx)
		if written == nil {
			return o, false, nil
		}
	}
}

// decide decides about the first thing that happened. written is to be called when the decision is written; nil if
// nothing happened but that time passed.
func (c *cron) decide(now time.Time) (d ticks.Decision, written func()) {
	decider := ticks.Cron{Schedule: c.sched, Policy: policyOf(c.duty)}
	if c.leave {
		decider.Mode = ticks.Leaving
	}
	switch {
	case !c.taken:
		return decider.Taken(c.state, now), func() { c.taken = true }
	case c.ended != nil:
		return decider.Ended(c.state, c.ended.Result, now), c.over
	case len(c.asked) > 0 && !c.leave:
		n := c.asked[0]
		return decider.Asked(c.state, n, now), func() { // after a lost reply, what was read no longer has it
			c.asked = slices.DeleteFunc(c.asked, func(other int64) bool { return other == n })
		}
	default:
		return decider.Look(c.state, now), nil
	}
}

// over is called when the end of an attempt is written, if there is one.
func (c *cron) over() {
	if c.ended == nil {
		return
	}
	text := nameOfRun(c.running.run)
	if c.ended.Because != "" {
		text += ": " + c.ended.Because
	}
	c.emit(EventRunEnded, text)
	c.running, c.ended = nil, nil
}

// declared takes over how the duty is declared now. A duty that is not declared any more stays as it was: its holder
// has to finish. It is the zero Duty if it was never read. declared returns false if it has become a leader.
func (c *cron) declared(o orders) bool {
	d, ok := o.group.Duty(c.h.Duty)
	switch {
	case ok && d.Type != group.Cron:
		c.leave = true
		return c.running != nil // finish first
	case ok && d != c.duty:
		sched, err := schedule.Parse(d.Schedule, d.Timezone)
		if err != nil {
			break // not possible: the Record was checked when it was read
		}
		c.duty, c.sched = d, sched
	}
	return true
}

// policyOf is what a declaration means to package ticks.
func policyOf(d group.Duty) ticks.Policy {
	missed := map[group.Missed]int{group.MissedSkip: 0, group.MissedLatest: 1, group.MissedAll: ticks.MaxWaiting}
	return ticks.Policy{
		StartDeadline: time.Duration(d.StartDeadline), Missed: missed[d.Missed], Wait: d.Overlap == group.OverlapWait,
		Rerun: d.Lost == group.LostRerun, Retries: d.Retries,
	}
}

// isClosed reports whether a channel is closed to which nothing is sent.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// write writes a decision in one transaction. errAgain means that nothing is written that the decision said: decide
// again.
func (c *cron) write(d ticks.Decision, o orders) error {
	if !d.Write {
		return nil
	}
	changes, err := c.changes(d)
	if err != nil {
		return err
	}
	ops := c.guards(d, o)
	at := len(ops)
	for _, change := range changes {
		ops = append(ops, change.op)
	}
	if d.Release {
		return c.release(d, ops)
	}
	limit := time.Duration(math.MaxInt64) // whatever starts nothing is written as long as the duty is held
	if d.Start != nil {
		limit = c.m.silence
	}
	results, err := c.h.writeWithin(c.h.ctx, limit, ops...)
	if err != nil {
		return c.refused(d, o, err)
	}
	for i, change := range changes {
		c.note(change, results[at+i].Stat.Version)
	}
	return nil
}

// guards are the checks of a decision, besides those of every write of a holder. The Record and the seat are checked if
// it claims a tick or starts a run.
func (c *cron) guards(d ticks.Decision, o orders) []zkconn.Op {
	if d.Release || d.Start == nil && d.State.Cursor == c.state.Cursor {
		return nil
	}
	return []zkconn.Op{zkconn.CheckOp(c.m.recordPath(), o.record), zkconn.CheckOp(c.m.seat, o.seat)}
}

// release writes a decision that gives the duty back.
func (c *cron) release(d ticks.Decision, ops []zkconn.Op) error {
	e := Event{Kind: EventReleased, Duty: c.h.Duty, Epoch: c.h.Epoch}
	var r *znode.Resignation
	if d.Resign || c.clock.wrong {
		r = c.resignation()
		e.Kind, e.Text = EventResigned, r.Because
	}
	resigns, err := c.h.resignOps(r)
	if err != nil {
		return err
	}
	ops = append(ops, resigns...)
	c.h.ending.Store(&e)
	_, err = c.h.write(c.h.ctx, append(ops, zkconn.DeleteOp(c.h.held(), -1))...)
	switch {
	case err == nil, errors.Is(err, ErrNotHeld), c.h.ctx.Err() != nil:
		c.over()
		c.h.over(context.Canceled)
		<-c.h.watched
		return c.h.tellAssigner(c.m.ctx, r, err)
	case !errors.Is(err, zkconn.ErrUnknown): // or else the next try is refused with ErrNotHeld, if it was committed
		c.h.ending.Store(nil)
	}
	return c.refused(d, c.m.orders(), err)
}

// resignation is why this member gives the duty up.
func (c *cron) resignation() *znode.Resignation {
	r := &znode.Resignation{Blame: true}
	switch {
	case c.clock.wrong:
		r.Because = c.wrongClock()
	case c.ended != nil && c.ended.Because != "":
		r.Because = c.ended.Because
	case c.ended != nil:
		r.Because = fmt.Sprintf("it cannot be run: exit code %d", c.ended.Exit)
	}
	return r
}

// refused finds out what follows after a transaction failed. nil means that it was committed.
func (c *cron) refused(d ticks.Decision, o orders, err error) error {
	const most = 3 // refusals without a pause
	if c.tries++; c.tries > most {
		<-after(c.h.ctx, time.Second)
	}
	switch {
	case c.h.ctx.Err() != nil:
		return context.Cause(c.h.ctx)
	case errors.Is(err, zkconn.ErrSilent):
		c.leave = true
	case errors.Is(err, zkconn.ErrUnknown):
		if err := c.m.session.Settled(c.h.ctx); err != nil {
			return err
		}
		if err := c.load(); err != nil {
			return err
		}
		if !d.Release && c.committed(d) {
			return nil
		}
	case refusedAt(err, c.m.recordPath(), zkconn.ErrBadVersion), refusedAt(err, c.m.seat, zkconn.ErrBadVersion):
		select { // its watch tells
		case <-o.changed:
		case <-c.h.ctx.Done():
		case <-after(c.h.ctx, time.Second):
		}
	case refusedAt(err, c.m.recordPath(), zkconn.ErrNoNode), refusedAt(err, c.m.seat, zkconn.ErrNoNode):
		return c.m.removed(err)
	case errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNodeExists), errors.Is(err, zkconn.ErrNoNode):
		if err := c.load(); err != nil { // the assigner set the cursor, or somebody wrote by hand
			return err
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}
