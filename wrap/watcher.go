package wrap

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/resource/queue"
	"muster/tasks"
)

// watcher has the batch. A command that was asked to end has not done its work, whatever it ends with.
func RunWatcher(ctx context.Context, c QueueConfig) Result {
	r := newQueueRun(c, queue.Watcher)
	batches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_watcher_batches_total",
		Help: "Batches that this watcher had, by result: collected, failed or returned.",
	}, []string{"result"})
	r.ended = batches
	r.work = func(ctx context.Context, end context.CancelCauseFunc, p *tasks.Process) error {
		return r.watch(ctx, end, p, batches)
	}
	return r.run(ctx)
}

// watch is the work of a watcher.
func (r *queueRun) watch(
	ctx context.Context, end context.CancelCauseFunc, p *tasks.Process, batches *prometheus.CounterVec,
) error {
	killed, release := r.killedWith(p)
	defer release()
	l := &lease{session: p.Session(), killed: killed.Done(), whole: true}
	return tasks.Watch(ctx, p, func(ctx context.Context, b *tasks.Completed) error {
		err := r.collect(ctx, p, l, b)
		result := "failed"
		switch {
		case err == nil:
			result = "collected"
		case ctx.Err() != nil, errors.Is(err, ErrUnkillable):
			result = "returned"
		}
		batches.WithLabelValues(result).Inc()
		if errors.Is(err, ErrUnkillable) {
			end(err)
		}
		return err
	})
}

// killedWith ends when all commands of p are to be killed at once: a second signal has come, or its membership has
// ended.
func (r *queueRun) killedWith(p *tasks.Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(p.Context())
	stop := context.AfterFunc(r.killAll, cancel)
	return ctx, func() { stop(); cancel() }
}

// collect runs the command for a batch. The error is why the batch is not collected.
func (r *queueRun) collect(ctx context.Context, p *tasks.Process, l *lease, b *tasks.Completed) error {
	in, toCommand, err := os.Pipe()
	if err != nil {
		return err
	}
	out, err := openOutput(in, r.Files[1], r.Files[2])
	if err != nil {
		return errors.Join(err, in.Close(), toCommand.Close())
	}
	environ := r.environment(p, [][2]string{
		{BatchVariable, b.ID}, {AttemptVariable, strconv.Itoa(b.Try)},
		{DoneVariable, strconv.FormatInt(b.Done, 10)}, {DeadVariable, strconv.FormatInt(b.Dead, 10)},
	}...)
	g, err := startGuarded(ctx, r.Guard, l, launch{r.path, r.Command, environ, r.Dir, out.files, false})
	_ = in.Close()
	if err != nil {
		_ = toCommand.Close()
		out.close()
		return err
	}
	ofCommand, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := writeRecords(toCommand, b.Records(ofCommand)); err != nil {
			stop(&unread{err}) // the end of its input would look like the end of the results
			<-ofCommand.Done()
			return
		}
		_ = toCommand.Close()
	})
	e := g.run(ofCommand, l, func(cause error) order { return r.endOf(p, cause) })
	cause := context.Cause(ofCommand)
	stop(nil)
	_ = toCommand.Close()
	writer.Wait()
	return r.collected(ctx, p, e, cause, out.close())
}

// unread is why the results of a batch cannot be read.
type unread struct{ error }

func (e *unread) Unwrap() error { return e.error }

// endOf is how a command is ended when its context ends with this cause.
func (r *queueRun) endOf(p *tasks.Process, cause error) order {
	if p.Context().Err() != nil || errors.As(cause, new(*unread)) {
		return order{Now: true}
	}
	return order{End: r.grace(p)}
}

// collected says why the batch of a command that has ended is not collected. cause is why the command was stopped, if
// it was.
func (r *queueRun) collected(ctx context.Context, p *tasks.Process, e guardEnd, cause error, end *tail) error {
	switch {
	case e.Left:
		return fmt.Errorf("%w: %s", ErrUnkillable, e.Text)
	case e.Overdue: // the session is over, and so is the membership in a moment
		select {
		case <-p.Context().Done():
		case <-time.After(p.Session().Timeout()):
		}
		return tasks.ErrSessionLost
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cause != nil:
		return fmt.Errorf("its results: %w", cause)
	case e.Code != 0:
		return errors.New(end.after(e.Text))
	}
	return nil
}

// writeRecords writes what became of the tasks, a line of JSON for each. A command that does not read all of it is no
// error: the records are read no further.
func writeRecords(to *os.File, records iter.Seq2[tasks.Record, error]) error {
	buffered := bufio.NewWriterSize(to, 64<<10)
	encoder := json.NewEncoder(buffered)
	for record, err := range records {
		if err != nil {
			return err
		}
		if encoder.Encode(record) != nil {
			return nil
		}
	}
	_ = buffered.Flush()
	return nil
}
