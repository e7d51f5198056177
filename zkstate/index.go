package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The index of a stack, <home>/stack/<stack>, lists every root in which the stack owns something, or once did. Before
// anything is created in a root, the root is listed: and a root that is listed stays so. The first apply of the stack
// that changes something creates the index. The history of the stack is below it.

// Roots lists the roots in which a stack owns something, or once did; none before its first create.
func (r *Reader) Roots(ctx context.Context, stack string) ([]string, error) {
	index, _, _, err := r.index(ctx, stack)
	return index.Roots, err
}

// Stacks lists the stacks of the home, sorted.
func (r *Reader) Stacks(ctx context.Context) ([]string, error) {
	stacks, err := r.children(ctx, znode.StackDir(r.home))
	if err != nil {
		return nil, fmt.Errorf("the index of stacks: %w", err)
	}
	slices.Sort(stacks)
	return stacks, nil
}

// AllRoots lists the roots of all stacks. With an error that is no loss of the connection, those of the stacks that
// could be read: the error is that of the first other one.
func (r *Reader) AllRoots(ctx context.Context) (all []string, problem error) {
	stacks, err := r.Stacks(ctx)
	if err != nil {
		return nil, err
	}
	for _, stack := range stacks {
		roots, err := r.Roots(ctx, stack)
		switch {
		case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, zkconn.ErrUnreachable), ctx.Err() != nil:
			return nil, err
		case problem == nil:
			problem = err
		}
		all = append(all, roots...)
	}
	slices.Sort(all)
	return slices.Compact(all), problem
}

// index reads the index of a stack. It does not exist before the first create of the stack.
func (r *Reader) index(ctx context.Context, stack string) (index znode.Index, version int32, exists bool, err error) {
	at := znode.Stack(r.home, stack)
	body, stat, err := r.source.Get(ctx, at)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return znode.Index{}, 0, false, nil
	case err != nil:
		return znode.Index{}, 0, false, fmt.Errorf("the index of stack %s: %w", stack, err)
	}
	if index, err = znode.Decode[znode.Index](body); err != nil {
		err = fmt.Errorf("%s does not hold an index (set it to {}, and the next apply lists the roots that it knows): %w",
			at, err)
	}
	return index, stat.Version, true, err
}

// ListRoots adds roots to the index of the Store's stack. One caller at a time writes.
func (s *Store) ListRoots(ctx context.Context, roots []string) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	roots = slices.DeleteFunc(slices.Clone(roots), func(root string) bool { return s.listed[root] })
	if len(roots) == 0 {
		return nil
	}
	err := s.rewriteIndex(ctx, func(i *znode.Index) bool {
		before := len(i.Roots)
		for _, root := range roots {
			if !slices.Contains(i.Roots, root) {
				i.Roots = append(i.Roots, root)
			}
		}
		return len(i.Roots) != before
	})
	if err != nil {
		return err
	}
	for _, root := range roots {
		s.listed[root] = true
	}
	return nil
}

// rewriteIndex changes the index by edit, again if somebody else changed it meanwhile. edit reports whether it changed
// anything.
func (s *Store) rewriteIndex(ctx context.Context, edit func(*znode.Index) bool) error {
	if err := s.makeFolder(ctx, znode.StackDir(s.home)); err != nil {
		return err
	}
	at := znode.Stack(s.home, s.cfg.Stack)
	for {
		index, version, exists, err := s.index(ctx, s.cfg.Stack)
		if err != nil {
			return err
		}
		if !edit(&index) && exists {
			return nil
		}
		body, err := znode.Encode(index)
		if err != nil {
			return err
		}
		if exists {
			_, err = s.session.Set(ctx, at, body, version)
		} else {
			_, err = s.session.Create(ctx, at, body, zkconn.Persistent, s.acl)
		}
		switch {
		case errors.Is(err, zkconn.ErrUnknown):
			if err := s.session.Settled(ctx); err != nil {
				return err
			}
		case !preconditionFailed(err): // nil too
			return err
		}
	}
}
