package member

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The assigner deletes what is left of duties that are no longer declared: their saved state, ticks and operations.
// That is, in transactions that all check the gate, the Record and the assigner's own seat:
//
//	run/<g>/assigner       set: purge names the duty
//	run/<g>/duty/<d>/…  deleted, children first, in batches
//	run/<g>/assigner       set: purge no longer names it
//
// The first is written only after the Record was read without the duty, no seat has it, and held is not there. Nobody
// can take a duty that the Record does not declare, so from then on nobody holds it. While purge names a duty, the
// assigner gives it to nobody, also if it is declared again: its holder would find a part of what was there. An
// assigner that dies in between leaves purge, and the next one goes on.

// purgeBatch is how many znodes one transaction deletes.
const purgeBatch = 200

// maxTrees is how many duties purge names at a time: the assigner's memory has room for that many names.
const maxTrees = 100

// purge deletes one batch. It returns errAgain if there is more to do at once.
func (f *office) purge(ctx context.Context, o orders) error {
	if f.tidied != o.record || f.moreTrees && len(f.memory.Purge) == 0 || f.heldEnded() {
		if err := f.findTrees(ctx, o); err != nil {
			return err
		}
	}
	if len(f.memory.Purge) == 0 {
		return nil
	}
	duty := f.memory.Purge[0]
	paths, err := f.leaves(ctx, znode.Duty(f.m.root, f.m.Generation, duty), nil)
	if err != nil {
		return err
	}
	err = f.deleteAll(ctx, o, paths)
	if errors.Is(err, zkconn.ErrNoAuth) { // somebody else's: it stays until it can be deleted
		f.kept[duty] = true
	} else if err != nil {
		return f.failed(ctx, err)
	}
	if f.kept[duty] || len(paths) < purgeBatch {
		f.memory.Purge = slices.Clone(f.memory.Purge[1:])
		if err := f.commit(ctx, o, nil, nil); err != nil {
			return err
		}
	}
	return errAgain
}

// deleteAll deletes znodes in one transaction.
func (f *office) deleteAll(ctx context.Context, o orders, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	ops, err := f.guards(o, false)
	if err != nil {
		return err
	}
	ops = append(ops, zkconn.CheckOp(znode.Assigner(f.m.root, f.m.Generation), f.stat.Version))
	for _, path := range paths {
		ops = append(ops, zkconn.DeleteOp(path, -1))
	}
	_, err = f.m.session.Multi(ctx, ops...)
	return err
}

// heldEnded reports whether a duty that is not declared is no longer held.
func (f *office) heldEnded() bool {
	for _, event := range f.held {
		if happened(event) {
			return true
		}
	}
	return false
}

// findTrees notes in the assigner's memory which trees have to be deleted.
func (f *office) findTrees(ctx context.Context, o orders) error {
	m := f.m
	names, _, err := m.session.Children(ctx, znode.Duties(m.root, m.Generation))
	if err != nil {
		return err
	}
	if f.tidied != o.record {
		clear(f.kept)
	}
	f.moreTrees = false
	purge := slices.Clone(f.memory.Purge)
	for _, name := range names {
		if _, declared := o.group.Duty(name); declared || f.kept[name] || slices.Contains(purge, name) {
			delete(f.held, name)
			continue
		}
		if len(purge) >= maxTrees {
			f.moreTrees = true
			break
		}
		held, err := f.watchHeld(ctx, name)
		if err != nil {
			return err
		}
		if !held {
			purge = append(purge, name)
		}
	}
	slices.Sort(purge)
	if !slices.Equal(purge, f.memory.Purge) {
		f.memory.Purge = purge
		if err := f.commit(ctx, o, nil, nil); err != nil {
			return err
		}
	}
	f.tidied = o.record
	return nil
}

// watchHeld reports whether somebody holds a duty. If so, the assigner is woken when that changes.
func (f *office) watchHeld(ctx context.Context, duty string) (bool, error) {
	if event := f.held[duty]; event != nil && !happened(event) {
		return true, nil
	}
	_, there, event, err := f.m.session.ExistsW(ctx, znode.Held(f.m.root, f.m.Generation, duty))
	if err != nil {
		return false, err
	}
	if there {
		f.held[duty] = event
		f.wakeAt(ctx, event, 0)
	} else {
		delete(f.held, duty)
	}
	return there, nil
}

// leaves adds up to purgeBatch paths of a tree to paths, children before their parents. If it has fewer, it has all.
func (f *office) leaves(ctx context.Context, path string, paths []string) ([]string, error) {
	names, _, err := f.m.session.Children(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return paths, nil
	}
	if errors.Is(err, zkconn.ErrNoAuth) {
		return append(paths, path), nil // the delete will say so
	}
	if err != nil {
		return nil, fmt.Errorf("what is left of a duty: %w", err)
	}
	for _, name := range names {
		if paths, err = f.leaves(ctx, resource.Join(path, name), paths); err != nil {
			return nil, err
		}
		if len(paths) >= purgeBatch {
			return paths, nil
		}
	}
	return append(paths, path), nil
}
