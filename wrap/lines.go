package wrap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"muster/resource"
	"muster/tasks"
	"muster/tasks/store"
)

// Lines says how tasks are given to a command.
type Lines string

// The ways: a process for each task; or a long-lived process that reads lines and answers each with a line. With
// LinesPlain a line is a task, and the answer its result. With LinesJSON both are objects, see docs/queues.md.
const (
	LinesNone  Lines = ""
	LinesPlain Lines = "plain"
	LinesJSON  Lines = "json"
)

// lineSlot is one long-lived process after the other, and the tasks that are given to them.
//
// Tasks are written ahead, so when a process ends, it is not known which of the unanswered tasks is to blame. They are
// written to the next process one at a time. A task is charged for the end of a process only if it was the only one
// that this process was given, and if another process, which is given nothing, goes on for settleTime: a command that
// ends anyway must not cost tasks their attempts.
type lineSlot struct {
	*crew
	format lineFormat

	again []*tasks.Task // taken, to be written again, in this order
	alone bool          // they are written one at a time
	blame *blame        // to be charged if the next process goes on
	idle  int           // processes in a row that ended without a reason in a task
}

// blame is a task, and the end of the process that was given no other.
type blame struct {
	task   *tasks.Task
	took   time.Duration
	exit   *int
	reason string
	tail   *tail
}

const (
	settleTime   = time.Second
	maxStartWait = 30 * time.Second
	// maxIdle is how many processes may end without a reason in a task before the command has answered anything.
	maxIdle = 3
)

// lineProcesses is the work of one slot of a crew.
func (w *crew) lineProcesses(ctx context.Context) error {
	s := &lineSlot{crew: w, format: formatOf(w.lines)}
	defer s.giveBack()
	for ctx.Err() == nil {
		p, err := s.startProcess()
		if err != nil {
			if !permanent(err) {
				w.log.Warn("the command cannot be started now; trying again", "error", err)
				s.giveBack()
				s.pause(ctx, retryPause)
				continue
			}
			return &errCommand{err}
		}
		over, err := s.follow(ctx, p)
		if over || err != nil {
			return err
		}
	}
	return nil
}

// giveBack returns all tasks, uncharged.
func (s *lineSlot) giveBack() {
	for _, t := range s.again {
		s.Return(t)
	}
	if s.blame != nil {
		s.Return(s.blame.task)
	}
	s.again, s.blame, s.alone = nil, nil, false
}

func (s *lineSlot) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// follow runs a process to its end, and decides what becomes of the tasks that it has not answered. over: there are no
// more tasks. An error is why the executor cannot go on.
func (s *lineSlot) follow(ctx context.Context, p *lineProcess) (over bool, err error) {
	p.run(ctx)
	s.again = slices.Concat(p.unanswered(), s.again)
	if p.answered > 0 {
		s.idle = 0
		s.crew.answered.Store(true)
	}
	switch cause := p.end.cause; {
	case ctx.Err() != nil || s.kill.Err() != nil:
		return true, nil
	case p.failed != nil:
		return true, p.failed
	case p.drained:
		return true, nil
	case errors.Is(cause, errTaskTimeout), errors.Is(cause, errTaskOver), errors.Is(cause, errBadAnswer):
		return false, nil // what becomes of the task was said when it happened
	case errors.Is(cause, errSurplus):
		s.log.Error("the command was ended", "reason", cause)
	case p.given == 1 && p.answered == 0:
		s.accuse(p)
		return false, nil
	case p.given > p.answered:
		s.alone = true
		s.log.Warn("the command has ended, and tasks are unanswered: one at a time is tried again",
			"end", p.endReason(), "unanswered", p.given-p.answered)
		return false, nil
	default:
		s.log.Warn("the command has ended although nothing was asked; starting it again",
			"end", p.endReason(), "stderr", p.tail.lastLine())
	}
	return false, s.backOff(ctx, p)
}

// accuse notes that a process has ended that was given one task.
func (s *lineSlot) accuse(p *lineProcess) {
	b := &blame{task: s.again[0], took: time.Since(p.since), reason: p.endReason(), tail: &p.tail}
	if p.end.cause == nil && !p.end.status.Signaled() && p.end.err == nil {
		code := p.end.status.ExitStatus()
		b.exit = &code
	}
	s.again, s.blame = s.again[1:], b
}

// endReason is why the process has ended.
func (p *lineProcess) endReason() string {
	if p.end.cause != nil {
		return p.end.cause.Error()
	}
	return p.end.reason()
}

