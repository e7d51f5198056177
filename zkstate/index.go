package zkstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The index of a stack, <home>/stack/<stack>, lists every root in which the stack owns something. The first apply of
// the stack that changes something creates it; later creates, take-overs and deletes change it. Every create checks the
// version of the index in which its root is listed, so that nothing is created in a root that is not listed. A crash
// between the listing and the create leaves a root without resources in the index, until an apply drops it. The history
// of the stack is below the index.

// Roots lists the roots in which a stack owns something; none before its first create.
func (r *Reader) Roots(ctx context.Context, stack string) ([]string, error) {
	index, _, _, err := r.index(ctx, stack)
	if err != nil {
		return nil, err
	}
	roots := slices.Concat(index.Roots, index.Leaving)
	slices.Sort(roots)
	return slices.Compact(roots), nil
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

// listRoot makes sure that root is listed for the Store's stack. It returns the version of the index that a
// transaction has to check.
func (s *Store) listRoot(ctx context.Context, root string) (indexVersion, error) {
	s.mu.Lock()
	version, known := s.listed[root]
	s.mu.Unlock()
	if !known {
		var err error
		if version, err = s.listRoots(ctx, []string{root}); err != nil {
			return 0, err
		}
	}
	return indexVersion(version), nil
}

// indexVersion is a version of the index of the Store's stack.
type indexVersion int32

// checkIndex is the operation that checks that the index still has this version.
func (s *Store) checkIndex(v indexVersion) zkconn.Op {
	return zkconn.CheckOp(znode.Stack(s.home, s.cfg.Stack), int32(v))
}

// ListRoots adds roots to the index of the Store's stack.
func (s *Store) ListRoots(ctx context.Context, roots []string) error {
	if len(roots) == 0 {
		return nil
	}
	_, err := s.listRoots(ctx, roots)
	return err
}

// listRoots adds roots to the index, and returns the version of the index that lists them. One caller at a time writes.
func (s *Store) listRoots(ctx context.Context, roots []string) (int32, error) {
	s.listing.Lock()
	defer s.listing.Unlock()
	err := s.makeFolder(ctx, znode.StackDir(s.home))
	if err != nil {
		return 0, err
	}
	version, err := s.rewriteIndex(ctx, func(i *znode.Index) bool {
		before := len(i.Roots)
		for _, root := range roots {
			if !slices.Contains(i.Roots, root) {
				i.Roots = append(i.Roots, root)
			}
		}
		leaving := len(i.Leaving)
		i.Leaving = slices.DeleteFunc(i.Leaving, func(root string) bool { return slices.Contains(roots, root) })
		return len(i.Roots) != before || len(i.Leaving) != leaving
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.listed) // they are of an earlier version
	for _, root := range roots {
		s.listed[root] = version
	}
	return version, nil
}

// rewriteIndex changes the index by edit, again if somebody else changed it meanwhile, and returns its version. edit
// reports whether it changed anything.
func (s *Store) rewriteIndex(ctx context.Context, edit func(*znode.Index) bool) (int32, error) {
	at := znode.Stack(s.home, s.cfg.Stack)
	for {
		index, version, exists, err := s.index(ctx, s.cfg.Stack)
		if err != nil {
			return 0, err
		}
		if !edit(&index) && exists {
			return version, nil
		}
		body, err := znode.Encode(index)
		if err != nil {
			return 0, err
		}
		if exists {
			_, err = s.session.Set(ctx, at, body, version)
		} else {
			_, err = s.session.Create(ctx, at, body, zkconn.Persistent, s.acl)
		}
		switch {
		case err == nil && !exists:
			return 0, nil
		case err == nil:
			return version + 1, nil
		case errors.Is(err, zkconn.ErrUnknown):
			if err := s.session.Settled(ctx); err != nil {
				return 0, err
			}
		case preconditionFailed(err):
		default:
			return 0, err
		}
	}
}

// errIndexChanged means that nothing was written: the index was changed after the root was listed. List the root again.
var errIndexChanged = errors.New("the index was written by somebody else")

// indexChanged reports whether a transaction was refused because the index was changed after its root was listed.
func (s *Store) indexChanged(err error) bool {
	var refused *zkconn.Error
	if !errors.As(err, &refused) || refused.Path != znode.Stack(s.home, s.cfg.Stack) || !preconditionFailed(err) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.listed)
	return true
}

// DropRoots removes from the index those of roots in which the Store's stack owns nothing any more. The caller holds
// the apply lock. Each root is first marked as leaving: a create there then lists it again.
func (s *Store) DropRoots(ctx context.Context, roots []string) error {
	listed, err := s.Roots(ctx, s.cfg.Stack)
	if err != nil {
		return err
	}
	roots = slices.DeleteFunc(slices.Clone(roots), func(root string) bool { return !slices.Contains(listed, root) })
	if len(roots) == 0 {
		return nil
	}
	version, err := s.markLeaving(ctx, roots)
	if err != nil {
		return err
	}
	if err := s.session.Sync(ctx, "/"); err != nil {
		return err
	}
	empty := map[string]bool{}
	for _, root := range roots {
		if empty[root], err = s.ownsNothing(ctx, root); err != nil {
			return err
		}
	}
	index, now, _, err := s.index(ctx, s.cfg.Stack)
	if err != nil || now != version { // somebody changed it meanwhile: the next apply tries again
		return err
	}
	for _, root := range slices.Sorted(maps.Keys(empty)) {
		index.Leaving = slices.DeleteFunc(index.Leaving, func(l string) bool { return l == root })
		if !empty[root] {
			index.Roots = append(index.Roots, root)
		}
	}
	body, err := znode.Encode(index)
	if err != nil {
		return err
	}
	_, err = s.session.Set(ctx, znode.Stack(s.home, s.cfg.Stack), body, version)
	if errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrUnknown) {
		err = nil // the next apply tries again
	}
	return err
}

// markLeaving marks roots as leaving, and returns the version of the index.
func (s *Store) markLeaving(ctx context.Context, roots []string) (int32, error) {
	return s.rewriteIndex(ctx, func(i *znode.Index) bool {
		for _, root := range roots {
			if !slices.Contains(i.Leaving, root) {
				i.Leaving = append(i.Leaving, root)
			}
		}
		i.Roots = slices.DeleteFunc(i.Roots, func(root string) bool { return slices.Contains(roots, root) })
		return true
	})
}

// ownsNothing reports whether the Store's stack certainly owns nothing below root.
func (s *Store) ownsNothing(ctx context.Context, root string) (bool, error) {
	state, err := s.Read(ctx, []string{root})
	if err != nil || len(state.Unlisted) > 0 {
		return false, err
	}
	for _, o := range state.Found {
		if o.Class() == resource.Unreadable || o.Class() == resource.Damaged ||
			o.Record != nil && o.Record.Stack == s.cfg.Stack {
			return false, nil
		}
	}
	return true, nil
}
