package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Workers leave small values to each other:
//
//	run/<g>/id/n-<id>/<key>   persistent   a value, and the life that wrote it; set again by the next Publish of the key
//	run/<g>/by                set          the bytes that workers have taken of the room that they share
//
// Both go with the generation. Only the worker of that id writes its keys, in a transaction that checks the gate and
// its claim: a process that dies at any moment has either published the value or not, and one that was replaced
// publishes nothing. It counts its own bytes when it publishes first, and after a lost reply; nobody else changes them.
//
// All values of a generation have at most MaxData bytes. Half of that is shared out: each worker may use an Nth without
// asking. What it needs beyond that it takes from the other half, whose count is in by, in the same transaction.
//
// Who waits for a value watches its znode.

// MaxData is how many bytes all values of a generation have at most; each counts keyCost more.
const MaxData = 64 << 20

// keyCost is what a key counts besides its znode's body: ZooKeeper keeps about that for each znode.
const keyCost = 256

// ErrDataFull means that the values of the workers take too much room. Publish less, or keep it elsewhere, and publish
// where it is.
var ErrDataFull = errors.New("there is no room for the value")

// CheckValue says why a value cannot be published under this key, or returns nil.
func CheckValue(key string, size int) error {
	if err := znode.CheckKey(key); err != nil {
		return err
	}
	if size > znode.MaxValue {
		return fmt.Errorf("%w: %s has more than %d bytes", ErrDataFull, key, znode.MaxValue)
	}
	return nil
}

