package worker

import "context"

// WriteRoll is what the last worker to join does.
func (m *Member) WriteRoll(ctx context.Context) error { return m.writeRoll(ctx) }
