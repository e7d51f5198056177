package tasks

import (
	"context"
	"errors"
	"time"

	"muster/resource"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// forgetEnded deletes what is known of batches that ended long ago, a page in each pass.
func (k *keeper) forgetEnded(ctx context.Context) error {
	dir := znode.EndedDays(k.p.config.Root, k.p.Generation)
	days, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range days {
		day, err := znode.ParseEndedDay(name)
		if err != nil || k.now().Sub(day) < 24*time.Hour+k.limits.ended {
			continue
		}
		return k.forgetDay(ctx, resource.Join(dir, name))
	}
	return nil
}

// forgetDay deletes a page of a day, or its folder.
func (k *keeper) forgetDay(ctx context.Context, dir string) error {
	ids, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return err
	}
	var ops []zkconn.Op
	for _, id := range ids[:min(len(ids), k.limits.page)] {
		ops = append(ops, zkconn.DeleteOp(resource.Join(dir, id), -1))
	}
	if len(ids) <= k.limits.page {
		ops = append(ops, zkconn.DeleteOp(dir, -1))
	}
	_, err = k.p.session.Multi(ctx, ops...)
	switch {
	case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNotEmpty), errors.Is(err, zkconn.ErrUnknown):
		return nil // another process does so too: the next pass looks again
	}
	return err
}

// dropDead drops dead tasks that are older than they are kept, a page of each batch in each pass.
func (k *keeper) dropDead(ctx context.Context) error {
	books, err := k.p.store.Books(ctx)
	if err != nil || books.WithDead == 0 {
		return err
	}
	before := books.Now.Add(-time.Duration(k.p.Queue().KeepDead))
	ids, err := k.p.store.DeadBatches(ctx, before, k.limits.page)
	for _, id := range ids {
		if _, err := k.p.store.Drop(ctx, id, min(k.limits.page, store.MaxItems), before); err != nil {
			return err
		}
	}
	return err
}
