package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ErrLocked means that another apply held the lock of this stack until the caller's patience ended. Try again when
// the holder, whom the error names, has finished; its lock dies with its session.
var ErrLocked = errors.New("another apply holds the lock")

// Lock takes the apply lock of the Store's stack: an ephemeral sequential znode, first come first served. It waits for others
// as long as patience, and tells waiting who holds the lock, again whenever that changes. The returned context ends, with a
// cause, when the lock is lost; the caller calls release when it is done.
func (s *Store) Lock(ctx context.Context, self znode.Mark, patience time.Duration, waiting func(znode.Mark)) (held context.Context, release func() error, err error) {
	dir := znode.Lock(s.home, s.cfg.Stack)
	if err := s.makeFolder(ctx, dir); err != nil {
		return nil, nil, err
	}
	mine, err := s.queue(ctx, dir, self)
	if err != nil {
		return nil, nil, err
	}
	if err := s.await(ctx, dir, mine, patience, waiting); err != nil {
		return nil, nil, errors.Join(err, s.leave(mine))
	}
	held, stop := context.WithCancelCause(s.session.Context())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		s.watchLock(held, mine, stop)
	}()
	return held, func() error {
		stop(context.Canceled)
		<-watching
		return s.leave(mine)
	}, nil
}

// queue creates our place in the queue and returns its path. A place is known by the session that owns it, so that a create
// whose reply was lost is found again instead of made twice.
func (s *Store) queue(ctx context.Context, dir string, self znode.Mark) (string, error) {
	body, err := znode.EncodeMark(self)
	if err != nil {
		return "", err
	}
	for {
		path, err := s.session.Create(ctx, znode.NewLock(s.home, s.cfg.Stack), body, zkconn.EphemeralSequential, s.acl)
		if !errors.Is(err, zkconn.ErrUnknown) {
			return path, err
		}
		if err := s.session.Settled(ctx); err != nil {
			return "", err
		}
		places, err := s.infos(ctx, dir)
		if err != nil {
			return "", err
		}
		for _, p := range places {
			if p.stat.EphemeralOwner == s.session.ID() {
				return dir + "/" + p.name, nil
			}
		}
	}
}

// await returns when nobody is before us. Each waiter watches only its predecessor.
func (s *Store) await(ctx context.Context, dir, mine string, patience time.Duration, waiting func(znode.Mark)) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var holder znode.Mark
	for {
		names, _, err := s.session.Children(ctx, dir)
		if err != nil {
			return err
		}
		queue := inOrder(names)
		at := slices.Index(queue, mine[len(dir)+1:])
		switch {
		case at < 0:
			return fmt.Errorf("%s: our place in the queue was removed: %w", mine, zkconn.ErrNoNode)
		case at == 0:
			return nil
		}
		if now, ok := s.holder(ctx, dir+"/"+queue[0]); ok && now != holder {
			holder = now
			if waiting != nil {
				waiting(holder)
			}
		}
		_, exists, event, err := s.session.ExistsW(ctx, dir+"/"+queue[at-1])
		if err != nil {
			return err
		}
		if !exists {
			continue
		}
		select {
		case <-event:
		case <-timer.C:
			return fmt.Errorf("%w: %s", ErrLocked, signed(holder, "since"))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.session.Context().Done():
			return context.Cause(s.session.Context())
		}
	}
}

// signed says whose mark it is, and from when; word comes before the time.
func signed(m znode.Mark, word string) string {
	if m.Since.IsZero() {
		return m.Who
	}
	return fmt.Sprintf("%s %s %s", m.Who, word, m.Since.Format(time.RFC3339))
}

// watchLock ends the lock when our znode is gone while the session lives: somebody deleted it by hand.
func (s *Store) watchLock(held context.Context, mine string, stop context.CancelCauseFunc) {
	for {
		_, exists, event, err := s.session.ExistsW(held, mine)
		switch {
		case err != nil:
			return // the session's end, or ours
		case !exists:
			stop(fmt.Errorf("the apply lock %s was removed", mine))
			return
		}
		select {
		case <-event:
		case <-held.Done():
			return
		}
	}
}

// leave gives the lock, or our place in the queue, back. It must happen although the caller's context may be over; the
// session's end does it too.
func (s *Store) leave(mine string) error {
	ctx := s.session.Context()
	for ctx.Err() == nil {
		err := s.session.Delete(ctx, mine, 0)
		switch {
		case err == nil, errors.Is(err, zkconn.ErrNoNode), ctx.Err() != nil:
			return nil
		case !errors.Is(err, zkconn.ErrUnknown):
			return err
		}
		if err := s.session.Settled(ctx); err != nil {
			return nil
		}
	}
	return nil
}

// holder reads who made a mark; ok is false when it is gone. A mark that cannot be read is somebody's all the same.
func (r *Reader) holder(ctx context.Context, path string) (h znode.Mark, ok bool) {
	body, _, err := r.session.Get(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.Mark{}, false
	}
	if err == nil {
		h, err = znode.DecodeMark(body)
	}
	if err != nil {
		h = znode.Mark{Who: "somebody whose mark cannot be read: " + path, What: "apply"}
	}
	return h, true
}

// inOrder sorts names by their sequence number; a name without one is not in the queue.
func inOrder(names []string) []string {
	queue := slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, err := znode.LockNumber(n); return err != nil })
	slices.SortFunc(queue, func(a, b string) int {
		x, _ := znode.LockNumber(a)
		y, _ := znode.LockNumber(b)
		return int(x - y) // wraps as the numbers do
	})
	return queue
}
