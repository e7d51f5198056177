package zkstate

import (
	"context"
	"errors"
	"fmt"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Quiet returns as soon as nobody holds or waits for the apply lock of a stack. While it waits it tells waiting who holds the
// lock, again whenever that changes. When ctx's deadline passes first, that is ErrLocked.
//
// The number it returns stays the same for as long as no apply takes the lock: whatever was read between two calls that
// return the same number, no apply of the stack was writing meanwhile.
func (r *Reader) Quiet(ctx context.Context, stack string, waiting func(znode.Mark)) (int64, error) {
	dir := znode.Lock(r.home, stack)
	var holder znode.Mark
	for {
		names, stat, event, err := r.session.ChildrenW(ctx, dir)
		switch {
		case errors.Is(err, zkconn.ErrNoNode): // no apply yet
			return 0, nil
		case err != nil && holder.Who != "" && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !errors.Is(err, zkconn.ErrUnreachable):
			return 0, fmt.Errorf("%w: %s", ErrLocked, signed(holder, "since"))
		case err != nil:
			return 0, err
		}
		queue := inOrder(names)
		if len(queue) == 0 {
			return stat.Pzxid, nil
		}
		if now, ok := r.holder(ctx, dir+"/"+queue[0]); ok && now != holder {
			holder = now
			if waiting != nil {
				waiting(holder)
			}
		}
		select {
		case <-event:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return 0, fmt.Errorf("%w: %s", ErrLocked, signed(holder, "since"))
			}
			return 0, context.Cause(ctx)
		case <-r.session.Context().Done():
			return 0, context.Cause(r.session.Context())
		}
	}
}
