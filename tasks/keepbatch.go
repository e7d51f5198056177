package tasks

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// batchPage is how many batches are read from Redis at once.
const batchPage = 200

// repair compares the batches of Redis and ZooKeeper, and finishes what was begun. Between two batches it evicts seats
// that are gone. An error of Redis ends it; the next pass begins again. What concerns one batch only is logged.
func (k *keeper) repair(ctx context.Context) error {
	found, err := k.readBatches(ctx) // before ZooKeeper
	if err != nil {
		return err
	}
	manifests, err := k.readManifests(ctx)
	if err != nil {
		return err
	}
	amiss := znode.Health{Redis: k.health.Redis}
	if amiss.Full, err = k.p.store.Full(ctx, int64(k.p.Queue().MaxBytes)); err != nil {
		return err
	}
	for id, b := range found {
		if m, there := manifests[id]; there && (b.Broken != "" || m.Life == "" || b.Life == m.Life) {
			continue
		}
		if err := k.one(id, "removed from redis", k.removeEnded(ctx, id, b.Life)); err != nil {
			return err
		}
		if err := k.seatsFirst(ctx); err != nil {
			return err
		}
		delete(found, id)
	}
	for id, m := range manifests {
		var known *store.Batch
		if b, there := found[id]; there && b.Broken == "" {
			known = &b
		}
		if err := k.repairBatch(ctx, id, m, known, &amiss); err != nil {
			return err
		}
		if err := k.seatsFirst(ctx); err != nil {
			return err
		}
	}
	k.health = amiss
	return errors.Join(k.forgetEnded(ctx), k.dropDead(ctx))
}

// seatsFirst evicts the seats that are gone, if seats have changed, or if those that died together have had the time to
// go. So neither many batches hold that up, nor many processes that come and go the batches.
func (k *keeper) seatsFirst(ctx context.Context) error {
	select {
	case <-k.events:
	default:
		if k.evictAt.IsZero() || time.Now().Before(k.evictAt) {
			return nil
		}
	}
	return k.evictGone(ctx)
}

// repairBatch does what is to be done about one batch, of which b is what Redis has; nil: nothing that can be used.
func (k *keeper) repairBatch(ctx context.Context, id string, m Manifest, b *store.Batch, amiss *znode.Health) error {
	switch {
	case b == nil || !waitsForWatcher(*b):
	case b.Tries < b.Attempts:
		amiss.Completed++
	case len(amiss.Failed) < znode.MaxHealth:
		amiss.Failed = append(amiss.Failed, id)
	}
	do := decide(m, b, k.now(), k.limits)
	if do.repair == repairLost || do.how == znode.EndUnattended {
		var err error
		if do, err = k.decideAgain(ctx, id, m); err != nil {
			return k.one(id, "", err)
		}
	}
	switch {
	case do.repair != repairLost:
		return k.one(id, do.String(), k.carryOut(ctx, id, m, do))
	case len(amiss.Lost) == znode.MaxHealth:
		amiss.MoreLost++
	default:
		amiss.Lost = append(amiss.Lost, id)
	}
	return nil
}

// decideAgain decides about a batch that Redis did not have when ZooKeeper did: it may have come since, or ended.
func (k *keeper) decideAgain(ctx context.Context, id string, m Manifest) (decision, error) {
	var known *store.Batch
	b, err := k.p.store.Batch(ctx, id)
	switch {
	case err == nil && b.Broken == "" && b.Life == m.Life:
		known = &b
	case err != nil && !errors.Is(err, store.ErrNoBatch) && !errors.Is(err, store.ErrBroken):
		return decision{}, err
	}
	if m, err = manifest(ctx, k.p.session, k.p.config.Root, k.p.Generation, id); err != nil {
		return decision{}, err
	}
	return decide(m, known, k.now(), k.limits), nil
}

// one logs an error that concerns one batch only, and what was done. It returns any other error.
func (k *keeper) one(id, did string, err error) error {
	switch {
	case err == nil && did != "":
		k.p.log.Info("repaired a batch", "batch", id, "did", did)
	case err == nil:
	case refused(err), errors.Is(err, ErrNoBatch), errors.Is(err, ErrGoesOn), denied(err):
		k.p.log.Debug("a batch is looked at again later", "batch", id, "error", err)
	default:
		return err
	}
	return nil
}