// Publish leaves a value of at most 64 KiB for the workers of this generation. Publishing a key again replaces its
// value. While a part of the job is missing that somebody deleted it waits. After zkconn.ErrUnknown it is not known
// whether the value was published: do it again.
func (m *Member) Publish(ctx context.Context, key string, value []byte) error {
	if err := CheckValue(key, len(value)); err != nil {
		return err
	}
	body, err := znode.EncodeValue(znode.Value{Life: m.claim.Lives, Data: value})
	if err != nil {
		return err
	}
	if err := m.publishing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.publishing.Release(1)
	err = m.untilWritten(ctx, func() error {
		err := m.writeValue(ctx, key, body)
		if err != nil {
			m.published = nil // count again: it may have been written
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("publish %s: %w", key, err)
	}
	return nil
}

// writeValue is errAgain if another worker took shared room at the same time.
func (m *Member) writeValue(ctx context.Context, key string, body []byte) error {
	if err := m.countPublished(ctx); err != nil {
		return err
	}
	path := znode.Data(m.Job.Root, m.Generation, m.ID, key)
	before, exists := m.published[key]
	op := zkconn.CreateOp(path, body, zkconn.Persistent, m.acl)
	if exists {
		op = zkconn.SetOp(path, body, anyVersion) // nobody else writes it: the claim guards it
	}
	size := len(body) + keyCost
	ops, err := m.takeRoom(ctx, size-before)
	if err != nil {
		return err
	}
	_, err = m.write(ctx, append(ops, op)...)
	switch refused, ok := errors.AsType[*zkconn.Error](err); {
	case err == nil:
		m.published[key] = size
	case !ok:
	case errors.Is(err, zkconn.ErrBadVersion), refused.Path == path && refused.Op == "set",
		errors.Is(err, zkconn.ErrNodeExists):
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// retract deletes what this worker has published in an attempt of before, or in an earlier life, and takes back what it
// has advertised.
func (m *Member) retract(ctx context.Context) error {
	if info := m.info.Load(); info.worker.Address() != info.first.Address() {
		if err := m.Advertise(ctx, info.first.IP, info.first.Port); err != nil {
			return err
		}
	}
	if err := m.publishing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.publishing.Release(1)
	err := m.untilWritten(ctx, func() error {
		if err := m.countPublished(ctx); err != nil {
			return err
		}
		for keys := range slices.Chunk(slices.Sorted(maps.Keys(m.published)), clearBatch) {
			if err := m.retractSome(ctx, keys); err != nil {
				m.published = nil
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("what it has published: %w", err)
	}
	return nil
}

func (m *Member) retractSome(ctx context.Context, keys []string) error {
	size := 0
	for _, key := range keys {
		size += m.published[key]
	}
	ops, err := m.takeRoom(ctx, -size)
	if err != nil {
		return err
	}
	for _, key := range keys {
		ops = append(ops, zkconn.DeleteOp(znode.Data(m.Job.Root, m.Generation, m.ID, key), anyVersion))
	}
	_, err = m.write(ctx, ops...)
	if errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrNoNode) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	for _, key := range keys {
		if err == nil {
			delete(m.published, key)
		}
	}
	return err
}

// takeRoom returns the operation that takes so many more bytes from the shared room, if that is needed. It gives back
// what is less.
func (m *Member) takeRoom(ctx context.Context, more int) ([]zkconn.Op, error) {
	total := 0
	for _, n := range m.published {
		total += n
	}
	own := MaxData / 2 / m.Job.Workers
	delta := max(total+more-own, 0) - max(total-own, 0)
	if delta == 0 {
		return nil, nil
	}
	by := znode.By(m.Job.Root, m.Generation)
	body, stat, err := m.session.Get(ctx, by)
	if err != nil {
		return nil, err
	}
	taken, err := znode.DecodeShared(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", by, err)
	}
	if delta > 0 && taken+delta > MaxData/2 {
		return nil, fmt.Errorf("%w: this worker would hold %d bytes, and may use %d of its own and %d that are left "+
			"for all workers", ErrDataFull, total+more, own, max(MaxData/2-taken, 0))
	}
	return []zkconn.Op{zkconn.SetOp(by, znode.EncodeShared(max(taken+delta, 0)), stat.Version)}, nil
}

// countPublished reads how many bytes this worker has published, unless that is known: also in earlier lives.
func (m *Member) countPublished(ctx context.Context) error {
	if m.published != nil {
		return nil
	}
	at := znode.ID(m.Job.Root, m.Generation, m.ID)
	keys, _, err := m.session.Children(ctx, at)
	if err != nil {
		return err
	}
	sizes, err := zkstate.ForEach(ctx, keys, func(ctx context.Context, key string) (int, error) {
		stat, exists, err := m.session.Exists(ctx, znode.Data(m.Job.Root, m.Generation, m.ID, key))
		if !exists {
			return 0, err
		}
		return int(stat.DataLength) + keyCost, err
	})
	if err != nil {
		return err
	}
	m.published = make(map[string]int, len(keys))
	for i, key := range keys {
		if sizes[i] > 0 {
			m.published[key] = sizes[i]
		}
	}
	return nil
}

// Who needs what other workers publish reads its znodes, and watches each that is not there yet: one
// event for each value, and no polling. It writes nothing, so it may die at any time.

// Published is a value that a worker has published.
type Published struct {
	ID    int    `json:"id"`    // of the worker
	Life  int    `json:"life"`  // of its identity, from 1: which of its processes wrote the value
	Value []byte `json:"value"` // base64 in JSON
}

// UnpublishedError means that some workers have not published a key in time. It is a context.DeadlineExceeded. Wait
// again, or look at those workers.
type UnpublishedError struct {
	Key     string `json:"key"`
	Missing []int  `json:"missing"` // ids of those that were waited for, ascending
}

func (e *UnpublishedError) Error() string {
	return fmt.Sprintf("%s is not published by %s", e.Key, nameIDs(e.Missing))
}

// Unwrap makes it a context.DeadlineExceeded.
func (e *UnpublishedError) Unwrap() error { return context.DeadlineExceeded }

// nameIDs is "worker 3", or "workers 3, 5, 6 and 12 more".
func nameIDs(ids []int) string {
	if len(ids) == 1 {
		return fmt.Sprintf("worker %d", ids[0])
	}
	return "workers " + text.List(ids, maxNamed)
}

// Values waits until each of the workers with these ids has published the key, and returns the values in the order
// of ids; nil stands for all N. It fails with UnpublishedError at the deadline of ctx. If no server answers then, the
// error is only context.DeadlineExceeded.
func (m *Member) Values(ctx context.Context, key string, ids []int) ([]Published, error) {
	if err := znode.CheckKey(key); err != nil {
		return nil, err
	}
	ids = m.orAll(ids)
	for _, id := range ids {
		if id < 0 || id >= m.Job.Workers {
			return nil, fmt.Errorf("worker %d: %w: the job has %d", id, ErrNoWorker, m.Job.Workers)
		}
	}
	found, late := m.awaitValues(ctx, key, ids)
	err := m.ifLate(ctx, late, func(ctx context.Context) error {
		missing, err := m.Unpublished(ctx, key, ids)
		switch {
		case err != nil:
			return fmt.Errorf("it is not known who has published it: %w", late)
		case len(missing) > 0:
			return &UnpublishedError{key, missing}
		}
		found, err = m.awaitValues(ctx, key, ids) // the last event had not come yet
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return found, nil
}

// orAll is ids, or all of the job's if it is nil.
func (m *Member) orAll(ids []int) []int {
	if ids == nil {
		return m.ids(m.Job.Workers)
	}
	return ids
}

// ids lists the first n ids, as far as the job has them.
func (m *Member) ids(n int) []int {
	ids := make([]int, min(n, m.Job.Workers))
	for id := range ids {
		ids[id] = id
	}
	return ids
}

// awaitValues first reads all values, and then waits for those that are missing.
func (m *Member) awaitValues(ctx context.Context, key string, ids []int) ([]Published, error) {
	found, err := zkstate.ForEach(ctx, ids, func(ctx context.Context, id int) (Published, error) {
		return m.value(ctx, key, id)
	})
	if err != nil {
		return nil, err
	}
	return zkstate.ForEach(ctx, found, func(ctx context.Context, p Published) (Published, error) {
		if p.Life > 0 {
			return p, nil
		}
		return m.awaitValue(ctx, key, p.ID)
	})
}

// value is of no life if the worker has not published the key.
func (m *Member) value(ctx context.Context, key string, id int) (Published, error) {
	path := znode.Data(m.Job.Root, m.Generation, id, key)
	body, _, there, err := zkconn.IfThere(m.session.Get(ctx, path))
	if err != nil || !there {
		return Published{ID: id}, err
	}
	v, err := znode.DecodeValue(body)
	if err != nil {
		return Published{}, fmt.Errorf("worker %d: %w", id, err)
	}
	return Published{id, v.Life, v.Data}, nil
}

// awaitValue watches the one znode that the value will be in.
func (m *Member) awaitValue(ctx context.Context, key string, id int) (Published, error) {
	for {
		_, _, changed, err := m.session.ExistsW(ctx, znode.Data(m.Job.Root, m.Generation, id, key))
		if err != nil {
			return Published{}, err
		}
		p, err := m.value(ctx, key, id)
		if p.Life > 0 || err != nil {
			return p, err
		}
		if err := m.await(ctx, changed); err != nil {
			return Published{}, err
		}
	}
}

// Unpublished returns those of the workers with these ids that have not published the key; nil stands for all N. It
// costs a read for each.
func (m *Member) Unpublished(ctx context.Context, key string, ids []int) ([]int, error) {
	return zkstate.Filter(ctx, m.orAll(ids), func(ctx context.Context, id int) (bool, error) {
		_, there, err := m.session.Exists(ctx, znode.Data(m.Job.Root, m.Generation, id, key))
		return !there, err
	})
}
