package member

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Saved state is what the holder of a duty leaves to the next one. A value is written in three steps, each of which
// checks that the writer is the holder:
//
//	duty/<d>/state/<key>                created, if it is new
//	duty/<d>/state/<key>/<value>/c-<5>  the chunks, below a folder with a random name
//	duty/<d>/state/<key>                set: the manifest, which names that folder; and the total of all keys
//
// The last step is one transaction, so that a reader finds the old value or the new one, whole. After it the old value
// is removed. A process that dies before it leaves chunks that no manifest names; the next write of the key removes
// them. One that dies after it leaves the old value, which is removed in the same way.

var (
	// ErrNoKey means that no value was saved under this key.
	ErrNoKey = errors.New("no such key")
	// ErrStateTooLarge means that nothing was saved, since the value or all of the group together would be larger than
	// allowed. Remove keys, or keep the data elsewhere and save where it is.
	ErrStateTooLarge = errors.New("too large to be saved")
)

// Put saves a value under a key of this duty, for whoever holds it then.
func (h *Hold) Put(ctx context.Context, key string, value []byte) error {
	if err := h.put(ctx, key, value); err != nil {
		return fmt.Errorf("save %s of %s: %w", key, h.Duty, err)
	}
	return nil
}

func (h *Hold) put(ctx context.Context, key string, value []byte) error {
	if err := znode.CheckKey(key); err != nil {
		return err
	}
	if len(value) > znode.MaxStateValue {
		return fmt.Errorf("%w: it has %d bytes, and a key has at most %d", ErrStateTooLarge, len(value), znode.MaxStateValue)
	}
	root, g := h.m.root, h.m.Generation
	if err := h.makeKey(ctx, key); err != nil {
		return err
	}
	old, err := h.removeUnnamed(ctx, key)
	if err != nil {
		return err
	}
	before := 0
	if old != nil {
		before = old.Bytes
	}
	if err := h.m.checkRoom(ctx, len(value)-before); err != nil {
		return err
	}
	sum := sha256.Sum256(value)
	next := znode.Manifest{
		Value: zkstate.NewID(), Bytes: len(value), SHA256: hex.EncodeToString(sum[:]), By: h.m.Identity, Epoch: h.Epoch,
	}
	dir := znode.StateValue(root, g, h.Duty, key, next.Value)
	if err := h.make(ctx, dir, nil); err != nil {
		return err
	}
	for chunk := range slices.Chunk(value, znode.MaxChunk) {
		if err := h.make(ctx, znode.Chunk(dir, next.Chunks), chunk); err != nil {
			return err
		}
		next.Chunks++
	}
	if err := h.swap(ctx, key, &next, len(value)-before); err != nil {
		return err
	}
	if old != nil {
		_ = h.removeValue(ctx, key, old.Value) // the next Put does it
	}
	return nil
}

// Get returns what was saved under a key of any duty of the group, whole. It needs no hold.
func (m *Member) Get(ctx context.Context, duty, key string) ([]byte, error) {
	return ReadState(ctx, m.session, m.root, m.Generation, duty, key)
}

// ReadState returns what was saved under a key, whole.
func ReadState(ctx context.Context, s *zkconn.Session, root, g, duty, key string) ([]byte, error) {
	at := znode.State(root, g, duty, key)
	if err := s.Sync(ctx, at); err != nil {
		return nil, err
	}
	for {
		manifest, _, err := readManifest(ctx, s, at)
		if err != nil {
			return nil, err
		}
		if manifest == nil {
			return nil, fmt.Errorf("%w: %s of %s", ErrNoKey, key, duty)
		}
		value, err := readValue(ctx, s, znode.StateValue(root, g, duty, key, manifest.Value), *manifest)
		if errors.Is(err, zkconn.ErrNoNode) { // another value was saved meanwhile, or somebody deleted this one by hand
			now, _, nowErr := readManifest(ctx, s, at)
			if nowErr == nil && (now == nil || now.Value != manifest.Value) {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", key, duty, err)
		}
		return value, nil
	}
}

// readManifest reads the manifest of a key; nil if there is no value.
func readManifest(ctx context.Context, s *zkconn.Session, at string) (*znode.Manifest, zkconn.Stat, error) {
	body, stat, err := s.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, stat, nil
	}
	if err != nil {
		return nil, stat, err
	}
	manifest, err := znode.DecodeManifest(body)
	return manifest, stat, err
}

func readValue(ctx context.Context, s *zkconn.Session, dir string, manifest znode.Manifest) ([]byte, error) {
	value := make([]byte, 0, manifest.Bytes)
	for i := range manifest.Chunks {
		chunk, _, err := s.Get(ctx, znode.Chunk(dir, i))
		if err != nil {
			return nil, err
		}
		value = append(value, chunk...)
	}
	if sum := sha256.Sum256(value); hex.EncodeToString(sum[:]) != manifest.SHA256 {
		return nil, errors.New("the value is damaged: its checksum is another")
	}
	return value, nil
}

