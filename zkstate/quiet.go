package zkstate

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Quiet returns as soon as nobody holds or waits for the apply lock of a stack. While it waits it tells waiting who
// holds the lock, again whenever that changes. When ctx's deadline passes first, that is ErrLocked.
//
// The number it returns stays the same for as long as no apply takes the lock: whatever was read between two calls that
// return the same number, no apply of the stack was writing meanwhile.
func (r *Reader) Quiet(ctx context.Context, stack string, waiting func(holder string)) (int64, error) {
	queue := r.applies(stack)
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
