package zkstate

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Holder says who holds the apply lock of a stack; ok is false when nobody does.
func (r *Reader) Holder(ctx context.Context, stack string) (h znode.Mark, ok bool, err error) {
	dir := znode.Lock(r.home, stack)
	names, _, err := r.session.Children(ctx, dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.Mark{}, false, nil
	}
	queue := inOrder(names)
	if err != nil || len(queue) == 0 {
		return znode.Mark{}, false, err
	}
	h, ok = r.holder(ctx, dir+"/"+queue[0])
	return h, ok, nil
}
