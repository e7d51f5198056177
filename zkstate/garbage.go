package zkstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// batch is how many deletes one transaction has. It is small, so that a lost reply costs little.
const batch = 500

// Collect removes what is left below the roots of generations that were deleted: run folders without a gate that no
// Record names, and whose copy of a Record is their own. No worker can write there any more, since every write checks
// the gate. So order and versions do not matter, and the next call continues after a crash. Collect returns the number
// of generations removed in the roots that it finished. A generation whose members keep something outside ZooKeeper
// stays until that is deleted: if it cannot be, Collect goes on, and returns ErrOutside in the end. A folder whose copy
// is not its own stays too, since nobody can tell whose it is, and one that ZooKeeper does not let it delete: then the
// error is plan.ErrLeft, if there is no other.
//
// inUse are generations that Records named a moment ago. Collect asks neither about them nor about those that this
// Store has created: if somebody has ended one since, the next call removes it.
func (s *Store) Collect(ctx context.Context, roots []string, inUse ...string) (int, error) {
	total := 0
	skip := map[string]bool{}
	for _, g := range inUse {
		skip[g] = true
	}
	limited, cancel := context.WithTimeoutCause(ctx, outsideLimit, fmt.Errorf("it took more than %s", outsideLimit))
	defer cancel()
	var outside []error
	var strange []string
	for _, root := range slices.Compact(slices.Sorted(slices.Values(roots))) {
		names, err := s.children(ctx, znode.RunDir(root))
		if err != nil {
			return total, err
		}
		names = slices.DeleteFunc(names, func(g string) bool {
			_, opened := s.opened.Load(g)
			return opened || skip[g]
		})
		garbage, others, err := s.garbage(ctx, root, names)
		if err != nil {
			return total, err
		}
		for _, at := range others {
			strange = append(strange, at+": nobody can tell whose it is")
		}
		kept, err := ForEach(ctx, slices.Sorted(maps.Keys(garbage)), func(ctx context.Context, g string) (error, error) {
			if err := s.unlink(limited, root, garbage[g]); err != nil {
				return err, nil
			}
			err := s.removeTree(ctx, znode.Run(root, g))
			if resists(err) {
				return fmt.Errorf("%w: %w", plan.ErrLeft, err), nil
			}
			return nil, err
		})
		if err != nil {
			return total, err
		}
		for _, err := range kept {
			switch why, ok := errors.AsType[*zkconn.Error](err); {
			case err == nil:
				total++
			case errors.Is(err, plan.ErrLeft) && ok:
				strange = append(strange, why.Error())
			default:
				outside = append(outside, err)
			}
		}
	}
	if err := errors.Join(outside...); err != nil || len(strange) == 0 {
		return total, err
	}
	return total, fmt.Errorf("%w: %s", plan.ErrLeft, text.List(strange, 3))
}

// resists reports whether err says that what somebody made in a generation keeps it from being deleted: an ACL of its
// own, more than fits into a reply, or more of it all the time. That is no reason to keep the garbage of others.
func resists(err error) bool {
	return errors.Is(err, zkconn.ErrNoAuth) || errors.Is(err, zkconn.ErrTooLarge) || errors.Is(err, zkconn.ErrNotEmpty)
}

// outsideLimit is how long one Collect works on what is outside ZooKeeper. It holds the apply lock meanwhile.
const outsideLimit = time.Minute

// ErrOutside means that what the members of a deleted generation keep outside ZooKeeper is still there. The folder of
// the generation stays. Collect again when the other system can be reached.
var ErrOutside = errors.New("what it keeps outside ZooKeeper is not deleted yet")

// unlink deletes what the members of a generation that has ended keep outside ZooKeeper. If nobody has joined the
// generation, there is nothing.
func (s *Store) unlink(ctx context.Context, root string, c *recordCopy) error {
	if !c.kind.Outside {
		return nil
	}
	below, err := s.children(ctx, znode.Run(root, c.generation))
	switch {
	case err == nil && len(below) == 0:
		return nil
	case err == nil && c.kind.Unlink == nil:
		err = errors.New("this program cannot do so")
	case err == nil:
		err = c.kind.Unlink(ctx, c.record)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.record.Declaration.ID().Path(), ErrOutside, err)
	}
	return nil
}

