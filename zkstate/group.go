package zkstate

import (
	"context"
	"slices"

	"muster/group"
	"muster/resource"
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
