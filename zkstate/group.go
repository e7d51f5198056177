package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Group describes how ZooKeeper holds groups.
func Group() Kind {
	return Kind{Kind: group.Kind(), Folders: znode.GroupFolders(), Count: countGroup, Saved: savedInGroup}
}

// countGroup reads how many of the declared duties somebody holds. Without live members it is none: held goes with the
// session of the member. Else it costs a read for each duty that was ever taken.
func countGroup(ctx context.Context, r *Reader, o *resource.Observed) error {
	g, generation := group.Of(o.Record), o.Record.Generation
	live, _, err := r.source.Exists(ctx, g.Path())
	if err != nil || live.NumChildren == 0 {
		return err
	}
	taken, err := r.children(ctx, znode.Duties(g.Root, generation))
	if err != nil {
		return err
	}
	taken = slices.DeleteFunc(taken, func(name string) bool { _, declared := g.Duty(name); return !declared })
	held, err := ForEach(ctx, taken, func(ctx context.Context, name string) (bool, error) {
		return r.exists(znode.Held(g.Root, generation, name))(ctx)
	})
	n := 0
	for _, h := range held {
		if h {
			n++
		}
	}
	o.Counts = group.Counts(n)
	return err
}

// savedInGroup reads what was saved for those duties of o that left does not have, or for all of them if left is nil.
// Of a duty without state and open operations nothing is returned.
//
// The guards are the versions of the folders of state and of operations: every write of a value sets the one, every
// opening of an operation the other. What does not exist yet must not exist then either: a folder of a duty, or a duty
// that nobody has ever had.
func savedInGroup(ctx context.Context, r *Reader, o *resource.Observed, left resource.Declaration) (
	saved []resource.Saved, guards []zkconn.Op, err error,
) {
	was, g := group.Of(o.Record), o.Record.Generation
	kept, _ := left.(group.Group)
	taken, err := r.children(ctx, znode.Duties(was.Root, g))
	if err != nil {
		return nil, nil, err
	}
	gone := map[string]group.Duty{}
	var names, absent []string
	for _, d := range was.Duties {
		switch _, stays := kept.Duty(d.Name); {
		case stays:
		case slices.Contains(taken, d.Name):
			gone[d.Name] = d
			names = append(names, d.Name)
		default:
			absent = append(absent, znode.Duty(was.Root, g, d.Name))
		}
	}
	all, err := ForEach(ctx, names, func(ctx context.Context, name string) (savedInDuty, error) {
		return r.savedInDuty(ctx, o, gone[name])
	})
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		guards = append(guards, s.guards...)
		if s.Keys > 0 || len(s.Open) > 0 {
			saved = append(saved, s.Saved)
		}
	}
	if len(taken) == 0 && len(absent) > 0 {
		if absent, err = r.neverJoined(ctx, o, absent); err != nil {
			return nil, nil, err
		}
	}
	for _, path := range absent {
		guard, err := guardAbsent(o, path)
		if err != nil {
			return nil, nil, err
		}
		guards = append(guards, guard...)
	}
	slices.SortFunc(saved, func(a, b resource.Saved) int { return cmp.Compare(a.Section, b.Section) })
	return saved, guards, err
}

// savedInDuty is what was saved for one duty, and the operations that guard it.
type savedInDuty struct {
	resource.Saved
	guards []zkconn.Op
}

// savedInDuty reads how much state there is, and the names of the open operations.
func (r *Reader) savedInDuty(ctx context.Context, o *resource.Observed, d group.Duty) (savedInDuty, error) {
	s := savedInDuty{Saved: resource.Saved{Section: d.Section()}}
	root, g := group.Of(o.Record).Root, o.Record.Generation
	folder := znode.States(root, g, d.Name)
	body, stat, err := r.source.Get(ctx, folder)
	switch {
	case err == nil:
		s.Keys, s.Bytes = int(stat.NumChildren), znode.DecodeStateTotal(body).Bytes
		s.guards = []zkconn.Op{zkconn.CheckOp(folder, stat.Version)}
	case errors.Is(err, zkconn.ErrNoNode):
		s.guards, err = guardAbsent(o, folder)
	}
	if err != nil {
		return s, err
	}
	noOpening, err := r.guard(ctx, o, znode.Ops(root, g, d.Name))
	if err != nil {
		return s, err
	}
	s.guards = append(s.guards, noOpening...)
	s.Open, err = r.openOperations(ctx, root, g, d.Name)
	return s, err
}

