package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"muster/member"
	"muster/member/ticks"
)

// maxTail is how much of the end of a run's output is kept, in bytes.
const maxTail = 4 << 10

// pipeGrace is how long the output of a run is read when its process group has ended: a process that has left the group
// may hold it open for ever. flushGrace is how long it is copied: a stream of this process may be blocked for ever.
const pipeGrace, flushGrace = time.Second, 2 * time.Second

// tick is one attempt of a run of a cron.
func (r *memberRun) tick(ctx context.Context, run member.Run, l *lease, end context.CancelCauseFunc) member.Ended {
	ended := r.runTick(ctx, run, l, end)
	r.metrics.ticks.WithLabelValues(run.Duty, resultName(ended.Result)).Inc()
	return ended
}

func (r *memberRun) runTick(ctx context.Context, run member.Run, l *lease, end context.CancelCauseFunc) member.Ended {
	held, release := r.holding(ctx, run.Hold, l)
	defer release()
	path, ok := r.c.Duties[run.Duty]
	if !ok {
		return member.Ended{Result: ticks.NotStarted, Exit: notFound,
			Because: "this member has no file for it: a cron cannot be done by --can"}
	}
	out, err := openOutput(r.c.Files[1], r.c.Files[2])
	if err != nil {
		return member.Ended{Result: ticks.NotStarted, Exit: cannotRun, Because: err.Error()}
	}
	tick := ""
	if !run.Tick.IsZero() {
		tick = run.Tick.UTC().Format(time.RFC3339)
	}
	environ := r.dutyEnvironment(run.Hold, []string{
		TickVariable + "=" + tick, AttemptVariable + "=" + strconv.Itoa(run.Attempt),
	})
	e, err := r.runDuty(held, path, environ, []*os.File{r.null, out.pipes[0], out.pipes[1]}, end)
	tail := out.close()
	switch {
	case err != nil:
		return member.Ended{Result: ticks.NotStarted, Exit: max(startCode(err), cannotRun), Because: err.Error()}
	case errors.Is(context.Cause(ctx), member.ErrTimeout):
		return member.Ended{Result: ticks.Unsuccessful, Exit: e.Code, Tail: tail, Because: e.Text}
	case ctx.Err() != nil:
		return member.Ended{Result: ticks.Interrupted, Exit: e.Code, Tail: tail, Because: e.Text}
	}
	ended := member.Ended{Result: ticks.ResultOf(e.Code), Exit: e.Code, Tail: tail}
	if ended.Result != ticks.Succeeded {
		ended.Because = e.Text
	}
	return ended
}

// resultName is the result in a metric.
func resultName(r ticks.Result) string {
	switch r {
	case ticks.Succeeded:
		return "succeeded"
	case ticks.Unsuccessful:
		return "failed"
	case ticks.Interrupted:
		return "interrupted"
	case ticks.CannotRun:
		return "cannot-run"
	}
	return "not-started"
}

// output copies what a run writes to this process's streams, and keeps the end of both together.
type output struct {
	pipes   [2]*os.File // for the run
	readers [2]*os.File
	copied  sync.WaitGroup

	mu   sync.Mutex
	tail []byte
}

func openOutput(to ...*os.File) (*output, error) {
	o := new(output)
	for i := range o.pipes {
		var err error
		if o.readers[i], o.pipes[i], err = os.Pipe(); err != nil {
			_ = o.close()
			return nil, fmt.Errorf("a pipe for the output: %w", err)
		}
		from := o.readers[i]
		o.copied.Go(func() { o.copy(to[i], from) })
	}
	return o, nil
}

// copy ends at the end of from. While the stream of this process is blocked, a run that writes waits; an error of that
// stream stops nothing.
func (o *output) copy(to, from *os.File) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			o.keep(b[:n])
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, b...)
	if extra := len(o.tail) - maxTail; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
}

// close is called when the run has ended. It returns the end of the output. What a blocked stream has not taken after
// flushGrace is left to it: what copy has read is written when the stream goes on, and the rest is dropped.
func (o *output) close() []byte {
	for i := range o.pipes {
		if o.pipes[i] == nil {
			continue
		}
		_ = o.pipes[i].Close()
		_ = o.readers[i].SetReadDeadline(time.Now().Add(pipeGrace))
	}
	copied := make(chan struct{})
	go func() {
		o.copied.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(flushGrace):
	}
	for _, from := range o.readers {
		if from != nil {
			_ = from.Close()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tail)
}
