package worker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

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
// Who waits for a value watches its znode; see values.go.

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
	if err := m.lockPublishing(ctx); err != nil {
		return err
	}
	defer m.unlockPublishing()
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

func (m *Member) lockPublishing(ctx context.Context) error {
	select {
	case m.publishing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

func (m *Member) unlockPublishing() { <-m.publishing }

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
	var refused *zkconn.Error
	switch {
	case err == nil:
		m.published[key] = size
	case !errors.As(err, &refused):
	case errors.Is(err, zkconn.ErrBadVersion), refused.Path == path && refused.Op == "set",
		errors.Is(err, zkconn.ErrNodeExists):
		return fmt.Errorf("%w: %w", errAgain, err)
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
	sizes := make([]int, len(keys))
	group, ofReads := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for i, key := range keys {
		group.Go(func() error {
			stat, exists, err := m.session.Exists(ofReads, znode.Data(m.Job.Root, m.Generation, m.ID, key))
			if exists {
				sizes[i] = int(stat.DataLength) + keyCost
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
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
