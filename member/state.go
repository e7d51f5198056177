package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Saved state is what the holder of a duty leaves to the next one:
//
//	duty/<d>/state         set; the first time created: the bytes of all keys
//	duty/<d>/state/<key>   set, created or deleted: one line of JSON, and the value
//
// A value is written or removed in one transaction of both, which checks as every write of a holder does. So a reader
// finds the old value or the new one, and a process that dies has written all or nothing. What somebody deletes by hand
// stays in the count of bytes.
//
// Before a value that needs more room is written, its holder adds up the bytes of all duties. Nothing keeps two holders
// from doing that at the same time: the group may then have a little more than its limit.

var (
	// ErrNoKey means that no value was saved under this key.
	ErrNoKey = errors.New("no such key")
	// ErrStateTooLarge means that nothing was saved, since the value or all of the group together would be larger than
	// allowed, or since the duty would have too many keys. Remove keys, or keep the data elsewhere and save where it is.
	ErrStateTooLarge = errors.New("too large to be saved")
	// ErrStateDamaged means that somebody changed the value by hand. Save it again, or remove the key.
	ErrStateDamaged = errors.New("the saved value is damaged")
)

// MaxStateValue is the largest value of a key, and MaxOutput the largest output of a step, in bytes.
const (
	MaxStateValue = znode.MaxStateValue
	MaxOutput     = znode.MaxOutput
)

// Put saves a value under a key of this duty, for whoever holds it then. After ErrUnknown, or if ctx has ended, the key
// has its old value or this one.
func (h *Hold) Put(ctx context.Context, key string, value []byte) (err error) {
	defer resource.Wrapf(&err, "save %s of %s", key, h.Duty)
	if len(value) > MaxStateValue {
		return fmt.Errorf("%w: it has %d bytes, and a key has at most %d", ErrStateTooLarge, len(value), MaxStateValue)
	}
	return h.changeState(ctx, &znode.SavedValue{By: h.m.Identity, Epoch: h.Epoch, Data: value}, key)
}

// Remove removes a key of this duty. It returns ErrNoKey if there is none. After ErrUnknown, or if ctx has ended, the
// key has its value or is gone.
func (h *Hold) Remove(ctx context.Context, key string) (err error) {
	defer resource.Wrapf(&err, "remove %s of %s", key, h.Duty)
	return h.changeState(ctx, nil, key)
}

// changeState saves a value under a key; nil removes the key.
func (h *Hold) changeState(ctx context.Context, value *znode.SavedValue, key string) error {
	if err := znode.CheckKey(key); err != nil {
		return err
	}
	if err := h.saving.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.saving.Release(1)
	if err := h.m.session.Settled(ctx); err != nil { // a write whose caller gave up may still have been on its way
		return err
	}
	at, folder := znode.State(h.m.root, h.m.Generation, h.Duty, key), znode.States(h.m.root, h.m.Generation, h.Duty)
	for {
		ops, err := h.stateOps(ctx, value, at, folder)
		if err == nil {
			_, err = h.writeAgain(ctx, ops...)
		}
		var refused *zkconn.Error
		switch {
		case value == nil && zkconn.RefusedAt(err, at, zkconn.ErrNoNode): // it was there: a reply was lost
			return nil
		case errors.As(err, &refused) && (refused.Path == at || refused.Path == folder) &&
			(errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrNodeExists)): // the same, or by hand
			continue
		}
		return err
	}
}

// stateOps are the operations that change a key as it is now.
func (h *Hold) stateOps(ctx context.Context, value *znode.SavedValue, at, folder string) ([]zkconn.Op, error) {
	old, _, there, err := zkconn.IfThere(h.m.session.Get(ctx, at))
	if err != nil {
		return nil, err
	}
	body, stat, counted, err := zkconn.IfThere(h.m.session.Get(ctx, folder))
	if err != nil {
		return nil, err
	}
	had, _ := znode.DecodeSaved(old) // what somebody wrote by hand was not counted
	is, next := znode.DecodeStateTotal(body).Bytes, znode.StateTotal{}
	if next.Bytes = is - int64(len(had.Data)); value != nil {
		next.Bytes += int64(len(value.Data))
	}
	next.Bytes = max(next.Bytes, 0)
	switch {
	case !there && value == nil:
		return nil, ErrNoKey
	case !there && stat.NumChildren >= znode.MaxKeys:
		return nil, fmt.Errorf("%w: the duty has %d keys, which is the limit", ErrStateTooLarge, znode.MaxKeys)
	case next.Bytes > is:
		if err := h.checkRoom(ctx, next.Bytes); err != nil {
			return nil, err
		}
	}
	if body, err = znode.Encode(next); err != nil {
		return nil, err
	}
	set := h.setOrCreate(counted, folder, body, -1)
	if value == nil {
		return []zkconn.Op{set, zkconn.DeleteOp(at, -1)}, nil
	}
	body, err = znode.EncodeSaved(*value)
	return []zkconn.Op{set, h.setOrCreate(there, at, body, -1)}, err
}

