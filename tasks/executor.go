package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"muster/tasks/store"
)

// The errors of an Executor.
var (
	// ErrDrained means that an executor takes no more tasks: it was drained, it started as many as it may, or the queue
	// is empty. Finish what is under way, and call Drain.
	ErrDrained = errors.New("this executor takes no more tasks")
	// ErrNotHeld is the cause of a task's context when Redis says that this executor does not hold the task any more.
	// Stop working on it: another executor does it, or has done it.
	ErrNotHeld = errors.New("this executor does not hold the task any more")
)

// ExecutorConfig says how to execute.
type ExecutorConfig struct {
	Parallel int // tasks at once; 0 is 1
	// MaxTasks is how many tasks Take returns in all; 0 is no limit.
	MaxTasks int64
	// UntilEmpty ends Take with ErrDrained once nothing is left to take: this executor holds nothing, and no task of an
	// open batch waits, was returned, or is late. What others hold may come back from one that was dead already: it waits
	// until that is done, or one and a half times the session timeout, after which those who still are there were alive.
	// It does not wait for paused batches.
	UntilEmpty bool
}

// Executor takes tasks of a queue and reports their results. Consumers take a Task, work on it, and Finish or Return
// it. One goroutine talks to Redis, in one call at a time: each reports all results that there are and takes as much as
// keeps the consumers busy until after the next one. So short tasks go by hundreds, and the result of a long one goes
// at once.
//
// A result counts once. It is kept until Redis has answered; after a lost answer Redis says which tasks are still held:
// the results of those are sent again. What is not held any more is forgotten, and its context ends.
//
// While ZooKeeper is silent, an executor takes nothing, and works on what it has. Everything ends with the context of
// its Process.
type Executor struct {
	p    *Process
	c    ExecutorConfig
	kick chan struct{} // the loop should look again
	done chan struct{} // closed when the loop has ended

	mu      sync.Mutex
	news    chan struct{} // closed when Take should look again
	batches map[string]*batchHand
	grants  []*grant      // what is in hand, oldest first; also some that are finished
	ready   []*Task       // in hand, and not taken; also some that were given back
	open    int           // tasks in hand that are not finished
	taken   int           // of these, those that consumers have
	long    int           // of these, those that were thought to fill their slots
	work    time.Duration // that all others in hand are thought to be
	mean    time.Duration // of a task of any batch here; 0: unknown
	results []store.Result
	bytes   int // of the results
	started int64
	back    int // tasks that are to be given back

	paused   bool
	closing  bool  // nothing more is taken
	ended    error // why Take ends: nil while it does not
	sleeping bool  // the loop waits for kick
	blocked  bool  // the loop waits in Process.Wait

	pace  pace
	level int
	count Counts
}

// Counts are what an executor has done so far.
type Counts struct {
	InHand               int   // not finished
	Done, Retried, Never int64 // results by their outcome, also those that are not reported yet
	Refused              int64 // results that did not count
	Turns                int64 // calls that reported results or took tasks
	Recovered            int64 // how often Redis was asked what is still held, after a lost answer
}

// Task is one task in hand. Its exported fields do not change.
type Task struct {
	Batch   string
	Index   int64
	Attempt int // from 1
	Payload []byte
	Timeout time.Duration // of an attempt. Execute ends the task's context after it; other consumers do it themselves
	Guess   time.Duration // what it was thought to take when a consumer took it

	grant *grant
	state taskState
	long  bool            // see Executor
	ctx   context.Context // nil until somebody asks
	end   context.CancelCauseFunc
}

type taskState byte

// The states of a task. Only those in hand are kept when Redis is asked.
const (
	inHand   taskState = iota // not taken by a consumer
	taken                     // by a consumer
	finished                  // its result is kept until Redis has it
	gone                      // given back, or not held any more
)

// grant is tasks of one batch that came together.
type grant struct {
	e     *Executor
	batch *batchHand
	tasks []Task
	open  int
}

// StartExecutor begins to take tasks. It ends with the membership, or with Drain.
func StartExecutor(p *Process, c ExecutorConfig) *Executor {
	c.Parallel = max(c.Parallel, 1)
	e := &Executor{
		p: p, c: c, kick: make(chan struct{}, 1), done: make(chan struct{}), news: make(chan struct{}),
		batches: map[string]*batchHand{},
	}
	go e.run()
	return e
}

