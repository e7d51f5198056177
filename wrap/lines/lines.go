package lines

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/resource"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// Format says how tasks are given to a command.
type Format string

// The ways: a process for each task; or a long-lived process that reads lines and answers each with a line. With
// LinesPlain a line is a task, and the answer its result. With LinesJSON both are objects, see docs/queues.md.
const (
	None  Format = ""
	Plain Format = "plain"
	JSON  Format = "json"
)

// lineSlot is one long-lived process after the other, and the tasks that are given to them.
//
// A process has one task at a time, so it is known which one it had when it ends. That task is the first of the next
// process. It is charged if it was the first of this one, too, and if another process, which is given nothing, goes on
// for settleTime: a command that ends anyway must not cost tasks their attempts.
type lineSlot struct {
	*Crew

	next  *tasks.Task // taken, for the next process
	blame *blame      // to be charged if the next process goes on
	idle  int         // processes in a row that ended without a reason in a task
}

// blame is a task, and the end of the process that was given no other.
type blame struct {
	task   *tasks.Task
	took   time.Duration
	exit   *int
	reason string
	tail   *command.Tail
}

const (
	settleTime   = time.Second
	maxStartWait = 30 * time.Second
	// maxIdle is how many processes may end without a reason in a task before the command has answered anything.
	maxIdle   = 3
	hintAfter = 10 * time.Second
	// quietTime is how long a new process must be quiet after its first answer. A command that greets, or answers twice,
	// would shift all answers by one.
	quietTime = 50 * time.Millisecond
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

// NoAnswer is the hint for people when Crew.Hint is called.
var NoAnswer = fmt.Sprintf("the command has not answered a line for %s. If it has, its output is buffered: "+
	"it must flush each line, such as with python3 -u, sed -u, grep --line-buffered or stdbuf -oL",
	resource.Duration(hintAfter))

// lineProcesses is the work of one slot of a crew.
func (w *Crew) lineProcesses(ctx context.Context) error {
	s := &lineSlot{Crew: w}
	defer s.giveBack()
	for ctx.Err() == nil {
		p, err := s.startProcess()
		if err != nil {
			if !permanent(err) {
				w.Log.Warn("the command cannot be started now; trying again", "error", err)
				s.giveBack()
				zkconn.Pause(ctx, startPause)
				continue
			}
			return &CommandError{err}
		}
		p.run(ctx)
		if over, err := s.follow(ctx, p); over || err != nil {
			return err
		}
	}
	return nil
}

// giveBack returns all tasks, uncharged.
func (s *lineSlot) giveBack() {
	if s.next != nil {
		s.Return(s.next)
	}
	if s.blame != nil {
		s.Return(s.blame.task)
	}
	s.next, s.blame = nil, nil
}

// nextTask waits for a task.
func (s *lineSlot) nextTask(ctx context.Context) (*tasks.Task, error) {
	if t := s.next; t != nil {
		s.next = nil
		if s.Alive(t).Err() == nil {
			return t, nil
		}
		s.Return(t)
	}
	return s.Take(ctx)
}

// follow decides what becomes of the task that a process has not answered. over: there are no more tasks. An error is
// why the executor cannot go on.
func (s *lineSlot) follow(ctx context.Context, p *lineProcess) (over bool, err error) {
	if p.answered > 0 {
		s.idle = 0
		s.answered.Store(true)
	}
	s.next = cmp.Or(p.task, s.next)
	switch cause := p.end.Cause; {
	case ctx.Err() != nil || s.Kill.Err() != nil:
		return true, nil
	case p.failed != nil:
		return true, p.failed
	case p.drained:
		return true, nil
	case errors.Is(cause, errTaskTimeout), errors.Is(cause, errTaskOver), errors.Is(cause, errBadAnswer):
		switch s.next = nil; {
		case p.task == nil: // it was answered
		case errors.Is(cause, errTaskTimeout):
			reason := fmt.Sprintf("no answer within %s", resource.Duration(p.task.Timeout))
			s.fail(p.task, store.Again, p.took, nil, reason, nil)
		default:
			s.Return(p.task)
		}
		return false, nil
	case errors.Is(cause, errSurplus):
		s.Log.Error("the command was ended", "reason", cause)
	case p.task != nil && p.answered > 0:
		s.Log.Warn("the command has ended before it answered: its task is tried again first", "end", p.endReason())
		return false, nil
	case p.task != nil && !p.unread:
		s.accuse(p)
		return false, nil
	default:
		s.Log.Warn("the command has ended although nothing was asked; starting it again",
			"end", p.endReason(), "stderr", p.tail.LastLine())
	}
	return false, s.backOff(ctx, p)
}

// accuse notes that a process has ended at its first task.
func (s *lineSlot) accuse(p *lineProcess) {
	b := &blame{task: p.task, took: p.took, reason: p.endReason(), tail: &p.tail}
	if p.end.Cause == nil {
		b.exit = p.end.Exit()
	}
	s.next, s.blame = nil, b
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
	if s.idle >= maxIdle && !s.answered.Load() {
		text := p.tail.After(p.endReason())
		return &CommandError{fmt.Errorf("the command has ended %d times before it answered anything: %s", s.idle, text)}
	}
	zkconn.Pause(ctx, min(maxStartWait, time.Second<<min(s.idle-1, 10)))
	return nil
}

// lineProcess is one long-lived process.
type lineProcess struct {
	s       *lineSlot
	command *command.Command
	streams *command.Streams
	lines   *bufio.Reader
	long    []byte // a line that is longer than the buffer of lines
	tail    command.Tail
	end     command.End
	stop    context.CancelCauseFunc
	lost    chan error
	ended   chan struct{} // closed when its group has ended

	task     *tasks.Task   // given and not answered
	took     time.Duration // since that was given
	unread   bool          // nothing of it could be written
	answered int           // tasks
	drained  bool          // there are no more tasks: its input was closed
	failed   error         // why no more tasks can be had
}

func (s *lineSlot) startProcess() (*lineProcess, error) {
	streams, err := command.OpenStreams(s.Null, true)
	if err != nil {
		return nil, err
	}
	l := command.Launch{Path: s.Path, Argv: s.Argv, Environ: s.Environ, Dir: s.Dir, Files: streams.Files}
	c, err := s.Fleet.Start(l)
	streams.Started()
	if err != nil {
		streams.Close()
		return nil, err
	}
	p := &lineProcess{s: s, command: c, streams: streams, ended: make(chan struct{})}
	p.lines = bufio.NewReaderSize(&command.Reader{File: streams.Out}, 64<<10)
	return p, nil
}

// run returns when the process and all of its group have ended.
func (p *lineProcess) run(ctx context.Context) {
	defer p.streams.Close()
	defer p.s.Fleet.Ended(p.command)
	ofProcess, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.stop = stop
	var release func() bool
	p.lost, release = p.s.lost()
	defer release()
	ofTasks, endTasks := context.WithCancel(ofProcess)
	defer endTasks()
	var all sync.WaitGroup
	all.Go(func() { p.s.passErrors(p.streams.Err, &p.tail) })
	all.Go(func() { p.talk(ofProcess, ofTasks) })
	s := command.Supervisor{Command: p.command, Grace: p.s.Grace(), Rest: endLimit, Lost: p.lost}
	p.end = s.Run(ofProcess, nil)
	endTasks()
	close(p.ended)
	p.streams.End()
	all.Wait()
}

// stopUnlessEnded ends the process if it does not end by itself.
func (p *lineProcess) stopUnlessEnded(d time.Duration, cause error) {
	select {
	case <-time.After(d):
		p.stop(cause)
	case <-p.ended:
	}
}

func (p *lineProcess) hasEnded() bool { return zkconn.Closed(p.ended) }

// endReason is why the process has ended.
func (p *lineProcess) endReason() string {
	if p.end.Cause != nil {
		return p.end.Cause.Error()
	}
	return p.end.Reason()
}

// talk gives the process one task after the other. ctx ends when the process is asked to end, ofTasks also when it has
// ended.
func (p *lineProcess) talk(ctx, ofTasks context.Context) {
	if !p.settle(ofTasks) {
		return
	}
	for going := true; going; {
		t, err := p.s.nextTask(ofTasks)
		switch {
		case err == nil:
			going = p.ask(ctx, t)
			continue
		case errors.Is(err, tasks.ErrDrained):
			p.drained = true
			_ = p.streams.In.Close()
			p.stopUnlessEnded(p.s.Grace(), errGoesOn)
		case ofTasks.Err() == nil: // or else that has a cause of its own
			p.failed = err
			p.stop(err)
		}
		return
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

// ask gives the process a task, and takes the answer. It reports whether the process can have another task.
func (p *lineProcess) ask(ctx context.Context, t *tasks.Task) (going bool) {
	question, err := p.s.Lines.question(t)
	if err != nil {
		p.s.fail(t, store.Never, 0, nil, err.Error(), nil)
		return true
	}
	p.task, p.unread = t, true
	if extra := p.unasked(); len(extra) > 0 {
		p.stop(fmt.Errorf("%w: %s", errSurplus, quoted(extra)))
		return false
	}
	begun := time.Now()
	release := p.watch(t)
	written := make(chan struct{})
	go func() { // it may answer before it has read all
		defer close(written)
		p.write(question)
	}()
	most := int64(p.s.Queue().MaxTask)
	line, err := p.readLine(int(p.s.Lines.most(most)))
	switch {
	case errors.Is(err, errLongLine):
		tell(p.lost, errBadAnswer)
	case err != nil:
		p.stopUnlessEnded(settleTime, errClosedOutput)
	}
	<-written
	release()
	p.took = time.Since(begun)
	switch {
	case err != nil && !errors.Is(err, errLongLine), ctx.Err() != nil: // what it answers when it ends may be half of it
		return false
	case err != nil:
		p.task = nil
		p.s.fail(t, store.Never, p.took, nil, fmt.Sprintf("the result is larger than max_task, %s", resource.Size(most)), nil)
		return false
	}
	return p.answer(t, line)
}

// write writes a line. A command that does not read on is ended.
func (p *lineProcess) write(line []byte) {
	n, err := p.streams.In.Write(line)
	p.unread = n == 0
	if err != nil {
		p.stopUnlessEnded(settleTime, errClosedInput)
	}
}

// watch ends the process when the time of its task is over, or its task is not wanted any more, until release is
// called.
func (p *lineProcess) watch(t *tasks.Task) (release func()) {
	stops := []func() bool{context.AfterFunc(p.s.Alive(t), func() { p.stop(errTaskOver) })}
	if t.Timeout > 0 {
		stops = append(stops, time.AfterFunc(t.Timeout, func() { p.stop(errTaskTimeout) }).Stop)
	}
	if p.s.Hint != nil {
		stops = append(stops, time.AfterFunc(hintAfter, p.s.Hint).Stop)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// answer ends the attempt at a task as the line says. It reports whether the process can have another task.
func (p *lineProcess) answer(t *tasks.Task, line []byte) (going bool) {
	a, err := p.s.Lines.read(line)
	if err == nil && p.answered == 0 && !p.quiet() {
		more, _ := p.lines.Peek(min(p.lines.Buffered(), 80))
		p.stop(fmt.Errorf("%w: after %s came %s: each line must be answered with one line",
			errSurplus, quoted(line), quoted(more)))
		return false
	}
	p.task = nil
	switch {
	case err != nil:
		p.s.fail(t, store.Again, p.took, nil, fmt.Sprintf("its answer is not understood: %v: %s", err, quoted(line)), nil)
		p.stop(errBadAnswer)
		return false
	case a.outcome == store.Done:
		p.s.done(t, p.took, nil, a.body, nil)
	default:
		p.s.fail(t, a.outcome, p.took, nil, string(a.body), nil)
	}
	p.answered++
	return true
}

// unasked is what the process has written although nothing was asked.
func (p *lineProcess) unasked() []byte {
	if n := p.lines.Buffered(); n > 0 {
		extra, _ := p.lines.Peek(min(n, 80))
		return extra
	}
	extra := make([]byte, 80)
	return extra[:max(command.ReadNow(p.streams.Out, extra), 0)]
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

// quiet reports whether nothing comes for a while.
func (p *lineProcess) quiet() bool {
	if p.lines.Buffered() > 0 {
		return false
	}
	_ = p.streams.Out.SetReadDeadline(time.Now().Add(quietTime))
	_, err := p.lines.Peek(1)
	_ = p.streams.Out.SetReadDeadline(time.Time{})
	if p.hasEnded() {
		_ = p.streams.Out.SetReadDeadline(time.Now())
	}
	return err != nil
}

// lineAnswer is an answer.
type lineAnswer struct {
	outcome store.Outcome
	body    []byte // the result, or why there is none
}

// question is the line of a task. The error is why there is none.
func (l Format) question(t *tasks.Task) ([]byte, error) {
	if l == JSON {
		return jsonQuestion(t)
	}
	if i := slices.Index(t.Payload, '\n'); i >= 0 {
		return nil, fmt.Errorf("byte %d of the task ends a line, so it cannot be given to a command of --lines: "+
			"use --lines=json", i)
	}
	return append(slices.Clip(t.Payload), '\n'), nil
}

// read is the answer in a line, without its end. The error means that it is none.
func (l Format) read(line []byte) (lineAnswer, error) {
	if l == JSON {
		return readJSON(line)
	}
	return lineAnswer{store.Done, line}, nil
}

// most is how many bytes an answer may have. In JSON an escaped character has at most six bytes, and there are the
// names.
func (l Format) most(maxTask int64) int64 {
	if l == JSON {
		return 6*maxTask + 4096
	}
	return maxTask
}

// quoted is the begin of a line, for a message.
func quoted(line []byte) string {
	return fmt.Sprintf("%q", text.Shorten(strings.ToValidUTF8(string(line[:min(len(line), 200)]), "\uFFFD"), 80))
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

func jsonQuestion(t *tasks.Task) ([]byte, error) {
	line := jsonTask{Batch: t.Batch, Index: t.Index, Attempt: t.Attempt}
	line.Task, line.Base64 = tasks.TextOrBytes(t.Payload)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(line)
	return b.Bytes(), err
}

func readJSON(line []byte) (a lineAnswer, err error) {
	var got jsonAnswer
	if err := json.Unmarshal(line, &got); err != nil {
		return a, fmt.Errorf("it is not JSON: %w", err)
	}
	switch {
	case got.Error != nil && got.Retry != nil && !*got.Retry:
		return lineAnswer{store.Never, []byte(*got.Error)}, nil
	case got.Error != nil:
		return lineAnswer{store.Again, []byte(*got.Error)}, nil
	case got.Base64 != nil:
		return lineAnswer{store.Done, got.Base64}, nil
	case got.Result == nil:
		return a, errors.New(`it has neither "result" nor "error"`)
	}
	var text string
	if got.Result[0] == '"' && json.Unmarshal(got.Result, &text) == nil {
		return lineAnswer{store.Done, []byte(text)}, nil
	}
	return lineAnswer{store.Done, got.Result}, nil
}
