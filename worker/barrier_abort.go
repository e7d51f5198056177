package worker

import (
	"context"
	"errors"
	"strconv"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// An abort is one transaction: set st 0 · create the next number of c · create T. The first operation keeps everybody
// from arriving. The second proves that nobody has arrived since a's children were listed, so the workers that are
// named are exactly those that are missing; a live round has no numbers, and its list is that of one moment. The
// third is refused if the round was released. Every worker whose time is up tries, and one succeeds; if a process
// dies before, the others try.

// abort returns nil when the round is decided, by whatever worker.
func (r *round) abort(ctx context.Context, why string) error {
	for {
		missing, err := r.missing(ctx)
		if errors.Is(err, zkconn.ErrNoNode) {
			return nil // released and cleared
		}
		if err != nil {
			return err
		}
		switch {
		case len(missing) > 0:
			err = r.tryAbort(ctx, why, missing)
		case r.mode.Live():
			_, err = r.releaseLive(ctx) // the last worker to arrive may have died
		}
		var refused *zkconn.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && (refused.Path == r.state() || refused.Path == r.token()):
			return nil // aborted, released, or released and cleared
		}
		if err := r.m.mayRetry(ctx, err, zkconn.ErrNodeExists); err != nil {
			return err
		}
	}
}

func (r *round) tryAbort(ctx context.Context, why string, missing []int) error {
	st, err := znode.Encode(znode.Round{Workers: r.n, Mode: r.mode, Aborted: why, Missing: missing})
	if err != nil {
		return err
	}
	ops := []zkconn.Op{zkconn.SetOp(r.state(), st, 0)}
	next := znode.Counted(r.dir, r.n-len(missing))
	if !r.mode.Live() && next != r.token() {
		ops = append(ops, zkconn.CreateOp(next, nil, zkconn.Persistent, r.m.acl))
	}
	_, err = r.m.write(ctx, append(ops, zkconn.CreateOp(r.token(), []byte("aborted"), zkconn.Persistent, r.m.acl))...)
	return err
}

// missing lists the ids that have not arrived.
func (r *round) missing(ctx context.Context) ([]int, error) {
	if r.mode.Live() {
		if err := r.m.session.Sync(ctx, r.dir); err != nil {
			return nil, err
		}
	}
	names, _, err := r.m.session.Children(ctx, znode.Arrivals(r.dir))
	if err != nil {
		return nil, err
	}
	there := make([]bool, r.n)
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil && id >= 0 && id < r.n {
			there[id] = true
		}
	}
	var ids []int
	for id, is := range there {
		if !is {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
