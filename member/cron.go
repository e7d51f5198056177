package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"muster/member/ticks"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The holder of a cron duty writes, below run/<g>/duty/<d>:
//
//	cursor       the last tick that has a fate
//	tick         how the runs went so far
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

// NoExit is the exit code of an attempt that was interrupted before its command was started. None is recorded.
const NoExit = -1

// Ended is how an attempt ended.
type Ended struct {
	Result  ticks.Result
	Exit    int    // exit code; 128+n for a signal; NoExit
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
	results znode.TickResults
	asked   []int64         // requests that are not claimed
	asks    <-chan struct{} // closed at the next one

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

type end struct {
	Ended
	at time.Time
}

// serve works until the duty is given back or lost.
func (c *cron) serve(ctx context.Context) error {
	defer c.abandon()
	err := c.load()
	if err == nil {
		err = c.compareClock()
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
		select {
		case <-handOver:
		case <-left:
		case <-o.changed:
		case <-c.asks:
		case e := <-ended:
			c.ended = &end{e, c.now()}
		case <-c.h.ctx.Done():
			return context.Cause(c.h.ctx)
		case <-time.After(pause):
			if !c.clock.jumped(c.m.clock()) && (c.again.IsZero() || c.again.After(c.now())) {
				continue
			}
		}
		return nil
	}
}

// start begins what is recorded as running, unless this process runs it already: it calls the function of the user.
func (c *cron) start(ctx context.Context) {
	i := slices.IndexFunc(c.state.Runs, func(r ticks.Run) bool { return r.Running })
	if c.running != nil || i < 0 {
		return
	}
	r := c.state.Runs[i]
	timed, cancel := context.WithTimeoutCause(c.h.ctx, time.Duration(c.duty.Timeout), ErrTimeout)
	rctx, stop := context.WithCancelCause(timed)
	a := &attempt{run: r, ended: make(chan Ended, 1), stop: stop}
	c.running = a
	run := Run{Duty: c.h.Duty, Tick: r.Tick, Asked: r.Asked, Attempt: r.Attempt, Epoch: c.h.Epoch, Hold: c.h}
	c.emit(EventRunStarted, nameOfRun(r))
	go func() {
		defer cancel()
		watch := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
		e := judge(c.do(rctx, run), context.Cause(rctx))
		watch()
		stop(nil)
		a.ended <- e
	}()
}

// judge says how an attempt ended that was stopped because of cause; that is nil if it was not stopped.
func judge(e Ended, cause error) Ended {
	switch {
	case cause == nil || e.ByItself || e.Result == ticks.NotStarted:
		return e
	case errors.Is(cause, ErrTimeout):
		e.Result = ticks.Unsuccessful
	default:
		e.Result = ticks.Interrupted
	}
	e.Because = cmp.Or(e.Because, cause.Error())
	return e
}

// abandon stops what still goes on, and waits for it. Its end is not written.
func (c *cron) abandon() {
	if c.running != nil && c.ended == nil {
		c.running.stop(ErrNotHeld)
		<-c.running.ended
	}
}

func (c *cron) emit(kind EventKind, text string) {
	c.m.emit(Event{Kind: kind, Duty: c.h.Duty, Epoch: c.h.Epoch, Text: text})
}

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

// look reads the clock, and what was asked for since.
func (c *cron) look() (now time.Time, err error) {
	now = c.m.clock() // read once: it may be set at any moment
	if c.clock.jumped(now) {
		err = c.compareClock()
		now = c.clock.wall
	}
	if err == nil && happened(c.asks) {
		err = c.load()
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
			handOver := happened(c.h.HandOver()) || !o.wants(c.h.Duty)
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
	decider := ticks.Cron{Schedule: c.sched, Policy: policyOf(c.duty), Leaving: c.leave}
	switch {
	case !c.taken:
		d = decider.Taken(c.state, now)
		return d, func() {
			c.taken = true
			for _, r := range d.Records {
				if r.Outcome == ticks.Lost {
					c.emit(EventRunFailed, nameOfRun(r.Run)+": "+holderLost)
				}
			}
		}
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
	kind, text := EventRunEnded, nameOfRun(c.running.run)
	if c.ended.Result != ticks.Succeeded {
		kind = EventRunFailed
	}
	if c.ended.Because != "" {
		text += ": " + c.ended.Because
	}
	c.m.emit(Event{Kind: kind, Duty: c.h.Duty, Epoch: c.h.Epoch, Text: text, Run: &c.ended.Ended})
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

// write writes a decision in one transaction. It checks what every write of a holder does, and the Record and the seat
// if it claims a tick or starts a run. errAgain means that nothing is written that the decision said: decide again.
func (c *cron) write(d ticks.Decision, o orders) error {
	if !d.Write {
		return nil
	}
	changes, err := c.changes(d)
	if err != nil {
		return err
	}
	var ops []zkconn.Op
	if !d.Release && (d.Start != nil || d.State.Cursor != c.state.Cursor) {
		ops = append(ops, zkconn.CheckOp(c.m.seat.RecordPath(), o.record), zkconn.CheckOp(c.m.seat.Path, o.seat))
	}
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
		switch {
		case change.path == c.cursorPath():
			c.cursor = results[at+i].Stat.Version // 0 after a create
		case change.results != nil:
			c.results = *change.results
		case change.record == nil:
			delete(c.records, change.path)
		default:
			c.records[change.path] = *change.record
		}
	}
	return nil
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
		zkconn.Pause(c.h.ctx, time.Second)
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
	case zkconn.RefusedAt(err, c.m.seat.RecordPath(), zkconn.ErrBadVersion),
		zkconn.RefusedAt(err, c.m.seat.Path, zkconn.ErrBadVersion):
		select { // its watch tells
		case <-o.changed:
		case <-c.h.ctx.Done():
		case <-time.After(time.Second):
		}
	case zkconn.RefusedAt(err, c.m.seat.RecordPath(), zkconn.ErrNoNode),
		zkconn.RefusedAt(err, c.m.seat.Path, zkconn.ErrNoNode),
		zkconn.RefusedAt(err, znode.NewResigned(c.m.root, c.m.Generation), zkconn.ErrNoNode):
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

// The holder of a cron compares its clock with ZooKeeper's when it takes the duty, and whenever its clock was set: by a
// write that changes nothing, whose time ZooKeeper tells. A holder whose clock is wrong starts nothing, and resigns. So
// the assigner remembers why. ZooKeeper's clock is believed: if it is the wrong one, no cron runs.

const (
	maxJump    = 5 * time.Second // the clock was set if it moved by this more or less than time passed
	maxMeasure = 5               // how often a comparison is repeated that took too long to be clear
)

type clockCheck struct {
	wall  time.Time     // by that clock, when it was last compared
	real  time.Time     // with Go's monotonic clock: the same moment
	ahead time.Duration // of ZooKeeper's clock, if wrong
	wrong bool
}

// jumped reports whether the clock was set since it was compared.
func (k clockCheck) jumped(now time.Time) bool {
	return (now.Round(0).Sub(k.wall) - time.Since(k.real)).Abs() > maxJump
}

// now is the time by which ticks fall due. If the own clock is wrong it is ZooKeeper's.
func (c *cron) now() time.Time { return c.m.clock().Add(-c.clock.ahead) }

func (c *cron) compareClock() error {
	folder := znode.Ticks(c.m.root, c.m.Generation, c.h.Duty)
	body, err := znode.Encode(c.results)
	if err != nil {
		return err
	}
	var offset ticks.Offset
	var k clockCheck
	for range maxMeasure {
		before := c.m.clock()
		results, err := c.h.writeAgain(c.h.ctx, zkconn.SetOp(folder, body, -1))
		if zkconn.RefusedAt(err, folder, zkconn.ErrNoNode) {
			if err := c.makeFolders(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		k.wall, k.real = c.m.clock().Round(0), time.Now()
		if offset = ticks.OffsetOf(before, results[0].Stat.Mtime, k.wall); !offset.Unclear() {
			break
		}
	}
	c.clock.wall, c.clock.real = k.wall, k.real
	if offset.Wrong() {
		c.clock.wrong, c.clock.ahead = true, offset.Least+(offset.Most-offset.Least)/2
	}
	return nil
}

// wrongClock is why a holder whose clock is wrong resigns.
func (c *cron) wrongClock() string {
	d, where := c.clock.ahead, "ahead of"
	if d < 0 {
		d, where = -d, "behind"
	}
	return fmt.Sprintf("its clock is %s %s ZooKeeper's: set it right", d.Round(time.Second), where)
}

func (c *cron) makeFolders() error {
	root, g := c.m.root, c.m.Generation
	if err := c.h.make(c.h.ctx, znode.Ticks(root, g, c.h.Duty)); err != nil {
		return err
	}
	return c.h.make(c.h.ctx, znode.Nows(root, g, c.h.Duty))
}
