package status

import (
	"context"
	"slices"
	"time"

	"muster/report"
	"muster/resource"
	"muster/resource/queue"
	"muster/zkstate"
)

// IsQueue reports whether o has the Record of a queue.
func IsQueue(o *resource.Observed) bool {
	return o != nil && o.Record != nil && o.Record.Declaration.Kind().Name == queue.KindName
}

// Queue reads the processes and batches of a queue for its report. With ages the report changes as time passes.
func Queue(ctx context.Context, r *zkstate.Reader, o *resource.Observed, ages bool) (*report.QueueDetail, error) {
	s, err := r.QueueState(ctx, o)
	if err != nil {
		return nil, err
	}
	d := &report.QueueDetail{First: s.First, Unread: s.Unread}
	if ages {
		d.Now = time.Now()
	}
	for _, m := range s.Processes {
		d.Processes = append(d.Processes, report.QueueProcess(m))
	}
	for _, b := range s.Batches {
		d.Batches = append(d.Batches, Batch(b))
	}
	if s.Health != nil {
		// The note of the smallest seat may be older than the end of a batch.
		ended := func(id string) bool {
			return !slices.ContainsFunc(d.Batches, func(b report.Batch) bool { return b.ID == id })
		}
		d.Lost, d.Failed = slices.DeleteFunc(s.Health.Lost, ended), slices.DeleteFunc(s.Health.Failed, ended)
		d.Refused, d.Full = s.Health.Redis, s.Health.Full
	}
	return d, nil
}

// Batch is an unfinished batch as reports show it.
func Batch(b zkstate.QueueBatch) report.Batch {
	return report.Batch{
		ID: b.ID, State: string(b.State), Tasks: b.Tasks, Bytes: b.Bytes, Weight: b.Weight, Results: b.Results, By: b.By,
		Since: b.Since,
	}
}
