package member

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The first write of a holder reads the manifests of all keys. It removes values that no manifest names, and keys
// without one, and sets the total to the sum of the manifests. Then the holder knows the sizes, for only the holder
// writes. So a total is right again with the next holder's first write, whoever died when, and whatever was deleted by
// hand.

// keyDepth is how many levels are below a key: its values and their chunks.
const keyDepth = 2

// saved is what a hold knows of the state of its duty.
type saved struct {
	turn  turn // of whoever writes
	known bool // keys is right. It is not before the first write, and not after one that failed
	keys  map[string]savedKey
}

type savedKey struct {
	bytes int
	value string // name of the folder
}

func newSaved() *saved { return &saved{turn: newTurn()} }

func (s *saved) total() int {
	total := 0
	for _, k := range s.keys {
		total += k.bytes
	}
	return total
}

// writeState calls f, alone, with what is known of the state.
func (h *Hold) writeState(ctx context.Context, f func() error) error {
	if err := h.saved.turn.take(ctx); err != nil {
		return err
	}
	defer h.saved.turn.pass()
	if !h.saved.known {
		if err := h.readState(ctx); err != nil {
			return err
		}
	}
	err := f()
	if err != nil {
		h.saved.known = false
	}
	return err
}

// readState reads the sizes of the keys, removes what writers that died have left, and corrects the total.
func (h *Hold) readState(ctx context.Context) error {
	if err := h.m.session.Settled(ctx); err != nil { // a write whose caller gave up may still have been on its way
		return err
	}
	folder := znode.States(h.m.root, h.m.Generation, h.Duty)
	if err := h.make(ctx, folder, nil); err != nil {
		return err
	}
	names, _, err := h.m.session.Children(ctx, folder)
	if err != nil {
		return err
	}
	found := make([]*savedKey, len(names))
	tasks, tasksCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(readsAtOnce)
	for i, key := range names {
		tasks.Go(func() (err error) {
			found[i], err = h.cleanKey(tasksCtx, key)
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	h.saved.keys = map[string]savedKey{}
	for i, key := range names {
		if found[i] != nil {
			h.saved.keys[key] = *found[i]
		}
	}
	h.saved.known = true
	return h.correctTotal(ctx, folder)
}

// cleanKey removes the values that the manifest of a key does not name, and a key without a manifest. It returns nil if
// there is no key. If the manifest cannot be read it removes nothing, since a newer muster may have written it.
func (h *Hold) cleanKey(ctx context.Context, key string) (*savedKey, error) {
	at := h.stateAt(key)
	body, _, err := h.m.session.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	manifest, err := znode.DecodeAny[znode.Manifest](body)
	switch {
	case err != nil:
		return &savedKey{}, nil
	case manifest == nil:
		return nil, h.removeTree(ctx, at, keyDepth)
	}
	values, _, err := h.m.session.Children(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, value := range values {
		if value != manifest.Value {
			if err := h.removeTree(ctx, resource.Join(at, value), keyDepth-1); err != nil {
				return nil, err
			}
		}
	}
	return &savedKey{manifest.Bytes, manifest.Value}, nil
}

// correctTotal writes the total, unless it is right.
func (h *Hold) correctTotal(ctx context.Context, folder string) error {
	body, _, err := h.m.session.Get(ctx, folder)
	if err != nil {
		return err
	}
	want := znode.StateTotal{Bytes: h.saved.total()}
	if is, err := znode.DecodeStateTotal(body); err == nil && is == want {
		return nil
	}
	set, err := h.setTotal(want)
	if err != nil {
		return err
	}
	return h.writeAgain(ctx, set)
}

func (h *Hold) setTotal(t znode.StateTotal) (zkconn.Op, error) {
	body, err := znode.Encode(t)
	return zkconn.SetOp(znode.States(h.m.root, h.m.Generation, h.Duty), body, -1), err
}

// checkRoom refuses what the holders of the group are writing now if there is too much of it. The caller has announced
// its own bytes before: of two that announce at the same time, at least one sees both.
func (m *Member) checkRoom(ctx context.Context) error {
	folder := znode.Duties(m.root, m.Generation)
	if err := m.session.Sync(ctx, folder); err != nil {
		return err
	}
	duties, _, err := m.session.Children(ctx, folder)
	if err != nil {
		return err
	}
	sizes := make([]int, len(duties))
	tasks, tasksCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(readsAtOnce)
	for i, duty := range duties {
		tasks.Go(func() (err error) {
			sizes[i], err = m.stateSize(tasksCtx, duty)
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	if total > znode.MaxState {
		return fmt.Errorf("%w: the group would have %d bytes, and has at most %d", ErrStateTooLarge, total, znode.MaxState)
	}
	return nil
}

// stateSize is the size of a duty's state, and of what is being written of it.
func (m *Member) stateSize(ctx context.Context, duty string) (int, error) {
	body, _, err := m.session.Get(ctx, znode.States(m.root, m.Generation, duty))
	if errors.Is(err, zkconn.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	total, err := znode.DecodeStateTotal(body)
	if err != nil {
		return 0, fmt.Errorf("state of %s: %w", duty, err)
	}
	return total.Bytes + total.Writing, nil
}
