package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Saved state is what the holder of a duty leaves to the next one. A value is written in these steps, each of which
// checks that the writer is the holder:
//
//	duty/<d>/state/<key>                created, if it is new
//	duty/<d>/state                      set: how many bytes more are being written
//	duty/<d>/state/<key>/<value>        created in the same transaction: a folder with a random name
//	duty/<d>/state/<key>/<value>/c-<5>  created: the chunks
//	duty/<d>/state/<key>                set: the manifest, which names the folder
//	duty/<d>/state                      set in the same transaction: the bytes of all keys
//
// So a reader finds the old value or the new one, whole. Then the old value is removed. To remove a key, its manifest
// is emptied in one transaction with the total, and then the key is deleted.
//
// A process that dies before the manifest is set leaves chunks that no manifest names. One that dies after it leaves
// the old value. The first write of the next holder removes both, see statesize.go.

var (
	// ErrNoKey means that no value was saved under this key.
	ErrNoKey = errors.New("no such key")
	// ErrStateTooLarge means that nothing was saved, since the value or all of the group together would be larger than
	// allowed, or since the duty would have too many keys. Remove keys, or keep the data elsewhere and save where it is.
	ErrStateTooLarge = errors.New("too large to be saved")
	// ErrStateDamaged means that somebody changed a part of the value by hand. Save it again, or remove the key.
	ErrStateDamaged = errors.New("the saved value is damaged")
)

// MaxStateValue is the largest value of a key, and MaxOutput the largest output of a step, in bytes.
const (
	MaxStateValue = znode.MaxStateValue
	MaxOutput     = znode.MaxOutput
)

// chunksAtOnce is how many chunks are read or written at a time.
const chunksAtOnce = 4

// Put saves a value under a key of this duty, for whoever holds it then. After ErrUnknown, or if ctx has ended, the key
// has its old value or this one.
func (h *Hold) Put(ctx context.Context, key string, value []byte) error {
	err := znode.CheckKey(key)
	switch {
	case err != nil:
	case len(value) > znode.MaxStateValue:
		err = fmt.Errorf("%w: it has %d bytes, and a key has at most %d", ErrStateTooLarge, len(value), znode.MaxStateValue)
	default:
		err = h.writeState(ctx, func() error { return h.put(ctx, key, value) })
	}
	if err != nil {
		return fmt.Errorf("save %s of %s: %w", key, h.Duty, err)
	}
	return nil
}

// Remove removes a key of this duty. It returns ErrNoKey if there is none. After ErrUnknown, or if ctx has ended, the
// key has its value or is gone.
func (h *Hold) Remove(ctx context.Context, key string) error {
	err := znode.CheckKey(key)
	if err == nil {
		err = h.writeState(ctx, func() error { return h.remove(ctx, key) })
	}
	if err != nil {
		return fmt.Errorf("remove %s of %s: %w", key, h.Duty, err)
	}
	return nil
}

func (h *Hold) put(ctx context.Context, key string, value []byte) error {
	old, there := h.saved.keys[key]
	if !there && len(h.saved.keys) >= znode.MaxKeys {
		return fmt.Errorf("%w: the duty has %d keys, which is the limit", ErrStateTooLarge, znode.MaxKeys)
	}
	sum := sha256.Sum256(value)
	next := znode.Manifest{
		Value: zkstate.NewID(), Chunks: (len(value) + znode.MaxChunk - 1) / znode.MaxChunk, Bytes: len(value),
		SHA256: hex.EncodeToString(sum[:]), By: h.m.Identity, Epoch: h.Epoch,
	}
	body, err := znode.Encode(next)
	if err != nil {
		return err
	}
	dir := znode.StateValue(h.m.root, h.m.Generation, h.Duty, key, next.Value)
	if !there {
		if err := h.make(ctx, h.stateAt(key), nil); err != nil {
			return err
		}
	}
	if err := h.announce(ctx, dir, max(0, len(value)-old.bytes)); err != nil {
		return err
	}
	if err := h.writeChunks(ctx, dir, value); err != nil {
		return err
	}
	if err := h.swap(ctx, key, body, len(value)-old.bytes); err != nil {
		return err
	}
	h.saved.keys[key] = savedKey{next.Bytes, next.Value}
	if !there {
		return nil
	}
	oldDir := znode.StateValue(h.m.root, h.m.Generation, h.Duty, key, old.value)
	if old.value == "" || h.removeTree(ctx, oldDir, keyDepth-1) != nil {
		h.saved.known = false // the next write removes it
	}
	return nil
}

// announce creates the folder of a value that makes so many bytes more. It refuses one for which there is no room.
func (h *Hold) announce(ctx context.Context, dir string, more int) error {
	total, err := h.setTotal(znode.StateTotal{Bytes: h.saved.total(), Writing: more})
	if err != nil {
		return err
	}
	err = h.writeAgain(ctx, total, zkconn.CreateOp(dir, nil, zkconn.Persistent, h.m.acl))
	if err != nil && !refusedAt(err, dir, zkconn.ErrNodeExists) { // the name is random: it exists after a lost reply
		return err
	}
	if more == 0 {
		return nil
	}
	if err = h.m.checkRoom(ctx); errors.Is(err, ErrStateTooLarge) {
		return errors.Join(err, h.readState(ctx)) // which takes the announcement back
	}
	return err
}

func (h *Hold) writeChunks(ctx context.Context, dir string, value []byte) error {
	tasks, tasksCtx := errgroup.WithContext(ctx)
	tasks.SetLimit(chunksAtOnce)
	n := 0
	for chunk := range slices.Chunk(value, znode.MaxChunk) {
		at := znode.Chunk(dir, n)
		tasks.Go(func() error { return h.make(tasksCtx, at, chunk) })
		n++
	}
	return tasks.Wait()
}

// swap sets the manifest of a key, which makes so many bytes more.
func (h *Hold) swap(ctx context.Context, key string, manifest []byte, more int) error {
	total, err := h.setTotal(znode.StateTotal{Bytes: h.saved.total() + more})
	if err != nil {
		return err
	}
	return h.writeAgain(ctx, zkconn.SetOp(h.stateAt(key), manifest, -1), total)
}

func (h *Hold) remove(ctx context.Context, key string) error {
	old, there := h.saved.keys[key]
	if !there {
		return ErrNoKey
	}
	if err := h.swap(ctx, key, nil, -old.bytes); err != nil {
		return err
	}
	delete(h.saved.keys, key)
	if h.removeTree(ctx, h.stateAt(key), keyDepth) != nil {
		h.saved.known = false // the next write removes it
	}
	return nil
}

func (h *Hold) stateAt(key string) string { return znode.State(h.m.root, h.m.Generation, h.Duty, key) }
