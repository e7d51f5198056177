package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/zkstate/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// ErrLocked means that another apply held the lock of this stack for the caller's timeout, and the error names the
// holder; or that somebody deleted the caller's place in the queue by hand. Try again when the other one has finished;
// its lock ends with its session.
var ErrLocked = errors.New("another apply holds the lock")

// Lock takes the apply lock of the Store's stack for a plan. Callers get it in the order in which they asked. Lock
// waits at most for timeout, and calls waiting with each holder. The returned context ends, with a cause, when the lock
// is lost. The caller calls release when it is done.
func (s *Store) Lock(
	ctx context.Context, planID string, timeout time.Duration, waiting func(holder string),
) (held context.Context, release func() error, err error) {
	body, err := znode.Encode(s.mark(znode.Mark{Since: time.Now(), Plan: planID}))
	if err != nil {
		return nil, nil, err
	}
	queue := s.lockQueue(s.cfg.Stack)
	if err := s.makeFolder(ctx, queue.Dir); err != nil {
		return nil, nil, err
	}
	place, err := queue.Join(ctx, s.session, body, s.acl)
	if err != nil {
		return nil, nil, err
	}
	var holder znode.Mark
	held, err = place.Await(ctx, timeout, func(leader string) {
		if m, ok := s.holder(ctx, leader); ok {
			holder = m
			if waiting != nil {
				waiting(m.String())
			}
		}
	})
	switch {
	case errors.Is(err, election.ErrNotLeading):
		err = lockedBy(holder)
	case errors.Is(err, election.ErrRemoved):
		err = fmt.Errorf("%w: this one waited for it, and somebody removed it from the queue: %w", ErrLocked, err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, place.Leave())
	}
	return held, place.Leave, nil
}

// mark completes a mark of this apply.
func (s *Store) mark(m znode.Mark) znode.Mark {
	who := s.cfg.Who.Clean()
	m.Who, m.What, m.Actor, m.URL = s.cfg.By, "apply", who.Actor, who.URL
	return m
}

// lockQueue is the queue for a stack's apply lock. Its leader holds the lock.
func (r *Reader) lockQueue(stack string) election.Queue {
	return election.Queue{Dir: znode.Lock(r.home, stack), Prefix: znode.LockPrefix}
}

func lockedBy(holder znode.Mark) error {
	return fmt.Errorf("%w: %s", ErrLocked, describe(holder, "since"))
}

// describe says who made a mark and when. word comes before the time.
func describe(m znode.Mark, word string) string {
	if m.Since.IsZero() {
		return m.Name()
	}
	return fmt.Sprintf("%s %s %s%s", m.Name(), word, m.Since.Format(time.RFC3339), m.Link())
}

// holder reads a mark. ok is false if it is gone. For a mark that cannot be read it returns one that says so.
func (r *Reader) holder(ctx context.Context, path string) (h znode.Mark, ok bool) {
	body, _, err := r.source.Get(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.Mark{}, false
	}
	if err == nil {
		h, err = znode.Decode[znode.Mark](body)
	}
	if err != nil {
		h = znode.Mark{Who: "somebody whose mark cannot be read: " + path, What: "apply"}
	}
	return h, true
}