// Take waits until there is a task, and takes it. ErrDrained: there will be no more. Another error is why ctx or the
// membership has ended, or is an error of Redis that waiting does not cure: the executor has ended.
func (e *Executor) Take(ctx context.Context) (*Task, error) {
	for {
		e.mu.Lock()
		t := e.take(math.MaxInt64)
		err, news := e.ended, e.news
		e.mu.Unlock()
		switch {
		case t != nil:
			return t, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TakeMore takes tasks that are thought to take so long together, for a consumer that does one after the other. It does
// not wait, takes none that is long or of which nothing is known, and leaves the others their share.
func (e *Executor) TakeMore(work time.Duration) []*Task {
	e.mu.Lock()
	defer e.mu.Unlock()
	most := (len(e.ready) + e.c.Parallel - 1) / e.c.Parallel
	var out []*Task
	for len(out) < most {
		t := e.take(work)
		if t == nil {
			break
		}
		work -= t.Guess
		out = append(out, t)
	}
	return out
}

// take takes the first task that is ready, if it is thought to take no longer; nil: none. The caller holds mu.
func (e *Executor) take(longest time.Duration) *Task {
	if e.paused || e.ended != nil || e.p.ctx.Err() != nil { // the loop says at once why the membership has ended
		return nil
	}
	t := e.first()
	if t == nil || t.grant.batch.guess() > longest {
		return nil
	}
	e.ready[0], e.ready = nil, e.ready[1:] // or else its payload stays in memory
	b := t.grant.batch
	t.state, t.Guess = taken, b.guess()
	if t.Guess >= e.pace.lookahead() {
		t.long = true
		e.long++
		b.short--
		e.work -= t.Guess
	}
	e.taken++
	e.started++
	if e.c.MaxTasks > 0 && e.started >= e.c.MaxTasks {
		e.close(ErrDrained)
	}
	return t
}

// first is the first task that is ready; nil if there is none. The caller holds mu.
func (e *Executor) first() *Task {
	for ; len(e.ready) > 0; e.ready[0], e.ready = nil, e.ready[1:] {
		if t := e.ready[0]; t.state == inHand {
			return t
		}
	}
	return nil
}

// close takes nothing more, and gives back what was not taken. The caller holds mu.
func (e *Executor) close(why error) {
	if e.ended == nil {
		e.ended = why
		e.announce()
	}
	e.closing = true
	e.dropReady(nil)
	e.wake()
}

// announce makes each Take look again. The caller holds mu.
func (e *Executor) announce() {
	close(e.news)
	e.news = make(chan struct{})
}

// wake makes the loop look again. The caller holds mu.
func (e *Executor) wake() {
	if !e.sleeping {
		return
	}
	e.sleeping = false
	select {
	case e.kick <- struct{}{}:
	default:
	}
	if e.blocked {
		e.p.Wake()
	}
}

// Finish ends an attempt at a task. data is an encoded [Answer], or its body alone: the result, or the reason why there
// is none. The caller does not change it any more.
// A result larger than the queue's max_task makes the task dead. Finish does nothing to a task that is not in hand any
// more. It does not wait.
func (e *Executor) Finish(t *Task, o store.Outcome, took time.Duration, data []byte) {
	if most := int(e.p.Queue().MaxTask); o == store.Done && len(data) > most {
		o, data = tooLarge(data, most)
	}
	if o != store.Done {
		data = data[:min(len(data), maxReason)]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.state != taken:
		return
	case t.grant.batch.over: // nobody wants it
		t.giveBack(ErrBatchOver)
		return
	}
	e.learned(t.grant.batch, took)
	t.leave(finished, context.Canceled)
	e.results = append(e.results, store.Result{
		Task: store.Task{Batch: t.Batch, Index: t.Index}, Attempt: t.Attempt, Outcome: o, Took: took, Data: data,
	})
	e.bytes += len(data)
	switch o {
	case store.Done:
		e.count.Done++
	case store.Again:
		e.count.Retried++
	default:
		e.count.Never++
	}
	if e.sleeping && (len(e.results) == 1 || e.urgent()) {
		e.wake()
	}
}

// tooLarge makes of a result the reason why it does not count, if it is larger than a queue allows.
func tooLarge(data []byte, most int) (store.Outcome, []byte) {
	a := DecodeAnswer(data)
	if len(a.Body) <= most {
		return store.Done, data
	}
	a.Body = fmt.Appendf(nil, "its result of %d bytes is larger than max_task, %d bytes", len(a.Body), most)
	return store.Never, a.Encode()
}

// maxReason is how many bytes of a reason a script keeps.
const maxReason = 1024

// Return gives a task back, and nobody is charged for it.
func (e *Executor) Return(t *Task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state == taken {
		t.giveBack(context.Canceled)
	}
}

// giveBack notes that a task in hand is to be given back. The caller holds mu.
func (t *Task) giveBack(why error) {
	t.leave(gone, why)
	t.grant.e.back++
	t.grant.e.wake()
}

// leave notes that a task is not worked on any more. The caller holds mu.
func (t *Task) leave(s taskState, why error) {
	e := t.grant.e
	if t.end != nil {
		t.end(why)
	}
	if t.state == taken {
		e.taken--
	}
	t.state = s
	t.grant.open--
	e.open--
	if t.long {
		e.long--
		return
	}
	t.grant.batch.short--
	e.work -= t.grant.batch.guess()
}

// dropReady gives back what no consumer took: of a batch, or of all. The caller holds mu.
func (e *Executor) dropReady(of *batchHand) {
	e.each(func(t *Task) {
		if t.state == inHand && (of == nil || t.grant.batch == of) {
			t.giveBack(context.Canceled)
		}
	})
}

// each calls f for each task in hand. The caller holds mu.
func (e *Executor) each(f func(t *Task)) {
	for _, g := range e.grants {
		for i := range g.tasks {
			if t := &g.tasks[i]; t.state == inHand || t.state == taken {
				f(t)
			}
		}
	}
}

// Context ends, with its cause, when the work is in vain: the batch was cancelled, the task is not held any more, or
// the membership is over. It ends with Finish and Return, too.
func (t *Task) Context() context.Context {
	e := t.grant.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.end = context.WithCancelCause(context.Background())
		switch {
		case e.p.ctx.Err() != nil:
			t.end(context.Cause(e.p.ctx))
		case t.grant.batch.over:
			t.end(ErrBatchOver)
		case t.state != inHand && t.state != taken:
			t.end(ErrNotHeld)
		}
	}
	return t.ctx
}

// Pause takes nothing until Resume, and gives back what was not taken. What consumers have goes on.
func (e *Executor) Pause() { e.pause(true) }

// Resume ends a Pause.
func (e *Executor) Resume() { e.pause(false) }

func (e *Executor) pause(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = on
	if on {
		e.dropReady(nil)
	}
	e.announce()
	e.wake()
}

// Counts are what the executor has done so far.
func (e *Executor) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.count
	c.InHand = e.open
	return c
}
