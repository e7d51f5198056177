package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"muster/tasks/store"
	"muster/zkstate/znode"
)

// How an executor paces its turns.
const (
	// minLookahead is how much work an executor wants to have in hand for each of its slots. It is little, so that who
	// comes gets its share soon, and that one long task among short ones holds up few.
	minLookahead = 100 * time.Millisecond
	maxLookahead = time.Second // with a slow Redis

	// minGather is how long results wait for others while every slot has work, so that short tasks go by many. It is
	// longer if Redis is slow: an executor uses it at most a fifth of the time while it has no need to.
	minGather = 5 * time.Millisecond
	maxGather = time.Second

	// handful is how many results go at once, and how many tasks in hand are enough. So one handful is worked on while
	// the other is reported and taken. More in a turn would not be faster, and Redis would be busy for longer.
	handful = 200

	// stall is how long tasks wait in hand for a consumer, while none takes any, before they go back: a long task among
	// short ones must not hold up those behind it. It is twice as long as a task is thought to take, if that is more.
	stall = time.Second

	maxWait      = 10 * time.Second       // for a token, also of a watcher: it can be lost with a connection
	offlineCheck = 100 * time.Millisecond // whether ZooKeeper answers again, also of a watcher
	restTime     = 250 * time.Millisecond // after a grant of a batch that is not to be worked on, or Turned.Alone
	drainCheck   = 500 * time.Millisecond // whether others still hold the last tasks
)

// pace is what an executor knows of its turns.
type pace struct {
	rtt    time.Duration // of a turn, about
	last   time.Time     // when the last one ended
	dry    bool          // it granted nothing, and nobody said since that there is something
	looked bool          // since the last one, whether the queue is empty
	due    time.Duration // when a late task is due, as of last; negative: there is none
	rest   time.Time     // nothing is taken before
	alone  time.Time     // nothing is taken before, unless the hand is empty
	held   time.Time     // since when only others have tasks, for UntilEmpty; zero: that is not so

	started int64     // tasks, as of moved
	moved   time.Time // when tasks were last seen to be started, or none to wait for it
	stalled bool      // what waited was given back, and nothing was started since: no more than idle slots is taken
}

func (c *pace) answered(begun, now time.Time) {
	took := now.Sub(begun)
	if c.rtt == 0 {
		c.rtt = took
	}
	c.rtt += (took - c.rtt) / 8
	c.last = now
}

func (c *pace) gather() time.Duration    { return min(max(minGather, 4*c.rtt), maxGather) }
func (c *pace) lookahead() time.Duration { return min(max(minLookahead, 8*c.rtt), maxLookahead) }

// step is what the loop does next.
type step byte

const (
	stepWait  step = iota // for kick, or for a while
	stepBlock             // for a token in Redis, for kick, or for a while
	stepTurn
	stepSync // gives back
	stepEmpty
	stepEnd
)

// run is the loop that talks to Redis.
func (e *Executor) run() {
	defer close(e.done)
	defer e.over()
	for e.p.ctx.Err() == nil {
		var err error
		step, wait := e.next(time.Now())
		switch step {
		case stepEnd:
			return
		case stepTurn:
			err = e.turn()
		case stepSync:
			if !e.sync() {
				return
			}
		case stepEmpty:
			err = e.checkEmpty()
		case stepBlock:
			e.p.Wait(e.p.ctx, WakeExecutor, wait)
			e.mu.Lock()
			e.pace.dry = false
			e.mu.Unlock()
		default:
			pause(e.p.ctx, wait, e.kick)
		}
		if err != nil && !e.recover(err) {
			return
		}
	}
}

// next says what to do now, and for how long to wait.
func (e *Executor) next(now time.Time) (step, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sleeping, e.blocked = false, false
	select {
	case <-e.kick: // what it told is looked at now
	default:
	}
	e.stalls(now)
	idle, room := e.wants(now)
	wants := !e.pace.dry && (idle > 0 || room > 0 && room >= e.full()/2)
	flush := e.pace.last.Add(e.pace.gather()).Sub(now)
	switch {
	case e.back > 0:
		return stepSync, 0
	case len(e.results) > 0 && (e.closing || e.urgent() || flush <= 0):
		return stepTurn, 0
	case e.closing && e.open == 0 && len(e.results) == 0:
		return stepEnd, 0
	case wants && (e.urgent() || flush <= 0):
		return stepTurn, 0
	case e.c.UntilEmpty && e.pace.dry && !e.pace.looked && idle > 0 && e.open == 0:
		return stepEmpty, 0
	}
	e.sleeping = true
	switch {
	case len(e.results) > 0, wants:
		return stepWait, flush
	case idle > 0:
		e.blocked = true
		return stepBlock, e.pace.untilDue(now)
	case !e.p.Connected():
		return stepWait, offlineCheck
	case now.Before(e.pace.rest):
		return stepWait, e.pace.rest.Sub(now)
	case now.Before(e.pace.alone):
		return stepWait, e.pace.alone.Sub(now)
	case e.open > e.taken:
		return stepWait, stall
	}
	return stepWait, maxWait
}

