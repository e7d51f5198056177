package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/tasks/store"
	"muster/zkstate/znode"
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
	hand    []*Task       // oldest first; also some that have left it
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
	Taken, Returned      int64 // by Take, and by Return
	Done, Retried, Never int64 // results by their outcome, also those that are not reported yet
	Refused              int64 // results that did not count
	Turns                int64 // calls that reported results or took tasks
	Recovered            int64 // how often Redis was asked what is still held, after a lost answer
}

// And is what two executors have done.
func (c Counts) And(d Counts) Counts {
	return Counts{
		c.InHand + d.InHand, c.Taken + d.Taken, c.Returned + d.Returned, c.Done + d.Done, c.Retried + d.Retried,
		c.Never + d.Never, c.Refused + d.Refused, c.Turns + d.Turns, c.Recovered + d.Recovered,
	}
}

// Task is one task in hand. Its exported fields do not change.
type Task struct {
	Batch   string
	Index   int64
	Attempt int // from 1
	Payload []byte
	Timeout time.Duration // of an attempt. Execute ends the task's context after it; other consumers do it themselves

	e     *Executor
	batch *batchHand
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
		t := e.take()
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

// take takes the first task that is ready; nil: none. The caller holds mu.
func (e *Executor) take() *Task {
	if e.paused || e.ended != nil || e.p.ctx.Err() != nil { // the loop says at once why the membership has ended
		return nil
	}
	t := e.first()
	if t == nil {
		return nil
	}
	e.ready[0], e.ready = nil, e.ready[1:] // or else its payload stays in memory
	b := t.batch
	t.state = taken
	if guess := b.guess(); guess >= e.pace.lookahead() {
		t.long = true
		e.long++
		b.short--
		e.work -= guess
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
// is none. The caller does not change it any more. A result larger than the queue's max_task makes the task dead.
// Finish does nothing to a task that is not in hand any more. It does not wait.
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
	case t.batch.over: // nobody wants it
		t.giveBack(ErrBatchOver)
		return
	}
	e.learned(t.batch, took)
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
	e.count.Returned++
	if t.state == taken {
		t.giveBack(context.Canceled)
	}
}

// giveBack notes that a task in hand is to be given back. The caller holds mu.
func (t *Task) giveBack(why error) {
	t.leave(gone, why)
	t.e.back++
	t.e.wake()
}

// leave notes that a task is not worked on any more. The caller holds mu.
func (t *Task) leave(s taskState, why error) {
	e := t.e
	if t.end != nil {
		t.end(why)
	}
	if t.state == taken {
		e.taken--
	}
	t.state = s
	e.open--
	if t.long {
		e.long--
		return
	}
	t.batch.short--
	e.work -= t.batch.guess()
}

// dropReady gives back what no consumer took: of a batch, or of all. The caller holds mu.
func (e *Executor) dropReady(of *batchHand) {
	e.each(func(t *Task) {
		if t.state == inHand && (of == nil || t.batch == of) {
			t.giveBack(context.Canceled)
		}
	})
}

// each calls f for each task in hand. The caller holds mu.
func (e *Executor) each(f func(t *Task)) {
	for _, t := range e.hand {
		if t.holds() {
			f(t)
		}
	}
}

// holds reports whether the task is in hand. The caller holds mu.
func (t *Task) holds() bool { return t.state == inHand || t.state == taken }

// Context ends, with its cause, when the work is in vain: the batch was cancelled, the task is not held any more, or
// the membership is over. It ends with Finish and Return, too.
func (t *Task) Context() context.Context {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.end = context.WithCancelCause(context.Background())
		switch {
		case e.p.ctx.Err() != nil:
			t.end(context.Cause(e.p.ctx))
		case t.batch.over:
			t.end(ErrBatchOver)
		case !t.holds():
			t.end(ErrNotHeld)
		}
	}
	return t.ctx
}

// Pause takes nothing until it is called with false, and gives back what was not taken. What consumers have goes on.
func (e *Executor) Pause(on bool) {
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
	c.InHand, c.Taken = e.open, e.started
	return c
}