// Remove removes a key of this duty. It returns ErrNoKey if there is none.
func (h *Hold) Remove(ctx context.Context, key string) error {
	old, err := h.removeUnnamed(ctx, key)
	switch {
	case err != nil:
	case old == nil:
		err = ErrNoKey
	default:
		err = h.swap(ctx, key, nil, -old.Bytes)
	}
	if err == nil {
		err = h.removeValue(ctx, key, old.Value)
	}
	if err == nil {
		_, err = h.writeAgain(ctx, zkconn.DeleteOp(h.stateAt(key), -1))
	}
	if err != nil {
		return fmt.Errorf("remove %s of %s: %w", key, h.Duty, err)
	}
	return nil
}

func (h *Hold) stateAt(key string) string { return znode.State(h.m.root, h.m.Generation, h.Duty, key) }

// makeKey makes the znode of a key, and the folder of the duty's state.
func (h *Hold) makeKey(ctx context.Context, key string) error {
	if err := h.make(ctx, znode.States(h.m.root, h.m.Generation, h.Duty), nil); err != nil {
		return err
	}
	return h.make(ctx, h.stateAt(key), nil)
}

// make creates a persistent znode, unless it is there.
func (h *Hold) make(ctx context.Context, path string, body []byte) error {
	_, err := h.writeAgain(ctx, zkconn.CreateOp(path, body, zkconn.Persistent, h.m.acl))
	if refusedAt(err, path, zkconn.ErrNodeExists) {
		return nil
	}
	return err
}

// writeAgain is write for operations that do no harm if they happen twice: it repeats them after a lost reply.
func (h *Hold) writeAgain(ctx context.Context, ops ...zkconn.Op) ([]zkconn.Result, error) {
	for {
		results, err := h.write(ctx, ops...)
		if !errors.Is(err, zkconn.ErrUnknown) {
			return results, err
		}
		if err := h.m.session.Settled(ctx); err != nil {
			return nil, err
		}
	}
}

// swap sets the manifest of a key, and adds to the total of the duty.
func (h *Hold) swap(ctx context.Context, key string, next *znode.Manifest, add int) error {
	var body []byte
	var err error
	if next != nil {
		if body, err = znode.EncodeManifest(*next); err != nil {
			return err
		}
	}
	folder := znode.States(h.m.root, h.m.Generation, h.Duty)
	for {
		text, stat, err := h.m.session.Get(ctx, folder)
		if err != nil {
			return err
		}
		total, err := znode.DecodeStateTotal(text)
		if err != nil {
			return err
		}
		total.Bytes = max(0, total.Bytes+add)
		if text, err = znode.EncodeStateTotal(total); err != nil {
			return err
		}
		_, err = h.write(ctx, zkconn.SetOp(h.stateAt(key), body, -1), zkconn.SetOp(folder, text, stat.Version))
		if errors.Is(err, zkconn.ErrUnknown) {
			if err = h.m.session.Settled(ctx); err == nil {
				var now []byte
				if now, _, err = h.m.session.Get(ctx, h.stateAt(key)); err == nil && !bytes.Equal(now, body) {
					continue
				}
			}
		}
		return err
	}
}

// removeUnnamed removes the values of a key that its manifest does not name: a process died while it wrote them. It
// returns the manifest.
func (h *Hold) removeUnnamed(ctx context.Context, key string) (*znode.Manifest, error) {
	manifest, _, err := readManifest(ctx, h.m.session, h.stateAt(key))
	if err != nil {
		return nil, err
	}
	names, _, err := h.m.session.Children(ctx, h.stateAt(key))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	for _, name := range names {
		if err == nil && (manifest == nil || name != manifest.Value) {
			err = h.removeValue(ctx, key, name)
		}
	}
	return manifest, err
}

// removeValue removes one value, chunk by chunk.
func (h *Hold) removeValue(ctx context.Context, key, value string) error {
	dir := znode.StateValue(h.m.root, h.m.Generation, h.Duty, key, value)
	names, _, err := h.m.session.Children(ctx, dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	for _, path := range append(names, dir) {
		if _, err := h.writeAgain(ctx, zkconn.DeleteOp(path, -1)); err != nil && !refusedAt(err, path, zkconn.ErrNoNode) {
			return err
		}
	}
	return nil
}

// checkRoom refuses to save so many bytes more if the group would have too many.
func (m *Member) checkRoom(ctx context.Context, more int) error {
	duties, _, err := m.session.Children(ctx, znode.Duties(m.root, m.Generation))
	if err != nil {
		return err
	}
	total := more
	for _, duty := range duties {
		text, _, err := m.session.Get(ctx, znode.States(m.root, m.Generation, duty))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			return err
		}
		t, err := znode.DecodeStateTotal(text)
		if err != nil {
			return err
		}
		total += t.Bytes
	}
	if more > 0 && total > znode.MaxState {
		return fmt.Errorf("%w: the group would have %d bytes, and has at most %d", ErrStateTooLarge, total, znode.MaxState)
	}
	return nil
}
