package status

import (
	"context"
	"slices"

	"muster/report"
	"muster/zkstate"
)

// History returns the newest n applies of each of these stacks, one stack after the other, the newest first; all that
// are kept if n is 0.
func History(ctx context.Context, r *zkstate.Reader, stacks []string, n int) ([]report.Apply, error) {
	var all []report.Apply
	for _, stack := range stacks {
		found, err := r.History(ctx, stack, n)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			all = append(all, report.Apply{Stack: stack, Found: f})
		}
	}
	return all, nil
}

// NewestFirst sorts the applies of several stacks by when they began. Those of one stack stay in their order.
func NewestFirst(applies []report.Apply) {
	slices.SortStableFunc(applies, func(a, b report.Apply) int {
		if a.Stack == b.Stack {
			return 0 // their numbers order them, whatever the clocks say
		}
		return b.Started.Compare(a.Started)
	})
}
