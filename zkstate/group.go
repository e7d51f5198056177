package zkstate

import (
	"context"

	"golang.org/x/sync/errgroup"

	"muster/group"
	"muster/resource"
	"muster/zkstate/znode"
)

// Group describes how ZooKeeper holds groups.
func Group() Kind {
	return Kind{Kind: group.Kind(), Folders: znode.GroupFolders(), Count: countGroup}
}

// countGroup reads how many of the declared duties somebody holds.
func countGroup(ctx context.Context, r *Reader, o *resource.Observed) error {
	g := group.Of(o.Record)
	held := make([]bool, len(g.Duties))
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(reads)
	for i, d := range g.Duties {
		reading.Go(func() error {
			_, there, err := r.session.Exists(ctx, znode.Held(g.Root, o.Record.Generation, d.Name))
			held[i] = there
			return err
		})
	}
	err := reading.Wait()
	n := 0
	for _, h := range held {
		if h {
			n++
		}
	}
	o.Counts = group.Counts(n)
	return err
}
