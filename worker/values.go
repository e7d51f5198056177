package worker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Who needs what other workers publish (see data.go) reads its znodes, and watches each that is not there yet: one
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
	Key     string
	Missing []int // ids of those that were waited for, ascending
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
	found, err := m.awaitValues(ctx, key, ids)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && m.ctx.Err() == nil {
		if err = m.whoHasNot(ctx, key, ids, err); err == nil { // the last event had not come yet
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
			defer cancel()
			found, err = m.awaitValues(ctx, key, ids)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return found, nil
}

// orAll is ids, or all of the job's if it is nil.
func (m *Member) orAll(ids []int) []int {
	if ids == nil {
		for id := range m.Job.Workers {
			ids = append(ids, id)
		}
	}
	return ids
}

// awaitValues first reads all values, so many at once, and then waits for those that are missing.
func (m *Member) awaitValues(ctx context.Context, key string, ids []int) ([]Published, error) {
	found := make([]*Published, len(ids))
	readAll := func(limit int, read func(ctx context.Context, key string, id int) (*Published, error)) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(limit)
		for i, id := range ids {
			if found[i] != nil {
				continue
			}
			group.Go(func() (err error) {
				found[i], err = read(ctx, key, id)
				return err
			})
		}
		return group.Wait()
	}
	err := readAll(maxReads, m.value)
	if err == nil {
		err = readAll(-1, m.awaitValue)
	}
	if err != nil {
		return nil, err
	}
	all := make([]Published, len(found))
	for i, p := range found {
		all[i] = *p
	}
	return all, nil
}

// value is nil if the worker has not published the key.
func (m *Member) value(ctx context.Context, key string, id int) (*Published, error) {
	path := znode.Data(m.Job.Root, m.Generation, id, key)
	body, _, err := m.session.Get(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := znode.DecodeValue(body)
	if err != nil {
		return nil, fmt.Errorf("worker %d: %w", id, err)
	}
	return &Published{id, v.Life, v.Data}, nil
}

// awaitValue watches the one znode that the value will be in.
func (m *Member) awaitValue(ctx context.Context, key string, id int) (*Published, error) {
	for {
		_, _, changed, err := m.session.ExistsW(ctx, znode.Data(m.Job.Root, m.Generation, id, key))
		if err != nil {
			return nil, err
		}
		p, err := m.value(ctx, key, id)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.ctx.Done():
			return nil, context.Cause(m.ctx)
		}
	}
}

// whoHasNot says who has not published the key; nil: all have. late is why nobody waits any more.
func (m *Member) whoHasNot(ctx context.Context, key string, ids []int, late error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	missing, err := m.Unpublished(ctx, key, ids)
	switch {
	case err != nil:
		return fmt.Errorf("it is not known who has published it: %w", late)
	case len(missing) == 0:
		return nil
	}
	return &UnpublishedError{key, missing}
}

// Unpublished returns those of the workers with these ids that have not published the key; nil stands for all N. It
// costs a read for each.
func (m *Member) Unpublished(ctx context.Context, key string, ids []int) ([]int, error) {
	ids = m.orAll(ids)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	there := make([]bool, len(ids))
	for i, id := range ids {
		group.Go(func() (err error) {
			_, there[i], err = m.session.Exists(ctx, znode.Data(m.Job.Root, m.Generation, id, key))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []int
	for i, id := range ids {
		if !there[i] {
			missing = append(missing, id)
		}
	}
	return missing, nil
}
