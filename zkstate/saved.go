package zkstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
)

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