// batchHand is what an executor knows of a batch that it has tasks of, or had. It is kept until the batch has ended.
// The mutex of the executor guards it.
type batchHand struct {
	id      string
	timeout time.Duration // of an attempt
	read    bool          // its manifest is; before that nothing of it is worked on
	over    bool          // it was cancelled, or has ended
	usable  bool          // it is worked on: it is neither paused nor cancelled, as far as is known
	mean    time.Duration // of an attempt here; 0: unknown
	short   int           // of its tasks in hand: those that count in the work of the executor
}

// guess is what a task of the batch is thought to take. One of which nothing is known is thought to be long.
func (b *batchHand) guess() time.Duration { return cmp.Or(b.mean, minLookahead) }

// learned notes how long an attempt took. The caller holds mu.
func (e *Executor) learned(b *batchHand, took time.Duration) {
	before := b.guess()
	b.mean, e.mean = blend(b.mean, took), blend(e.mean, took)
	e.work += time.Duration(b.short) * (b.guess() - before)
}

// blend moves a mean towards a new value. 0 is no mean. It forgets slowly: a batch of which one task of a thousand is
// long must not seem to have short ones only.
func blend(mean, value time.Duration) time.Duration {
	if mean == 0 {
		return max(value, 1)
	}
	return max(mean+(value-mean)/64, 1)
}

// granted puts what Redis granted into the hand. The caller holds mu.
func (e *Executor) granted(grants []store.Grant) {
	e.hand = slices.DeleteFunc(e.hand, func(t *Task) bool { return !t.holds() })
	for _, from := range grants {
		b := e.batches[from.Batch]
		if b == nil {
			b = &batchHand{id: from.Batch}
			e.batches[b.id] = b
			go e.follow(b)
		}
		e.add(b, from)
	}
	if len(grants) > 0 {
		e.announce()
	}
}

// add puts a grant into the hand. The caller holds mu.
func (e *Executor) add(b *batchHand, from store.Grant) {
	n := len(from.Payloads)
	e.open += n
	b.short += n
	e.work += b.guess() * time.Duration(n)
	for i, payload := range from.Payloads {
		t := &Task{
			Batch: b.id, Index: from.Index + int64(i), Attempt: from.Attempt, Payload: payload, Timeout: b.timeout,
			e: e, batch: b,
		}
		e.hand = append(e.hand, t)
		if b.read {
			e.offer(t)
		}
	}
}

// offer lets consumers take a task, unless its batch is not to be worked on. The caller holds mu.
func (e *Executor) offer(t *Task) {
	if !t.batch.usable {
		e.pace.rest = time.Now().Add(restTime)
	}
	switch {
	case t.state != inHand:
	case !t.batch.usable, e.closing, e.paused:
		t.giveBack(context.Canceled)
	default:
		e.ready = append(e.ready, t)
	}
}

// follow follows the manifest of a batch until the batch has ended.
func (e *Executor) follow(b *batchHand) {
	f, _ := e.p.followBatch(b.id)
	for {
		changed := f.next()
		m, err := e.p.Manifest(e.p.ctx, b.id)
		if e.p.ctx.Err() != nil {
			return
		}
		over := err != nil || m.State == znode.BatchCancelled
		e.learn(b, m, over)
		if err == nil && !works(m) {
			// Redis granted something of it, so it may not know yet. The version makes a late call harmless.
			_ = m.tell(e.p.ctx, e.p.store, b.id)
		}
		if over {
			return
		}
		select {
		case <-changed:
		case <-f.over.Done():
		case <-e.done:
			return
		}
	}
}

// works reports whether a batch with this manifest is worked on. Redis granted something of it, so all of its tasks are
// there, also if its submitter has not said so yet.
func works(m Manifest) bool {
	return m.State == znode.BatchOpen || m.State == znode.BatchSubmitting
}