// denied reports whether ZooKeeper refused a request, such as for the version or the ACL of one znode.
func denied(err error) bool {
	var zk *zkconn.Error
	return errors.As(err, &zk) && !slices.ContainsFunc([]error{
		zkconn.ErrUnknown, zkconn.ErrNotSent, zkconn.ErrSessionLost, zkconn.ErrUnreachable, context.Canceled,
	}, func(e error) bool { return errors.Is(err, e) })
}

// readBatches reads all batches that Redis has.
func (k *keeper) readBatches(ctx context.Context) (map[string]store.Batch, error) {
	all := map[string]store.Batch{}
	for skip := 0; ; skip += batchPage {
		page, err := k.p.store.Batches(ctx, skip, batchPage)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			all[b.ID] = b
		}
		if len(page) < batchPage { // one that another process removes meanwhile may hide one, until the next pass
			return all, nil
		}
	}
}

// readManifests reads all batches that ZooKeeper has; one that cannot be read is there, without tasks. The keeper
// follows them, so only new ones cost a read. What it knows may be a moment old: every write has the version read.
func (k *keeper) readManifests(ctx context.Context) (map[string]Manifest, error) {
	dir := znode.Batches(k.p.config.Root, k.p.Generation)
	if err := k.p.session.Sync(ctx, dir); err != nil {
		return nil, err
	}
	ids, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		k.p.followBatch(id)
	}
	all := map[string]Manifest{}
	for _, id := range ids {
		m, err := k.p.Manifest(ctx, id)
		switch {
		case errors.Is(err, ErrNoBatch): // it has ended just now
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			k.p.log.Warn("a batch cannot be read", "batch", id, "error", err)
			all[id] = Manifest{Life: m.Life}
		default:
			all[id] = m
		}
	}
	return all, nil
}

// waitsForWatcher reports whether a batch is completed, and its results wait for a watcher.
func waitsForWatcher(b store.Batch) bool {
	return completed(b) && b.Results == string(queue.ResultsWatcher) && b.Holder == ""
}

// completed reports whether all tasks of a batch have ended.
func completed(b store.Batch) bool {
	return (b.State == string(znode.BatchOpen) || b.State == string(znode.BatchPaused)) && b.Done+b.Dead == b.Tasks
}

// removeEnded removes a batch from Redis, unless ZooKeeper has it: what the keeper knows may be a moment old. life is
// "" if it could not be read.
func (k *keeper) removeEnded(ctx context.Context, id, life string) error {
	if life == "" { // Redis refuses this unless it cannot tell the life: another one may have begun since
		_, err := k.p.store.Remove(ctx, id, "unknown")
		var r *store.Refusal
		if !errors.Is(err, store.ErrLife) || !errors.As(err, &r) {
			return err
		}
		life = r.Detail
	}
	m, err := manifest(ctx, k.p.session, k.p.config.Root, k.p.Generation, id)
	if err == nil && m.Life == life || err != nil && !errors.Is(err, ErrNoBatch) {
		return err
	}
	_, err = k.p.store.Remove(ctx, id, life)
	return err
}

// carryOut does what was decided about a batch.
func (k *keeper) carryOut(ctx context.Context, id string, m Manifest, do decision) error {
	switch do.repair {
	case repairEnd:
		return EndBatch(ctx, k.p.session, k.p.store, k.p.config.Root, k.p.Generation, id, m, do.how, k.p.Identity)
	case repairReopen:
		_, err := k.p.store.Open(ctx, id, m.Life, m.Tasks)
		return err
	case repairSet:
		_, err := k.p.store.Set(ctx, id, m.Life, int64(m.Version), m.Weight, string(m.State))
		return err
	case repairOpened:
		m.State = znode.BatchOpen
	case repairCompleted:
		m.Completed = k.now()
	case repairRetried:
		m.Retrying = false
	case repairResumed:
		m.Completed = time.Time{}
	default:
		return nil
	}
	return k.writeManifest(ctx, id, m)
}

// writeManifest writes a manifest at the version read. If the answer is lost, the next pass looks again.
func (k *keeper) writeManifest(ctx context.Context, id string, m Manifest) error {
	body, err := znode.Encode(m.BatchManifest)
	if err != nil {
		return err
	}
	_, err = k.p.session.Set(ctx, znode.Batch(k.p.config.Root, k.p.Generation, id), body, m.Version)
	if errors.Is(err, zkconn.ErrUnknown) {
		return k.p.session.Settled(ctx)
	}
	return err
}
