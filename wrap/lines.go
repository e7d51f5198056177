package wrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