// checkRoom refuses a total of this duty for which the group has no room.
func (h *Hold) checkRoom(ctx context.Context, total int64) error {
	m := h.m
	duties, _, err := m.session.Children(ctx, znode.Duties(m.root, m.Generation))
	if err != nil {
		return err
	}
	sizes, err := zkstate.ForEach(ctx, duties, func(ctx context.Context, duty string) (int64, error) {
		body, _, there, err := zkconn.IfThere(m.session.Get(ctx, znode.States(m.root, m.Generation, duty)))
		if err != nil || !there || duty == h.Duty {
			return 0, err
		}
		return znode.DecodeStateTotal(body).Bytes, err
	})
	for _, n := range sizes {
		total += n
	}
	if err == nil && total > znode.MaxState {
		err = fmt.Errorf("%w: the group would have %d bytes, and has at most %d", ErrStateTooLarge, total, znode.MaxState)
	}
	return err
}

// KeyInfo describes one key of saved state.
type KeyInfo struct {
	Key     string    `json:"key"`
	Bytes   int       `json:"bytes"`
	By      string    `json:"by"`                // identity of the holder that saved it
	Epoch   int64     `json:"epoch"`             // of that holder
	Saved   time.Time `json:"saved"`             // by ZooKeeper's clock
	Problem string    `json:"problem,omitempty"` // why it cannot be read; Bytes, By and Epoch are zero then
}

// Get returns what was saved under a key of any duty of the group. It needs no hold.
func (m *Member) Get(ctx context.Context, duty, key string) ([]byte, error) {
	return ReadState(ctx, m.session, m.root, m.Generation, duty, key)
}

// Keys lists the keys of any duty of the group, sorted. It needs no hold.
func (m *Member) Keys(ctx context.Context, duty string) ([]KeyInfo, error) {
	return Keys(ctx, m.session, m.root, m.Generation, duty)
}

// ReadState returns what was saved under a key before now. g is the group's generation. It returns ErrNoKey or
// ErrStateDamaged.
func ReadState(ctx context.Context, s *zkconn.Session, root, g, duty, key string) ([]byte, error) {
	if err := znode.CheckKey(key); err != nil {
		return nil, err
	}
	at := znode.State(root, g, duty, key)
	if err := s.Sync(ctx, at); err != nil {
		return nil, err
	}
	body, _, err := s.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, fmt.Errorf("%w: %s of %s", ErrNoKey, key, duty)
	}
	if err != nil {
		return nil, err
	}
	value, err := znode.DecodeSaved(body)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w: %w", key, duty, ErrStateDamaged, err)
	}
	return value.Data, nil
}

// Keys lists the keys of a duty, sorted; it is never nil. g is the group's generation. A duty that nobody has taken has
// no keys. It reads all values.
func Keys(ctx context.Context, s *zkconn.Session, root, g, duty string) ([]KeyInfo, error) {
	return list(ctx, s, znode.States(root, g, duty), func(ctx context.Context, key string) ([]KeyInfo, error) {
		body, stat, there, err := zkconn.IfThere(s.Get(ctx, znode.State(root, g, duty, key)))
		if err != nil || !there {
			return nil, err
		}
		v, broken := znode.DecodeSaved(body)
		if broken != nil {
			return []KeyInfo{{Key: key, Saved: stat.Mtime, Problem: broken.Error()}}, nil
		}
		return []KeyInfo{{Key: key, Bytes: len(v.Data), By: v.By, Epoch: v.Epoch, Saved: stat.Mtime}}, nil
	})
}

// list reads what there is now of each child of a folder: one T, or none. It is never nil without an error.
func list[T any](
	ctx context.Context, s *zkconn.Session, folder string, read func(ctx context.Context, name string) ([]T, error),
) ([]T, error) {
	if err := s.Sync(ctx, folder); err != nil {
		return nil, err
	}
	names, _, err := s.Children(ctx, folder)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	found, err := zkstate.ForEach(ctx, names, read)
	return append([]T{}, slices.Concat(found...)...), err
}