// learn notes what the manifest of a batch says. The caller does not hold mu.
func (e *Executor) learn(b *batchHand, m Manifest, over bool) {
	timeout := time.Duration(cmp.Or(m.TaskTimeout, e.p.Queue().TaskTimeout))
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !b.read
	b.read, b.over, b.usable, b.timeout = true, over, !over && works(m), timeout
	if over && e.batches[b.id] == b {
		delete(e.batches, b.id)
	}
	for _, t := range e.hand {
		if t.batch != b || b.usable && !first {
			continue
		}
		if first {
			t.Timeout = timeout
		}
		if over && t.state == taken && t.end != nil {
			t.end(ErrBatchOver)
		}
		e.offer(t)
	}
	if b.usable {
		e.announce()
	}
}

func (e *Executor) over() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing, e.ended = true, cmp.Or(context.Cause(e.p.ctx), e.ended, ErrDrained)
	e.each(func(t *Task) { t.leave(gone, e.ended) })
	e.announce()
}

// drainReport is how long Drain waits for Redis to hear of the last results.
const drainReport = 5 * time.Second

// Drain takes nothing more, and gives back what was not taken. It waits until consumers have finished what they took,
// or until ctx ends; what is left then goes back, too, its contexts end, and nobody is charged. It returns when Redis
// knows all results. An error says that it does not know some: their tasks run again. Then Leave.
func (e *Executor) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.close(ErrDrained)
	e.mu.Unlock()
	select {
	case <-e.done:
	case <-ctx.Done():
		e.mu.Lock()
		e.each(func(t *Task) { t.giveBack(ErrDrained) })
		e.mu.Unlock()
		select {
		case <-e.done:
		case <-time.After(drainReport):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.results); n > 0 {
		return fmt.Errorf("redis does not know %d results: their tasks run again", n)
	}
	return nil
}

// sync gives back what is not in hand any more, and learns what is still held. It waits until Redis answers. It returns
// false when the membership is over, or when waiting is of no use.
func (e *Executor) sync() bool {
	e.mu.Lock()
	keep, back := e.keep(), e.back
	e.mu.Unlock()
	kept, err := e.p.Recover(e.p.ctx, keep)
	switch {
	case err == nil:
		e.settle(kept, back)
		return true
	case hopeless(err):
		return e.fail(err)
	}
	return false
}

// recover makes good for an error. It returns what sync does.
func (e *Executor) recover(err error) bool {
	if hopeless(err) {
		return e.fail(err)
	}
	if refused(err) && !errors.Is(err, store.ErrSeq) && !errors.Is(err, store.ErrNoSeat) {
		return e.p.Pause(e.p.ctx, err) == nil // nothing was changed: once more, later
	}
	if errors.Is(err, store.ErrReply) && e.p.Pause(e.p.ctx, err) != nil { // Sync may be answered, and that never be
		return false
	}
	e.mu.Lock()
	e.count.Recovered++
	e.mu.Unlock()
	return e.sync()
}

// fail notes why the loop ends. It returns false.
func (e *Executor) fail(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = err
	return false
}

// keep is what this executor believes to hold. The caller holds mu.
func (e *Executor) keep() []store.Held {
	var keep []store.Held
	e.each(func(t *Task) {
		keep = append(keep, store.Held{Task: store.Task{Batch: t.Batch, Index: t.Index}, Attempt: t.Attempt})
	})
	for _, r := range e.results {
		keep = append(keep, store.Held{Task: r.Task, Attempt: r.Attempt})
	}
	return keep
}

// settle forgets what is not held: Redis has the results, or other executors have the tasks. So many tasks were given
// back.
func (e *Executor) settle(kept []store.Held, back int) {
	held := make(map[store.Task]bool, len(kept))
	for _, h := range kept {
		held[h.Task] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.back -= back
	e.pace.dry = false
	lost := 0
	e.each(func(t *Task) {
		if !held[store.Task{Batch: t.Batch, Index: t.Index}] {
			t.leave(gone, ErrNotHeld)
			lost++
		}
	})
	e.results = slices.DeleteFunc(e.results, func(r store.Result) bool {
		if !held[r.Task] {
			e.bytes -= len(r.Data)
		}
		return !held[r.Task]
	})
	if lost > 0 {
		e.p.log.Warn("tasks are not held any more: others execute them", "tasks", lost)
	}
}