// stalls gives back what waits too long for a consumer. The caller holds mu.
func (e *Executor) stalls(now time.Time) {
	c := &e.pace
	if c.started != e.started {
		c.started, c.moved, c.stalled = e.started, now, false
	}
	if e.open == e.taken {
		c.moved = now
	}
	limit := stall
	if t := e.first(); t != nil {
		limit = max(limit, 2*t.batch.guess())
	}
	if now.Sub(c.moved) >= limit {
		c.stalled, c.moved = true, now
		e.dropReady(nil)
	}
}

// untilDue is how long to wait for a token: until a late task is due, but not long.
func (c *pace) untilDue(now time.Time) time.Duration {
	most := maxWait
	if !c.held.IsZero() {
		most = drainCheck
	}
	if c.due < 0 {
		return most
	}
	return min(max(c.last.Add(c.due).Sub(now), time.Millisecond), most)
}

// full is how much work an executor wants to have in hand for the slots that no long task fills. The caller holds mu.
func (e *Executor) full() time.Duration {
	full := e.pace.lookahead() * time.Duration(e.free())
	if e.mean > 0 {
		full = min(full, 2*handful*e.mean)
	}
	return full
}

// free is how many slots no long task fills. The caller holds mu.
func (e *Executor) free() int { return max(e.c.Parallel-e.long, 0) }

// wants is how many slots have nothing to do, and how much more work is wanted in hand. The caller holds mu.
func (e *Executor) wants(now time.Time) (idle int, room time.Duration) {
	alone := e.open > 0 && now.Before(e.pace.alone)
	if e.closing || e.paused || alone || now.Before(e.pace.rest) || !e.p.Connected() {
		return 0, 0
	}
	idle, room = max(e.c.Parallel-e.open, 0), max(e.full()-e.work, 0)
	if e.pace.stalled || e.open > handful {
		room = 0
	}
	if e.c.MaxTasks > 0 {
		// Only room may grant more than idle, so the last tasks are taken without.
		left := e.c.MaxTasks - e.started - int64(e.open-e.taken)
		if left <= store.MaxItems {
			idle, room = int(max(min(int64(idle), left), 0)), 0
		}
	}
	return idle, room
}

// urgent reports whether the next turn should not wait for more results: some slot has no work, or will have none
// before the turn is over, or there are many results. The caller holds mu.
func (e *Executor) urgent() bool {
	soon := 2 * e.pace.rtt * time.Duration(e.free())
	return e.open < e.c.Parallel || e.open <= handful && e.work < soon ||
		len(e.results) >= handful || e.bytes >= store.MaxBytes/2
}

// page is how many of the results go in one call. The caller holds mu.
func (e *Executor) page() int {
	n, bytes := 0, 0
	for n < min(len(e.results), store.MaxItems) && bytes < store.MaxBytes {
		bytes += len(e.results[n].Data)
		n++
	}
	return n
}

