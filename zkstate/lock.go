package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ErrLocked means that another apply held the lock of this stack until the caller's patience ended. Try again when
// the holder, whom the error names, has finished; its lock dies with its session.
var ErrLocked = errors.New("another apply holds the lock")

// Lock takes the apply lock of the Store's stack for a plan: first come, first served. It waits for others as long as
// patience, and tells waiting who holds the lock, again whenever that changes. The returned context ends, with a cause,
// when the lock is lost; the caller calls release when it is done.
func (s *Store) Lock(
	ctx context.Context, planID string, patience time.Duration, waiting func(holder string),
) (held context.Context, release func() error, err error) {
	body, err := znode.EncodeMark(znode.Mark{Who: s.cfg.By, What: "apply", Since: time.Now(), Plan: planID})
	if err != nil {
		return nil, nil, err
	}
	queue := s.applies(s.cfg.Stack)
	if err := s.makeFolder(ctx, queue.Dir); err != nil {
		return nil, nil, err
	}
	place, err := queue.Join(ctx, s.session, body, s.acl)
	if err != nil {
		return nil, nil, err
	}
	var holder znode.Mark
	held, err = place.Await(ctx, patience, func(leader string) {
		if m, ok := s.holder(ctx, leader); ok {
			holder = m
			if waiting != nil {
				waiting(m.String())
			}
		}
	})
	if errors.Is(err, election.ErrNotLeading) {
		err = lockedBy(holder)
	}
	if err != nil {
		return nil, nil, errors.Join(err, place.Leave())
	}
	return held, place.Leave, nil
}

// applies is the queue of those who apply a stack: the leader holds its lock.
func (r *Reader) applies(stack string) election.Queue {
	return election.Queue{Dir: znode.Lock(r.home, stack), Prefix: znode.LockPrefix}
}

func lockedBy(holder znode.Mark) error {
	return fmt.Errorf("%w: %s", ErrLocked, signed(holder, "since"))
}

// signed says whose mark it is, and from when; word comes before the time.
func signed(m znode.Mark, word string) string {
	if m.Since.IsZero() {
		return m.Who
	}
	return fmt.Sprintf("%s %s %s", m.Who, word, m.Since.Format(time.RFC3339))
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