// garbage returns those of the generations names below root that have ended: no gate, no Record that names it, and a
// copy of a Record that is its own. others are the paths of those that have neither gate nor Record, and no such copy:
// nobody can tell whose they are. It reads the gates before the Records: a generation is created with its gate, so one
// without a gate never gets one.
//
// A Record that cannot be read may name any generation. But only one whose copy names the kind and the path of that
// Record can be its own, so only such a one is kept for it.
func (s *Store) garbage(
	ctx context.Context, root string, names []string,
) (ended map[string]*recordCopy, others []string, err error) {
	closed, err := Filter(ctx, names, func(ctx context.Context, g string) (bool, error) {
		open, err := s.exists(znode.Gate(root, g))(ctx)
		return !open, err
	})
	if err != nil || len(closed) == 0 {
		return nil, nil, err
	}
	named, unreadable, err := s.named(ctx, root)
	if errors.Is(err, zkconn.ErrNoAuth) {
		return nil, nil, nil // any of them may be in use
	}
	if err != nil {
		return nil, nil, err
	}
	closed = slices.DeleteFunc(closed, func(g string) bool { return named[g] > 0 })
	copies, err := ForEach(ctx, closed, func(ctx context.Context, g string) (*recordCopy, error) {
		return s.readRunCopy(ctx, root, g)
	})
	ended = map[string]*recordCopy{}
	for _, c := range copies {
		switch {
		case c == nil:
		case c.record == nil:
			others = append(others, znode.Run(root, c.generation))
		case !unreadable[recordPath(*c.record)]:
			ended[c.generation] = c
		}
	}
	return ended, others, err
}

// named reads the Records of all kinds below root: how many name each generation, and the paths of those that cannot be
// read.
func (s *Store) named(ctx context.Context, root string) (named map[string]int, unreadable map[string]bool, err error) {
	named, unreadable = map[string]int{}, map[string]bool{}
	for _, k := range s.kinds {
		dir := znode.RecordDir(k.Name, root)
		names, err := s.children(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		generations, err := ForEach(ctx, names, func(ctx context.Context, name string) (string, error) {
			body, _, err := s.session.Get(ctx, resource.Join(dir, name))
			if errors.Is(err, zkconn.ErrNoAuth) || errors.Is(err, zkconn.ErrNoNode) {
				err = nil
			}
			return znode.NamedGeneration(body), err
		})
		if err != nil {
			return nil, nil, err
		}
		for i, g := range generations {
			if named[g]++; g == "" {
				unreadable[resource.Join(dir, names[i])] = true
			}
		}
	}
	return named, unreadable, nil
}

func (s *Store) checkOnlyOne(ctx context.Context, root, g string) error {
	named, _, err := s.named(ctx, root)
	if err == nil && named[g] > 1 {
		err = fmt.Errorf("another record names generation %s too, and its copy of the record tells nobody whose it is", g)
	}
	return err
}

// removeTree deletes path and everything below it, children first.
func (s *Store) removeTree(ctx context.Context, path string) error {
	names, err := s.children(ctx, path)
	if err != nil {
		return err
	}
	stats, err := ForEach(ctx, names, func(ctx context.Context, name string) (zkconn.Stat, error) {
		stat, there, err := s.session.Exists(ctx, path+"/"+name)
		if there {
			err = nil // one that may not be read may be deleted, if nothing is below it
		}
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
	_, err := ForEach(ctx, paths, func(ctx context.Context, p string) (struct{}, error) {
		return struct{}{}, s.remove(ctx, p)
	})
	return err
}

// remove deletes one znode of any version. It is no error if the znode is gone.
func (s *Store) remove(ctx context.Context, path string) error {
	err := s.session.Once(ctx, func() error { return s.session.Delete(ctx, path, -1) }, nil)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	return err
}
