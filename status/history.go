package status

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"muster/report"
	"muster/resource"
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

// Stacks are those whose last applies stand below a status, sorted: declared, which may be empty, and the owners of all
// whose history is below home. There are at most 20, as that many lines fit below a table.
func Stacks(home, declared string, all []report.JobStatus) []string {
	const most = 20
	home = cmp.Or(home, resource.DefaultHome)
	stacks := map[string]bool{declared: true}
	for _, j := range all {
		if rec := j.Observed.Record; rec != nil && cmp.Or(rec.Home, home) == home {
			stacks[rec.Stack] = true
		}
	}
	delete(stacks, "")
	sorted := slices.Sorted(maps.Keys(stacks))
	return sorted[:min(most, len(sorted))]
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
