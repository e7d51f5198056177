package zkstate

import (
	"cmp"
	"context"
	"slices"

	"muster/group"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// savedInGroup reads what was saved for those duties of o that left does not have, or for all of them if left is nil.
// Of a duty without state and open operations nothing is returned.
//
// The guards are the versions of the folders of state: every write of a holder sets one. If left is nil, one guard is
// the version of the clerk's memory: nobody gets a duty, and nobody new can save something, without a write of it.
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
	var names []string
	for _, d := range was.Duties {
		if _, stays := kept.Duty(d.Name); !stays && slices.Contains(taken, d.Name) {
			gone[d.Name] = d
			names = append(names, d.Name)
		}
	}
	all, err := forEach(ctx, names, func(ctx context.Context, name string) (savedInDuty, error) {
		return r.savedInDuty(ctx, was.Root, g, gone[name])
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
	if left == nil && len(taken) > 0 {
		guards, err = r.appendGuard(ctx, guards, znode.Clerk(was.Root, g))
	}
	slices.SortFunc(saved, func(a, b resource.Saved) int { return cmp.Compare(a.Section, b.Section) })
	return saved, guards, err
}

// savedInDuty is what was saved for one duty, and the operations that guard it.
type savedInDuty struct {
	resource.Saved
	guards []zkconn.Op
}

// savedInDuty reads the manifest of each key, and the names of the open operations.
func (r *Reader) savedInDuty(ctx context.Context, root, g string, d group.Duty) (savedInDuty, error) {
	s := savedInDuty{Saved: resource.Saved{Section: d.Section()}}
	folder := znode.States(root, g, d.Name)
	var err error
	if s.guards, err = r.appendGuard(ctx, nil, folder); err != nil {
		return s, err
	}
	if len(s.guards) > 0 { // there is state
		keys, err := r.readChildren(ctx, folder)
		if err != nil {
			return s, err
		}
		for _, key := range keys {
			s.addKey(key.body)
		}
	}
	s.Open, err = r.openOperations(ctx, root, g, d.Name)
	return s, err
}

// addKey counts one key. One without a manifest is not there yet, or not any more. One whose manifest cannot be read
// counts, without its bytes.
func (s *savedInDuty) addKey(body []byte) {
	manifest, err := znode.DecodeManifest(body)
	if manifest == nil && err == nil {
		return
	}
	s.Keys++
	if manifest != nil {
		s.Bytes += int64(manifest.Bytes)
	}
}

// openOperations lists the operations of a duty that were begun and are not done, sorted. One whose znode cannot be
// decoded counts as open; one whose znode is empty is closed.
func (r *Reader) openOperations(ctx context.Context, root, g, duty string) ([]string, error) {
	all, err := r.readChildren(ctx, znode.Ops(root, g, duty))
	var open []string
	for _, op := range all {
		if opening, err := znode.DecodeOpening(op.body); opening != nil || err != nil {
			open = append(open, op.name)
		}
	}
	slices.Sort(open)
	return open, err
}

// appendGuard appends an operation that checks the version of the znode at path, if it exists.
func (r *Reader) appendGuard(ctx context.Context, guards []zkconn.Op, path string) ([]zkconn.Op, error) {
	stat, exists, err := r.session.Exists(ctx, path)
	if err != nil || !exists {
		return guards, err
	}
	return append(guards, zkconn.CheckOp(path, stat.Version)), nil
}