func (e *Executor) turn() error {
	begun := time.Now()
	queue := e.p.Queue()
	e.mu.Lock()
	idle, room := e.wants(begun)
	sent := e.results[:e.page()]
	e.mu.Unlock()
	var out store.Turned
	err := e.p.Call(e.p.ctx, func(ctx context.Context, seq int64) (err error) {
		out, err = e.p.store.Turn(ctx, e.p.Seat, seq, store.Turn{
			Results: sent, Idle: idle, Room: room,
			Backoff: time.Duration(queue.Backoff), MaxBytes: int64(queue.MaxBytes),
		})
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Turns++
	e.pace.answered(begun, now)
	e.pace.due, e.pace.looked = out.Due, false
	if idle > 0 || room > 0 {
		e.pace.dry = len(out.Granted) == 0
	}
	if len(out.Granted) > 0 {
		e.pace.held = time.Time{}
	}
	e.refused(sent, out.Refused)
	for _, r := range sent {
		e.bytes -= len(r.Data)
	}
	e.results = slices.Delete(e.results, 0, len(sent))
	if out.Alone {
		e.pace.alone = now.Add(restTime)
	} else {
		e.limited(out.Level)
	}
	e.granted(out.Granted)
	return nil
}

// refused notes which results did not count. They are not sent again. The caller holds mu.
func (e *Executor) refused(sent []store.Result, refused []store.Refused) {
	e.count.Refused += int64(len(refused))
	for _, r := range refused {
		t := sent[r.Result]
		log := e.p.log.Warn
		if b := e.batches[t.Batch]; r.Why == "gone" && (b == nil || b.over) {
			log = e.p.log.Debug // as expected
		}
		log("a result did not count", "batch", t.Batch, "task", t.Index, "attempt", t.Attempt, "why", r.Why)
	}
}

// limited says when the queue holds too much, and when it does not any more. The caller holds mu.
func (e *Executor) limited(level int) {
	if level == e.level {
		return
	}
	e.level = level
	switch level {
	case 0:
		e.p.log.Info("the queue is below max_bytes again")
	case 1:
		e.p.log.Warn("the queue holds more than max_bytes: only its oldest batch is worked on")
	default:
		e.p.log.Warn("the queue holds more than twice max_bytes: nothing is worked on until a batch ends; " +
			"collect completed batches, cancel some, or raise max_bytes")
	}
}

// checkEmpty ends Take if no task of an open batch waits, was returned or is late, nor comes back from a dead process.
func (e *Executor) checkEmpty() error {
	held, waits := false, false
	for b, err := range e.p.store.AllBatches(e.p.ctx) {
		if err != nil {
			return err
		}
		open := b.State == string(znode.BatchOpen)
		held = held || open && b.Out > 0
		if waits = open && b.Waiting+b.Returned+b.Late > 0; waits {
			break
		}
	}
	waits = waits || held && e.mayComeBack()
	e.mu.Lock()
	defer e.mu.Unlock()
	if waits {
		e.pace.looked = true
	} else {
		e.close(ErrDrained)
	}
	return nil
}

// mayComeBack reports whether what others hold may come back from a process that was dead when this executor had
// nothing left to do. The seat of such a process stands until its session ends: that takes a session timeout, and up to
// half as much again, since servers end sessions in steps.
func (e *Executor) mayComeBack() bool {
	books, err := e.p.store.Books(e.p.ctx)
	if err != nil {
		return true
	}
	if gone, err := e.p.moreSeats(e.p.ctx, books); gone || err != nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pace.held.IsZero() {
		e.pace.held = time.Now()
	}
	return time.Since(e.pace.held) < e.p.session.Timeout()*3/2
}

// ErrNever is what the error of a task wraps that must not be tried again: the task is dead at once.
var ErrNever = errors.New("do not try this task again")

// ErrTimeout is the cause of a task's context when the attempt took longer than the batch's task_timeout.
var ErrTimeout = errors.New("the task took too long")

// Execute does the tasks of a queue until ctx or the membership ends, or until the configuration says that it is
// enough: then it returns nil. An error of Redis that waiting does not cure ends it too. It calls do in up to
// c.Parallel goroutines.
//
// What do returns is the task's result. If it returns an error, the task is tried again later, by any executor, until
// it has had all its attempts; after an error that wraps ErrNever, it is not. The same task can be done more than once,
// also at the same time, after a process was lost; one of the results counts.
//
// The ctx of do ends when the attempt takes too long (ErrTimeout), when the batch was cancelled (ErrBatchOver), or when
// the task is not held any more (ErrNotHeld): do should return then. Execute cannot make it: a do that does not look at
// its ctx keeps its goroutine, and the task. What do returns after ErrTimeout still counts if it is no error.
//
// A panic of do is not recovered: it ends the process, as any other. Its tasks go to other executors, and one that has
// killed several executors is dead. Recover in do what should only end the task.
//
// When ctx ends, no task is begun. Those under way have the queue's drain timeout to end; then their contexts end
// (ErrDrained), and what returns an error goes back, uncharged. Execute returns after every do has returned, with the
// cause of the end of ctx or of the membership.
func Execute(
	ctx context.Context, p *Process, c ExecutorConfig, do func(ctx context.Context, t *Task) ([]byte, error),
) error {
	e := StartExecutor(p, c)
	host, _ := os.Hostname() // for people only
	var work sync.WaitGroup
	for range e.c.Parallel {
		work.Go(func() { e.consume(ctx, host, do) })
	}
	worked := make(chan struct{})
	go func() { work.Wait(); close(worked) }()

	select {
	case <-worked:
	case <-ctx.Done():
	}
	limit, done := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.Queue().Timeouts.Drain))
	defer done()
	err := e.Drain(limit)
	<-worked
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), err)
	}
	if _, ended := e.Take(p.ctx); !errors.Is(ended, ErrDrained) {
		err = errors.Join(ended, err)
	}
	return err
}

func (e *Executor) consume(ctx context.Context, host string, do func(ctx context.Context, t *Task) ([]byte, error)) {
	for t, err := e.Take(ctx); err == nil; t, err = e.Take(ctx) {
		e.do(t, host, do)
	}
}

func (e *Executor) do(t *Task, host string, do func(ctx context.Context, t *Task) ([]byte, error)) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), t.Timeout, ErrTimeout)
	defer cancel()
	begun := time.Now()
	body, err := do(ctx, t)
	took := time.Since(begun)
	outcome := store.Done
	switch {
	case err == nil:
	case errors.Is(err, ErrNever):
		outcome = store.Never
	case errors.Is(context.Cause(ctx), ErrTimeout):
		outcome, err = store.Again, fmt.Errorf("%w: more than %s: %w", ErrTimeout, t.Timeout, err)
	case ctx.Err() != nil: // it is in vain: there is nobody to tell
		e.Return(t)
		return
	default:
		outcome = store.Again
	}
	if err != nil {
		body = []byte(err.Error())
	}
	e.Finish(t, outcome, took, Answer{Host: host, Body: body}.Encode())
}