// openOperations lists the operations of a duty that were begun and are not done, sorted. One whose znode cannot be
// decoded counts as open; one whose znode is empty is closed.
func (r *Reader) openOperations(ctx context.Context, root, g, duty string) ([]string, error) {
	all, err := r.readChildren(ctx, znode.Ops(root, g, duty))
	var open []string
	for _, op := range all {
		if opening, err := znode.DecodeAny[znode.Opening](op.body); opening != nil || err != nil {
			open = append(open, op.name)
		}
	}
	slices.Sort(open)
	return open, err
}

// guard returns operations which check that the znode at path still has its version, or still does not exist.
func (r *Reader) guard(ctx context.Context, o *resource.Observed, path string) ([]zkconn.Op, error) {
	stat, there, err := r.source.Exists(ctx, path)
	if err != nil || there {
		return []zkconn.Op{zkconn.CheckOp(path, stat.Version)}, err
	}
	return guardAbsent(o, path)
}

// guardAbsent returns operations which check that there is no znode at path: they create it, which is refused if
// somebody else has, and delete it.
func guardAbsent(o *resource.Observed, path string) ([]zkconn.Op, error) {
	acl, err := ParseACL(o.Record.ACL)
	return []zkconn.Op{zkconn.CreateOp(path, nil, zkconn.Persistent, acl), zkconn.DeleteOp(path, -1)}, err
}

// neverJoined returns what must not exist for duties that nobody has ever had: the folder of duties if there is none,
// or else duties.
func (r *Reader) neverJoined(ctx context.Context, o *resource.Observed, duties []string) ([]string, error) {
	if !o.Has(resource.PartGeneration) {
		return nil, nil
	}
	folder := znode.Duties(group.Of(o.Record).Root, o.Record.Generation)
	there, err := r.exists(folder)(ctx)
	if err != nil || there {
		return duties, err
	}
	return []string{folder}, nil
}

// What members have saved is read only where a row would delete some of it: before a plan is shown, and again right
// before its transaction, which checks that nothing of it was written since.

// FillSaved fills r.Old.Saved if the commit of r would delete some of what members have saved.
func (r *Reader) FillSaved(ctx context.Context, row plan.Row) error {
	_, err := r.fillSaved(ctx, row)
	return err
}

// fillSaved is FillSaved. It also returns operations which check that nothing of it was written since.
func (r *Reader) fillSaved(ctx context.Context, row plan.Row) ([]zkconn.Op, error) {
	if !row.Action().Changes() || row.Reason == plan.IsDamaged || row.Old == nil || row.Old.Record == nil {
		return nil, nil
	}
	k, ok := r.kind(row.Old.Record.Declaration.Kind().Name)
	if !ok || k.Saved == nil {
		return nil, nil
	}
	left := row.New
	if row.Action() == plan.Delete || row.Action() == plan.Replace {
		left = nil
	}
	saved, guards, err := k.Saved(ctx, r, row.Old, left)
	if err != nil {
		return nil, fmt.Errorf("what was saved in %s: %w", row.Path, err)
	}
	row.Old.Saved = saved
	return guards, nil
}

// checkSaved returns plan.ErrMoved if the commit of row would delete something else than its plan shows. It fills
// now.Saved, and returns operations which check in the transaction that nothing of it was written since.
func (s *Store) checkSaved(ctx context.Context, row plan.Row, now *resource.Observed) ([]zkconn.Op, error) {
	if now == nil || row.Old == nil {
		return nil, nil
	}
	again := plan.Row{Path: row.Path, Old: now, New: row.New, Reason: row.Reason}
	guards, err := s.fillSaved(ctx, again)
	if err != nil {
		return nil, err
	}
	if slices.EqualFunc(row.Loss(), again.Loss(), equalSaved) {
		return guards, nil
	}
	return nil, fmt.Errorf("%w: it would delete what the plan did not show: %s -> %s", plan.ErrMoved,
		cmp.Or(row.LossText(), "nothing"), cmp.Or(again.LossText(), "nothing"))
}

func equalSaved(a, b resource.Saved) bool {
	return a.Section == b.Section && a.Keys == b.Keys && a.Bytes == b.Bytes && slices.Equal(a.Open, b.Open)
}
