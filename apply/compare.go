package apply

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"muster/plan"
	"muster/resource"
)

// Reader is the ZooKeeper with which Compare compares declarations.
type Reader interface {
	// Searched returns roots and those in which the stack has declared something before. If nobody can tell which those
	// are, unindexed says why.
	Searched(ctx context.Context, stack string, roots []string) (all []string, unindexed string, err error)
	// ReadFor reads everything below roots, and each of paths even if its root cannot be listed. Of a resource that
	// settled accepts it may read less.
	ReadFor(ctx context.Context, roots, paths []string, settled func(path string, o *resource.Observed) bool) (
		plan.State, error)
	// FillSaved adds to row.Old what its members have saved and the commit of row would delete.
	FillSaved(ctx context.Context, row plan.Row) error
	// FillMembers adds to o who is live.
	FillMembers(ctx context.Context, path string, o *resource.Observed) error
}

// Compare reads what is below roots, and in the other roots of the stack, and compares it with what is declared. It
// reads more of the rows that need it: where live members block a row or are left running, it adds their names, since
// the user has to know whom to ask; where a row deletes what members have saved, it adds how much. The plan has no ID.
func Compare(ctx context.Context, r Reader, want plan.Want, roots []string) (plan.Plan, error) {
	roots, unindexed, err := r.Searched(ctx, want.Stack, roots)
	if err != nil {
		return plan.Plan{}, err
	}
	have, err := r.ReadFor(ctx, roots, want.Paths(), want.Settled())
	if err != nil {
		return plan.Plan{}, err
	}
	have.Unindexed = unindexed
	p := plan.Diff(want, have)
	more, err := readMore(ctx, r, p, have)
	if err != nil {
		return plan.Plan{}, err
	}
	if more {
		p = plan.Diff(want, have)
	}
	p.Roots = roots
	return p, nil
}

// readMore adds to have what is read only for some rows. It reports whether there are such rows.
func readMore(ctx context.Context, r Reader, p plan.Plan, have plan.State) (more bool, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(DefaultParallel)
	for _, row := range p.Rows {
		if row.Old == nil || row.Action() == plan.None || row.Action() == plan.Unmanaged {
			continue
		}
		more = true
		g.Go(func() error {
			o := *row.Old
			row.Old = &o
			err := r.FillSaved(ctx, row)
			if a := row.Action(); err == nil && (a == plan.Blocked || a == plan.LeftRunning) {
				err = r.FillMembers(ctx, row.Path, &o)
			}
			mu.Lock()
			defer mu.Unlock()
			have.Found[row.Path] = o
			return err
		})
	}
	return more, g.Wait()
}
