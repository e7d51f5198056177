package tasks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// settleTime is how long the keeper waits for more deaths after it has found one. Processes that die together are not
// found together: ZooKeeper last heard of each up to a third of the session timeout before, and it rounds.
func settleTime(session time.Duration) time.Duration { return session/3 + 2*time.Second }

// evictGone evicts every seat in Redis that ZooKeeper does not have any more. After the first one it waits for those
// that died at the same time: whether suspects are charged depends on all of these.
func (k *keeper) evictGone(ctx context.Context) error {
	books, err := k.p.store.Books(ctx)
	if err != nil {
		return err
	}
	standing, err := k.standing(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for _, s := range books.Seats {
		if !standing[s.Name] {
			gone = append(gone, s.Name)
		}
	}
	if k.evictAt = k.evictionTime(len(gone) > 0); time.Now().Before(k.evictAt) {
		return nil
	}
	k.evictAt = time.Time{}
	for some := range slices.Chunk(gone, store.MaxItems) {
		if err := k.evict(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// evict evicts seats. What Redis has of one may be damaged: that does not keep the others.
func (k *keeper) evict(ctx context.Context, seats []string) error {
	var damaged []string
	for more := true; more; {
		var err error
		if more, damaged, err = k.p.store.Evict(ctx, store.Died, seats...); err != nil {
			return err
		}
	}
	if len(damaged) > 0 {
		k.p.log.Warn("seats cannot be evicted: what Redis has of them is damaged", "seats", damaged)
	}
	evicted := slices.DeleteFunc(seats, func(seat string) bool { return slices.Contains(damaged, seat) })
	if len(evicted) > 0 {
		k.p.log.Info("evicted seats", "seats", evicted)
	}
	return nil
}

// evictionTime is when the seats that are gone may be evicted; zero: now.
func (k *keeper) evictionTime(gone bool) time.Time {
	if gone && k.evictAt.IsZero() && k.limits.settle > 0 {
		return time.Now().Add(k.limits.settle)
	}
	return k.evictAt
}

// standing are all seats in ZooKeeper, as its leader has them now: by their names in Redis.
func (k *keeper) standing(ctx context.Context) (map[string]bool, error) {
	dir := znode.Seats(k.p.config.Root, k.p.Generation)
	if err := k.p.session.Sync(ctx, dir); err != nil {
		return nil, err
	}
	names, err := k.listSeats(ctx, dir)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string, len(names))
	standing := make(map[string]bool, len(names))
	for _, name := range names {
		seat, ok := k.seats[name]
		if !ok {
			stat, there, err := k.p.session.Exists(ctx, resource.Join(dir, name))
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
			seat = hex(stat.Czxid)
		}
		known[name], standing[seat] = seat, true
	}
	k.seats = known
	return standing, nil
}

// listSeats lists the seats. The keeper watches them.
func (k *keeper) listSeats(ctx context.Context, dir string) (names []string, err error) {
	if k.events != nil {
		select {
		case <-k.events:
		default: // the watch is still set
			names, _, err = k.p.session.Children(ctx, dir)
			return names, err
		}
	}
	names, _, k.events, err = k.p.session.ChildrenW(ctx, dir)
	return names, err
}

// lookAbandoned evicts the seats that are gone, if nobody has evicted one for long. It first asks what costs little:
// whether Redis has more seats than ZooKeeper.
func (k *keeper) lookAbandoned(ctx context.Context) error {
	books, err := k.p.store.Books(ctx)
	if err != nil || books.Now.Sub(books.Evicted) < k.limits.abandoned {
		return err
	}
	names, _, err := k.p.session.Children(ctx, znode.Seats(k.p.config.Root, k.p.Generation))
	if err != nil || len(books.Seats) <= len(names) {
		return err
	}
	if err = k.evictGone(ctx); err != nil || k.evictAt.IsZero() {
		return err
	}
	k.pause(ctx, time.Until(k.evictAt), nil)
	return k.evictGone(ctx)
}

// someGone reports whether Redis has more seats than ZooKeeper, or that is not known: what dead processes held is given
// back soon.
func (p *Process) someGone() bool {
	books, err := p.store.Books(p.ctx)
	if err != nil {
		return true
	}
	dir := znode.Seats(p.config.Root, p.Generation)
	if err := p.session.Sync(p.ctx, dir); err != nil {
		return true
	}
	names, _, err := p.session.Children(p.ctx, dir)
	return err != nil || len(books.Seats) > len(names)
}

// report writes what is amiss, if that has changed. failed is why Redis could not be looked at.
func (k *keeper) report(ctx context.Context, failed error) error {
	var zk *zkconn.Error
	switch {
	case errors.As(failed, &zk), ctx.Err() != nil:
		return nil
	case failed == nil:
		k.silent, k.health.Redis = time.Time{}, ""
	case refused(failed), hopeless(failed), isReply(failed), errors.Is(failed, store.ErrReply):
		k.health.Redis = clip(failed.Error())
	case k.silent.IsZero():
		k.silent = time.Now()
	case time.Since(k.silent) >= k.limits.period:
		k.health.Redis = "it does not answer"
	}
	return k.writeHealth(ctx)
}

// writeHealth writes k.health unless it is there. It names the seat of who wrote it. Nobody believes it once that is
// gone, so the write needs no check.
func (k *keeper) writeHealth(ctx context.Context) error {
	root, g := k.p.config.Root, k.p.Generation
	at := znode.QueueHealth(root, g)
	body, _, err := k.p.session.Get(ctx, at)
	if err != nil {
		return err
	}
	was, bad := znode.DecodeAny[znode.Health](body)
	k.health.Seat = k.p.seat[len(znode.Seats(root, g))+1:]
	slices.Sort(k.health.Lost)
	slices.Sort(k.health.Failed)
	mine := bad == nil && was != nil && was.Seat == k.health.Seat
	switch {
	case mine && sameHealth(*was, k.health), !mine && sameHealth(znode.Health{}, k.health):
		return nil
	}
	if body, err = znode.Encode(k.health); err != nil {
		return err
	}
	_, err = k.p.session.Set(ctx, at, body, -1)
	if errors.Is(err, zkconn.ErrUnknown) { // the next pass reads it again
		return nil
	}
	return err
}

// sameHealth reports whether two findings are the same, whoever made them.
func sameHealth(a, b znode.Health) bool {
	return a.Completed == b.Completed && a.MoreLost == b.MoreLost && a.Redis == b.Redis && a.Full == b.Full &&
		slices.Equal(a.Lost, b.Lost) && slices.Equal(a.Failed, b.Failed)
}

// clip shortens a text for people to what a znode takes.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), 1000)], "") }
