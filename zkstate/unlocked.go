package zkstate

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// WaitUnlocked waits until nobody holds or waits for the apply lock of a stack. It calls waiting with each holder. If
// the deadline of ctx passes, the error is ErrLocked.
//
// It returns a number that changes whenever an apply takes the lock. If two calls return the same number, no apply of
// the stack wrote anything between them.
func (r *Follower) WaitUnlocked(ctx context.Context, stack string, waiting func(holder string)) (int64, error) {
	queue := r.lockQueue(stack)
	var holder znode.Mark
	for {
		names, stat, event, err := r.session.ChildrenW(ctx, queue.Dir)
		late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		switch {
		case errors.Is(err, zkconn.ErrNoNode): // no apply yet
			return 0, nil
		case err != nil && holder.Who != "" && late && !errors.Is(err, zkconn.ErrUnreachable):
			return 0, lockedBy(holder)
		case err != nil:
			return 0, err
		}
		places := queue.InOrder(names)
		if len(places) == 0 {
			return stat.Pzxid, nil
		}
		if now, ok := r.holder(ctx, queue.Dir+"/"+places[0]); ok && now != holder {
			holder = now
			if waiting != nil {
				waiting(holder.String())
			}
		}
		select {
		case <-event:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return 0, lockedBy(holder)
			}
			return 0, context.Cause(ctx)
		case <-r.session.Context().Done():
			return 0, context.Cause(r.session.Context())
		}
	}
}
