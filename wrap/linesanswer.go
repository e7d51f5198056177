package wrap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"muster/resource"
	"muster/tasks"
	"muster/tasks/store"
)

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
