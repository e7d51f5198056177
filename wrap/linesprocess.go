package wrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/resource"
	"muster/tasks"
	"muster/tasks/store"
)

// Why a long-lived process is ended.
var (
	errTaskOver     = errors.New("its task is not wanted any more")
	errBadAnswer    = errors.New("its answer is not understood")
	errSurplus      = errors.New("the command wrote an answer that nobody asked for")
	errClosedInput  = errors.New("the command has closed its standard input, and goes on")
	errClosedOutput = errors.New("the command has closed its standard output, and goes on")
	errGoesOn       = errors.New("the command goes on after the end of its input")
)

const (
	// aheadTime is how much work is written ahead. It hides how long a pipe takes. A line that was written cannot be taken
	// back, so it waits behind those before it although another command is idle.
	aheadTime  = 5 * time.Millisecond
	watchEvery = 200 * time.Millisecond // how often to look at the time of a task
	hintAfter  = 10 * time.Second
	// quietTime is how long a new process must be quiet after its first answer. A command that greets, or answers twice,
	// would shift all answers by one.
	quietTime = 50 * time.Millisecond
)

// noAnswer is the hint.
var noAnswer = fmt.Sprintf("the command has not answered a line for %s. If it has, its output is buffered: "+
	"it must flush each line, such as with python3 -u, sed -u, grep --line-buffered or stdbuf -oL",
	resource.Duration(hintAfter))

// lineProcess is one long-lived process.
type lineProcess struct {
	s       *lineSlot
	command *command
	streams *streams
	lines   *bufio.Reader
	long    []byte // a line that is longer than the buffer of lines
	tail    tail
	end     commandEnd
	stop    context.CancelCauseFunc
	lost    chan error
	ended   chan struct{} // closed when its group has ended
	room    chan struct{} // there may be room for more tasks

	mu       sync.Mutex
	waiting  []*tasks.Task // written and not answered, in order
	since    time.Time     // the time of the first of them counts from then
	given    int           // tasks
	answered int           // of them
	ahead    time.Duration // that those who wait are thought to take
	checking bool          // see quietTime
	over     bool          // what it answers does not count any more
	drained  bool          // there are no more tasks: its input was closed
	failed   error         // why no more tasks can be had
}

func (s *lineSlot) startProcess() (*lineProcess, error) {
	streams, err := s.openStreams(true)
	if err != nil {
		return nil, err
	}
	c, err := s.fleet.start(launch{s.path, s.argv, s.environ, s.dir, streams.files, false})
	streams.started()
	if err != nil {
		streams.close()
		return nil, err
	}
	p := &lineProcess{
		s: s, command: c, streams: streams, ended: make(chan struct{}), room: make(chan struct{}, 1),
	}
	p.lines = bufio.NewReaderSize(p, 64<<10)
	return p, nil
}

// run returns when the process and all of its group have ended.
func (p *lineProcess) run(ctx context.Context) {
	defer p.streams.close()
	defer p.s.fleet.ended(p.command)
	ofProcess, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.stop = stop
	defer context.AfterFunc(ctx, p.ignore)()
	var release func() bool
	p.lost, release = p.s.lost()
	defer release()
	ofTasks, endTasks := context.WithCancel(ofProcess)
	defer endTasks()
	var all sync.WaitGroup
	all.Go(p.read)
	all.Go(func() { p.s.passErrors(p.streams.err, &p.tail) })
	all.Go(func() { p.watch(ofTasks) })
	all.Go(func() { p.feed(ofTasks) })
	s := supervisor{command: p.command, grace: p.s.grace(), rest: endLimit, lost: p.lost}
	p.end = s.run(ofProcess, nil)
	endTasks()
	close(p.ended)
	p.streams.end()
	all.Wait()
}

func (p *lineProcess) unanswered() []*tasks.Task { return p.waiting }

// ignore lets nothing count that the process answers from now on.
func (p *lineProcess) ignore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// stopFor ends the process.
func (p *lineProcess) stopFor(cause error) {
	p.ignore()
	p.stop(cause)
}

// stopUnlessEnded ends the process if it does not end by itself.
func (p *lineProcess) stopUnlessEnded(d time.Duration, cause error) {
	select {
	case <-time.After(d):
		p.stopFor(cause)
	case <-p.ended:
	}
}

