package zkstate

import (
	"context"
	"errors"
	"time"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Follower is a Reader that also waits for changes.
type Follower struct {
	*Reader
	session *zkconn.Session
}

// NewFollower returns a Follower that reads from s; home and kinds are as for NewReader.
func NewFollower(s *zkconn.Session, home string, kinds ...Kind) *Follower {
	return &Follower{NewReader(s, home, kinds...), s}
}

// Follow calls each with what is at path, nil while nothing is: now, after each change of anything that was read of it,
// and at least once in every interval. It returns the error of each, or why ctx or the session has ended.
func (r *Follower) Follow(
	ctx context.Context, path string, interval time.Duration, each func(*resource.Observed) error,
) error {
	if err := r.session.Sync(ctx, path); err != nil { // a new session may see less than the one before
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	mirror := NewMirror(r.session)
	for {
		look := mirror.Look()
		o, err := NewReader(look, r.home, r.kinds...).Look(ctx, path)
		if err == nil {
			err = each(o)
		}
		if err != nil {
			return err
		}
		select {
		case <-look.Changed():
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		look.Close()
	}
}

// WaitUnlocked waits until nobody holds or waits for the apply lock of a stack. It calls waiting with each holder. If
// the deadline of ctx passes, the error is ErrLocked.
//
// It returns a number that changes whenever an apply takes the lock. If two calls return the same number, no apply of
// the stack wrote anything between them.
func (r *Follower) WaitUnlocked(ctx context.Context, stack string, waiting func(holder string)) (int64, error) {
	queue := r.lockQueue(stack)
	var holder znode.Mark
	for {
		names, stat, event, err := r.session.ChildrenW(ctx, queue.Dir)
		late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		switch {
		case errors.Is(err, zkconn.ErrNoNode): // no apply yet
			return 0, nil
		case err != nil && holder.Who != "" && late && !errors.Is(err, zkconn.ErrUnreachable):
			return 0, lockedBy(holder)
		case err != nil:
			return 0, err
		}
		places := queue.InOrder(names)
		if len(places) == 0 {
			return stat.Pzxid, nil
		}
		if now, ok := r.holder(ctx, queue.Dir+"/"+places[0]); ok && now != holder {
			holder = now
			if waiting != nil {
				waiting(holder.String())
			}
		}
		select {
		case <-event:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return 0, lockedBy(holder)
			}
			return 0, context.Cause(ctx)
		case <-r.session.Context().Done():
			return 0, context.Cause(r.session.Context())
		}
	}
}