// charge ends the attempt at the task that is to blame.
func (s *lineSlot) charge() {
	if b := s.blame; b != nil {
		s.fail(b.task, store.Again, b.took, b.exit, b.reason, b.tail)
		s.blame = nil
	}
}

// backOff waits before the command is started again that has ended without a reason in a task. Meanwhile others can
// have the tasks. A command that has never answered anything is not started for ever.
func (s *lineSlot) backOff(ctx context.Context, p *lineProcess) error {
	s.giveBack()
	if p.answered > 0 {
		return nil
	}
	s.idle++
	if s.idle >= maxIdle && !s.crew.answered.Load() {
		text := p.tail.after(p.endReason())
		return &errCommand{fmt.Errorf("the command has ended %d times before it answered anything: %s", s.idle, text)}
	}
	s.pause(ctx, min(maxStartWait, time.Second<<min(s.idle-1, 10)))
	return nil
}

// lineFormat is how tasks and answers are lines.
type lineFormat struct {
	// write appends the line of a task. The error is why there is none.
	write func(to []byte, t *tasks.Task) ([]byte, error)
	// read is the answer in a line, without its end. The error means that it is none.
	read func(line []byte) (lineAnswer, error)
	most func(maxTask int64) int64 // bytes of a line
}

// lineAnswer is an answer: the result, or why there is none.
type lineAnswer struct {
	result []byte
	failed bool
	reason string
	never  bool // not to be tried again
}

func formatOf(l Lines) lineFormat {
	if l == LinesJSON {
		return lineFormat{writeJSONLine, readJSONLine, maxJSONLine}
	}
	return lineFormat{writePlainLine, readPlainLine, func(maxTask int64) int64 { return maxTask }}
}

func writePlainLine(to []byte, t *tasks.Task) ([]byte, error) {
	if i := slices.Index(t.Payload, '\n'); i >= 0 {
		return to, fmt.Errorf("byte %d of the task ends a line, so it cannot be given to a command of --lines: "+
			"use --lines=json", i)
	}
	return append(append(to, t.Payload...), '\n'), nil
}

func readPlainLine(line []byte) (lineAnswer, error) { return lineAnswer{result: line}, nil }

// quoted is the begin of a line, for a message.
func quoted(line []byte) string {
	return fmt.Sprintf("%q", cut(strings.ToValidUTF8(string(line[:min(len(line), 200)]), "\uFFFD"), 80))
}

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

// Read implements io.Reader for what the process writes. When its group has ended, it takes what is in the pipe, and
// does not wait for somebody else who holds it open.
func (p *lineProcess) Read(b []byte) (int, error) {
	n, err := p.streams.out.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !p.hasEnded() {
		return n, err
	}
	_ = p.streams.out.SetReadDeadline(time.Time{})
	if n = readNow(p.streams.out, b); n <= 0 {
		return 0, io.EOF
	}
	_ = p.streams.out.SetReadDeadline(time.Now())
	return n, nil
}

// errLongLine means that a line is longer than an answer may be.
var errLongLine = errors.New("the line is too long")

// readLine is the next line, without its end, until the next call.
func (p *lineProcess) readLine(most int) ([]byte, error) {
	line, err := p.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		p.long = p.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) && len(p.long)+len(line) <= most {
			p.long = append(p.long, line...)
			line, err = p.lines.ReadSlice('\n')
		}
		p.long = append(p.long, line...)
		line = p.long
	}
	switch {
	case err == nil && len(line)-1 <= most:
		return line[:len(line)-1], nil
	case err == nil, errors.Is(err, bufio.ErrBufferFull):
		return line, errLongLine
	}
	return nil, err
}

// read takes the answers of the process, until it ends or is to be ended.
func (p *lineProcess) read() {
	for {
		maxTask := int64(p.s.queue().MaxTask)
		line, err := p.readLine(int(p.s.format.most(maxTask)))
		if err != nil && !errors.Is(err, errLongLine) {
			p.stopUnlessEnded(settleTime, errClosedOutput)
			return
		}
		t, took := p.answeredTask()
		switch {
		case t == nil && p.isOver(): // it was ended before
		case t == nil:
			p.stopFor(fmt.Errorf("%w: %s", errSurplus, quoted(line)))
		case err != nil:
			p.tooLong(t, took, maxTask)
			return
		default:
			p.answer(t, took, line)
		}
	}
}

