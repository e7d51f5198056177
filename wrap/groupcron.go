package wrap

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"muster/member"
	"muster/member/ticks"
)

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
	kept := out.close()
	tail := kept.last(tailSize)
	switch {
	case err != nil:
		return member.Ended{Result: ticks.NotStarted, Exit: max(startCode(err), cannotRun), Because: err.Error()}
	case e.Stopped && errors.Is(context.Cause(ctx), member.ErrTimeout):
		return member.Ended{Result: ticks.Unsuccessful, Exit: e.Code, Tail: tail, Because: e.Text}
	case e.Stopped:
		return member.Ended{Result: ticks.Interrupted, Exit: e.Code, Tail: tail, Because: e.Text}
	}
	ended := member.Ended{Result: ticks.ResultOf(e.Code), Exit: e.Code, Tail: tail, ByItself: true}
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