func (p *lineProcess) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// feed gives tasks to the process until ctx ends.
func (p *lineProcess) feed(ctx context.Context) {
	if !p.settle(ctx) {
		return
	}
	var buf []byte
	for {
		all, err := p.nextTasks(ctx)
		if errors.Is(err, tasks.ErrDrained) {
			p.drain()
			return
		}
		if err != nil {
			if ctx.Err() == nil { // or else that has a cause of its own
				p.failed = err
				p.stop(err)
			}
			return
		}
		var n int
		buf, n = p.give(buf[:0], all)
		if len(buf) == 0 {
			continue
		}
		if written, err := p.streams.in.Write(buf); err != nil {
			if written == 0 {
				p.given -= n
			}
			p.stopUnlessEnded(settleTime, errClosedInput)
			return
		}
	}
}

// settle waits until a process that follows a bad one has gone on for a while.
func (p *lineProcess) settle(ctx context.Context) bool {
	if p.s.blame == nil && p.s.idle == 0 {
		return true
	}
	select {
	case <-time.After(settleTime):
		p.s.charge()
		return true
	case <-ctx.Done():
		return false
	}
}

// nextTasks waits until tasks may be written, and returns them.
func (p *lineProcess) nextTasks(ctx context.Context) (all []*tasks.Task, err error) {
	for {
		empty, work := p.roomNow()
		if empty {
			t, err := p.s.nextTask(ctx)
			if err != nil {
				return nil, err
			}
			all, work = append(all, t), work-t.Guess
		}
		if work > 0 {
			all = append(all, p.s.TakeMore(work)...)
		}
		if len(all) > 0 {
			return all, nil
		}
		select {
		case <-p.room:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// nextTask waits for a task to be given to a process that has none.
func (s *lineSlot) nextTask(ctx context.Context) (*tasks.Task, error) {
	for len(s.again) > 0 {
		t := s.again[0]
		s.again = s.again[1:]
		if s.Alive(t).Err() == nil {
			return t, nil
		}
		s.Return(t)
	}
	s.alone = false
	return s.Take(ctx)
}

// roomNow reports whether the process has answered all, and how much work may be written ahead.
func (p *lineProcess) roomNow() (empty bool, work time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	empty = len(p.waiting) == 0 && !p.checking
	if p.checking || p.answered == 0 || p.s.alone || p.ahead > aheadTime/2 {
		return empty, 0
	}
	return empty, aheadTime - p.ahead
}

// give appends the lines of tasks, and notes that they wait for an answer. n is how many.
func (p *lineProcess) give(buf []byte, all []*tasks.Task) (out []byte, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.since = time.Now()
	}
	for _, t := range all {
		line, err := p.s.format.write(buf, t)
		if err != nil {
			p.s.fail(t, store.Never, 0, nil, err.Error(), nil)
			continue
		}
		buf = line
		p.waiting = append(p.waiting, t)
		p.ahead += t.Guess
		n++
	}
	p.given += n
	return buf, n
}

// drain closes the input. All tasks are answered.
func (p *lineProcess) drain() {
	p.drained = true
	_ = p.streams.in.Close()
	p.stopUnlessEnded(p.s.grace(), errGoesOn)
}

// watch ends the process when the time of its task is over, or its task is not wanted any more.
func (p *lineProcess) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		t, waits := p.first()
		switch {
		case t == nil:
		case t.Timeout > 0 && waits >= t.Timeout:
			if p.takeFirst(t) {
				reason := fmt.Sprintf("no answer within %s", resource.Duration(t.Timeout))
				p.s.fail(t, store.Again, waits, nil, reason, nil)
				p.stopFor(errTaskTimeout)
			}
		case waits >= watchEvery && p.s.Alive(t).Err() != nil:
			if p.takeFirst(t) {
				p.s.Return(t)
				p.stopFor(errTaskOver)
			}
		case waits >= hintAfter && p.s.hint != nil:
			p.s.hint()
		}
	}
}

// first is the task that the process works on, and since when; nil if there is none.
func (p *lineProcess) first() (*tasks.Task, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || len(p.waiting) == 0 {
		return nil, 0
	}
	return p.waiting[0], time.Since(p.since)
}

// takeFirst takes the task from the process, whose answers do not count any more. It reports whether that still worked
// on it.
func (p *lineProcess) takeFirst(t *tasks.Task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || len(p.waiting) == 0 || p.waiting[0] != t {
		return false
	}
	p.waiting = p.waiting[1:]
	p.over = true
	return true
}
