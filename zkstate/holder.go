package zkstate

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Holder says who holds the apply lock of a stack; ok is false when nobody does.
func (r *Reader) Holder(ctx context.Context, stack string) (h znode.Mark, ok bool, err error) {
	queue := r.lockQueue(stack)
	names, _, err := r.source.Children(ctx, queue.Dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.Mark{}, false, nil
	}
	places := queue.InOrder(names)
	if err != nil || len(places) == 0 {
		return znode.Mark{}, false, err
	}
	h, ok = r.holder(ctx, queue.Dir+"/"+places[0])
	return h, ok, nil
}