func (p *lineProcess) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// answeredTask is the task of the next answer, and how long it took; nil if none waits.
func (p *lineProcess) answeredTask() (t *tasks.Task, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || len(p.waiting) == 0 {
		return nil, 0
	}
	t, p.waiting = p.waiting[0], p.waiting[1:]
	p.ahead -= t.Guess
	p.answered++
	p.checking = p.answered == 1
	now := time.Now()
	took, p.since = now.Sub(p.since), now
	return t, took
}

func (p *lineProcess) tooLong(t *tasks.Task, took time.Duration, most int64) {
	reason := fmt.Sprintf("the result is larger than max_task, %s", resource.Size(most))
	p.s.fail(t, store.Never, took, nil, reason, nil)
	p.ignore()
	tell(p.lost, errBadAnswer)
}

// answer ends the attempt at a task as the line says.
func (p *lineProcess) answer(t *tasks.Task, took time.Duration, line []byte) {
	a, err := p.s.format.read(line)
	switch {
	case err != nil:
		p.s.fail(t, store.Again, took, nil, fmt.Sprintf("its answer is not understood: %v: %s", err, quoted(line)), nil)
		p.stopFor(errBadAnswer)
		return
	case p.checking && !p.quiet(): // only this function writes it
		p.s.Return(t)
		p.answered = 0
		more, _ := p.lines.Peek(min(p.lines.Buffered(), 80))
		p.stopFor(fmt.Errorf("%w: after %s came %s: each line must be answered with one line",
			errSurplus, quoted(line), quoted(more)))
		return
	case a.failed && a.never:
		p.s.fail(t, store.Never, took, nil, a.reason, nil)
	case a.failed:
		p.s.fail(t, store.Again, took, nil, a.reason, nil)
	default:
		p.s.done(t, took, nil, a.result, nil)
	}
	p.makeRoom()
}

// makeRoom lets more tasks be written when half of the work before is done.
func (p *lineProcess) makeRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checking = false
	if p.ahead > aheadTime/2 {
		return
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// quiet reports whether nothing comes for a while.
func (p *lineProcess) quiet() bool {
	if p.lines.Buffered() > 0 {
		return false
	}
	_ = p.streams.out.SetReadDeadline(time.Now().Add(quietTime))
	_, err := p.lines.Peek(1)
	_ = p.streams.out.SetReadDeadline(time.Time{})
	if p.hasEnded() {
		_ = p.streams.out.SetReadDeadline(time.Now())
	}
	return err != nil
}

// jsonTask is the line of a task.
type jsonTask struct {
	Task    *string `json:"task,omitempty"`
	Base64  []byte  `json:"base64,omitempty"` // instead of Task, if the task is not UTF-8
	Batch   string  `json:"batch"`
	Index   int64   `json:"index"`
	Attempt int     `json:"attempt"`
}

// jsonAnswer is the answer to it.
type jsonAnswer struct {
	Result json.RawMessage `json:"result"` // a string is the result; anything else is, as JSON
	Base64 []byte          `json:"base64"` // a result that is not UTF-8
	Error  *string         `json:"error"`
	Retry  *bool           `json:"retry"` // of an Error; absent: true
}

// maxJSONLine: an escaped character has at most six bytes, and there are the names.
func maxJSONLine(maxTask int64) int64 { return 6*maxTask + 4096 }

func writeJSONLine(to []byte, t *tasks.Task) ([]byte, error) {
	line := jsonTask{Batch: t.Batch, Index: t.Index, Attempt: t.Attempt}
	if utf8.Valid(t.Payload) {
		text := string(t.Payload)
		line.Task = &text
	} else {
		line.Base64 = t.Payload
	}
	b := bytes.NewBuffer(to)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(line)
	return b.Bytes(), err
}

func readJSONLine(line []byte) (a lineAnswer, err error) {
	var got jsonAnswer
	if err := json.Unmarshal(line, &got); err != nil {
		return a, fmt.Errorf("it is not JSON: %w", err)
	}
	switch {
	case got.Error != nil:
		return lineAnswer{failed: true, reason: *got.Error, never: got.Retry != nil && !*got.Retry}, nil
	case got.Base64 != nil:
		return lineAnswer{result: got.Base64}, nil
	case got.Result == nil:
		return a, errors.New(`it has neither "result" nor "error"`)
	}
	var text string
	if got.Result[0] == '"' && json.Unmarshal(got.Result, &text) == nil {
		return lineAnswer{result: []byte(text)}, nil
	}
	return lineAnswer{result: got.Result}, nil
}
