package member

import (
	"context"
	"errors"
	"slices"
	"strings"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// What a holder writes below its duty. Every function here is guarded by write: nothing is written by a process that
// does not hold the duty any more.

// readsAtOnce and deletesAtOnce bound what is sent together.
const (
	readsAtOnce   = 16
	deletesAtOnce = 100
)

// writeAgain is write for operations that do no harm if they happen twice: it repeats them after a lost reply.
func (h *Hold) writeAgain(ctx context.Context, ops ...zkconn.Op) error {
	_, err := h.repeat(ctx, ops...)
	return err
}

// repeat is writeAgain with the results of ops.
func (h *Hold) repeat(ctx context.Context, ops ...zkconn.Op) (results []zkconn.Result, err error) {
	err = h.m.session.Once(ctx, func() (err error) {
		results, err = h.write(ctx, ops...)
		return err
	}, nil)
	return results, err
}

// make creates a persistent znode, unless it is there.
func (h *Hold) make(ctx context.Context, path string, body []byte) error {
	err := h.writeAgain(ctx, zkconn.CreateOp(path, body, zkconn.Persistent, h.m.acl))
	if refusedAt(err, path, zkconn.ErrNodeExists) {
		return nil
	}
	return err
}

// removeTree deletes a znode and everything below it, some at a time. depth is how many levels are below it: more than
// there are does no harm, but costs requests.
func (h *Hold) removeTree(ctx context.Context, at string, depth int) error {
	for {
		paths, err := h.tree(ctx, at, depth)
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(paths, deletesAtOnce) {
			ops := make([]zkconn.Op, len(batch))
			for i, path := range batch {
				ops[i] = zkconn.DeleteOp(path, -1)
			}
			if err = h.writeAgain(ctx, ops...); err != nil {
				break
			}
		}
		var refused *zkconn.Error
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &refused) || refused.Path != at && !strings.HasPrefix(refused.Path, at+"/"):
			return err
		case errors.Is(err, zkconn.ErrNotEmpty): // somebody created something by hand
			depth++
		case !errors.Is(err, zkconn.ErrNoNode): // else: deleted before its reply was lost
			return err
		}
	}
}

// tree lists a znode and what is below it, the deepest first.
func (h *Hold) tree(ctx context.Context, at string, depth int) ([]string, error) {
	if depth == 0 {
		return []string{at}, nil
	}
	names, _, err := h.m.session.Children(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		below, err := h.tree(ctx, resource.Join(at, name), depth-1)
		if err != nil {
			return nil, err
		}
		paths = append(paths, below...)
	}
	return append(paths, at), nil
}

// turn is a lock whose wait ends with a context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) pass() { <-t }
