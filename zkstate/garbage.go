package zkstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// batch is how many deletes one transaction has. It is small, so that a lost reply costs little.
const batch = 500

// Collect removes what is left below the roots of generations that were deleted: run folders without a gate that no
// Record names. No worker can write there any more, since every write checks the gate. So order and versions do not
// matter, and the next call continues after a crash. Collect returns the number of generations removed in the roots
// that it finished. A generation whose members keep something outside ZooKeeper stays until that is deleted: if it
// cannot be, Collect goes on, and returns ErrOutside in the end.
//
// inUse are generations that Records named a moment ago. Collect asks neither about them nor about those that this
// Store has created: if somebody has ended one since, the next call removes it.
func (s *Store) Collect(ctx context.Context, roots []string, inUse ...string) (int, error) {
	total := 0
	skip := s.openedHere()
	for _, g := range inUse {
		skip[g] = true
	}
	var outside []error
	for _, root := range slices.Compact(slices.Sorted(slices.Values(roots))) {
		garbage, err := s.garbage(ctx, root, skip)
		if err != nil {
			return total, err
		}
		kept, err := forEach(ctx, garbage, func(ctx context.Context, g string) (error, error) {
			if err := s.unlink(ctx, root, g); err != nil {
				return err, nil
			}
			return nil, s.removeTree(ctx, znode.Run(root, g))
		})
		if err != nil {
			return total, err
		}
		outside = append(outside, kept...)
		total += len(garbage) - count(kept)
	}
	return total, errors.Join(outside...)
}

// openedHere returns the generations that this Store has created, and not ended.
func (s *Store) openedHere() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.opened)
}

// ErrOutside means that what the members of a deleted generation keep outside ZooKeeper is still there. The folder of
// the generation stays. Collect again when the other system can be reached.
var ErrOutside = errors.New("what it keeps outside ZooKeeper is not deleted yet")

// unlink deletes what the members of a generation without a gate keep outside ZooKeeper. If nobody has joined the
// generation, there is nothing.
func (s *Store) unlink(ctx context.Context, root, g string) error {
	body, _, err := s.session.Get(ctx, znode.Run(root, g))
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrOutside, err)
	}
	for _, k := range s.kinds {
		rec, bad := znode.DecodeRecord(k.Kind, body)
		if !k.Outside || bad != nil {
			continue
		}
		below, err := s.children(ctx, znode.Run(root, g))
		switch {
		case err == nil && len(below) == 0:
			return nil
		case err == nil && k.Unlink == nil:
			err = errors.New("this program cannot do so")
		case err == nil:
			err = k.Unlink(ctx, &rec)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", rec.Declaration.ID().Path(), ErrOutside, err)
		}
	}
	return nil
}

// count counts the errors that are not nil.
func count(errs []error) int {
	return len(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil }))
}

// garbage lists the generations below root that have neither a gate nor a Record. It reads the gates before the
// Records: a generation is created with its gate, so one without a gate never gets one. It leaves out those in skip.
func (s *Store) garbage(ctx context.Context, root string, skip map[string]bool) ([]string, error) {
	names, _, err := s.session.Children(ctx, znode.RunDir(root))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(g string) bool { return skip[g] })
	open, err := forEach(ctx, names, func(ctx context.Context, g string) (bool, error) {
		return s.exists(znode.Gate(root, g))(ctx)
	})
	if err != nil {
		return nil, err
	}
	closed := map[string]bool{}
	for i, g := range names {
		if !open[i] {
			closed[g] = true
		}
	}
	if len(closed) == 0 {
		return nil, nil
	}
	for _, k := range s.kinds {
		recorded, err := s.readChildren(ctx, znode.RecordDir(k.Name, root))
		if errors.Is(err, zkconn.ErrNoAuth) {
			return nil, nil // as for a Record that cannot be decoded
		}
		if err != nil {
			return nil, err
		}
		for _, e := range recorded {
			rec, err := znode.DecodeRecord(k.Kind, e.body)
			if err != nil {
				return nil, nil // it may name any of the generations
			}
			delete(closed, rec.Generation)
		}
	}
	return slices.DeleteFunc(names, func(g string) bool { return !closed[g] }), nil
}

// removeTree deletes path and everything below it, children first.
func (s *Store) removeTree(ctx context.Context, path string) error {
	names, _, err := s.session.Children(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	stats, err := forEach(ctx, names, func(ctx context.Context, name string) (zkconn.Stat, error) {
		stat, _, err := s.session.Exists(ctx, path+"/"+name)
		return stat, err
	})
	if err != nil {
		return err
	}
	var leaves []string
	for i, name := range names {
		child := path + "/" + name
		if stats[i].NumChildren == 0 {
			leaves = append(leaves, child)
			continue
		}
		if err := s.removeTree(ctx, child); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(leaves, batch) {
		if err := s.removeAll(ctx, chunk); err != nil {
			return err
		}
	}
	return s.remove(ctx, path)
}

// removeAll deletes leaves in one transaction, or one by one if another apply has deleted some of them.
func (s *Store) removeAll(ctx context.Context, paths []string) error {
	ops := make([]zkconn.Op, len(paths))
	for i, p := range paths {
		ops[i] = zkconn.DeleteOp(p, -1)
	}
	if _, err := s.session.Multi(ctx, ops...); err == nil {
		return nil
	}
	_, err := forEach(ctx, paths, func(ctx context.Context, p string) (struct{}, error) {
		return struct{}{}, s.remove(ctx, p)
	})
	return err
}

// remove deletes one znode of any version. It is no error if the znode is gone.
func (s *Store) remove(ctx context.Context, path string) error {
	for {
		err := s.session.Delete(ctx, path, -1)
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			return nil
		case !errors.Is(err, zkconn.ErrUnknown):
			return err
		}
		if err := s.session.Settled(ctx); err != nil {
			return err
		}
	}
}
