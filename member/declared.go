package member

import (
	"context"
	"iter"

	"muster/group"
)

// Declared yields the group as it is declared now, and again whenever that may have changed, until ctx or the
// membership ends.
func (m *Member) Declared(ctx context.Context) iter.Seq[group.Group] {
	return func(yield func(group.Group) bool) {
		for ctx.Err() == nil && m.ctx.Err() == nil {
			o := m.orders()
			if !yield(o.group) {
				return
			}
			select {
			case <-o.changed:
			case <-ctx.Done():
			case <-m.ctx.Done():
			}
		}
	}
}
