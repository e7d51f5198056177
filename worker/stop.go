package worker

import (
	"context"
	"errors"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// StopRequested waits until terminate asks the workers of the job to stop. It returns nil then: stop the command and
// Leave. It watches the Record and writes nothing.
func (m *Member) StopRequested(ctx context.Context) error {
	at := znode.Record(job.KindName, m.Job.Root, m.Job.Name)
	for {
		body, _, event, err := m.session.GetW(ctx, at)
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case errors.Is(err, zkconn.ErrNoNode): // the generation has ended, as the gate tells, or apply puts the Record back
			if _, _, event, err = m.session.ExistsW(ctx, at); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		rec, err := znode.DecodeRecord(job.Kind(), body)
		if err == nil && rec.Generation == m.Generation && rec.State == resource.StateTerminating {
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
