package worker

import (
	"context"

	"muster/zkstate"
)

// Rounds lists the barriers of the job that are under way, and who is missing at each. See zkstate.Reader.Rounds.
func (m *Member) Rounds(ctx context.Context) ([]zkstate.Round, error) {
	r := zkstate.NewReader(m.session, "", zkstate.Job())
	o, err := r.Look(ctx, m.Job.Path())
	if err != nil {
		return nil, err
	}
	return r.Rounds(ctx, o)
}
