package worker

import (
	"context"
	"errors"

	"muster/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// StopRequested waits until terminate asks the workers of the job to stop, and returns nil then: stop the command and Leave.
// It writes nothing; it watches the Record.
func (m *Member) StopRequested(ctx context.Context) error {
	for {
		body, _, event, err := m.session.GetW(ctx, znode.Record(m.Job.Root, m.Job.Name))
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case errors.Is(err, zkconn.ErrNoNode): // with the job its generation ends, which the gate tells
			event = nil
		case err != nil:
			return err
		}
		rec, err := znode.DecodeRecord(body)
		if err == nil && rec.Generation == m.Generation && rec.State == job.Terminating {
			return nil
		}
		select {
		case <-event:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
	}
}
