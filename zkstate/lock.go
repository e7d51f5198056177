package zkstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/plan"
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

// Holder says who holds the apply lock of a stack; ok is false when nobody does.
func (r *Reader) Holder(ctx context.Context, stack string) (h znode.Mark, ok bool, err error) {
	return r.first(ctx, r.lockQueue(stack))
}

// first is the mark of the first place of a queue.
func (r *Reader) first(ctx context.Context, queue election.Queue) (h znode.Mark, ok bool, err error) {
	names, err := r.children(ctx, queue.Dir)
	places := queue.InOrder(names)
	if err != nil || len(places) == 0 {
		return znode.Mark{}, false, err
	}
	h, ok = r.holder(ctx, queue.Dir+"/"+places[0])
	return h, ok, nil
}

// Ensemble is the random id of the ensemble; empty before its first apply.
func (r *Reader) Ensemble(ctx context.Context) (string, error) {
	body, _, there, err := zkconn.IfThere(r.source.Get(ctx, znode.Ensemble(r.home)))
	if err != nil || !there {
		return "", err
	}
	if znode.CheckToken(string(body)) != nil {
		return "", fmt.Errorf("%s does not hold the id of an ensemble: delete it, and the next apply makes one",
			znode.Ensemble(r.home))
	}
	return string(body), nil
}

// CreateEnsembleID returns the id of the ensemble, and creates it first if there is none.
func (s *Store) CreateEnsembleID(ctx context.Context) (string, error) {
	if err := s.makeFolder(ctx, s.home); err != nil {
		return "", err
	}
	for {
		id, err := s.Ensemble(ctx)
		if id != "" || err != nil {
			return id, err
		}
		err = s.createOnce(ctx, znode.Ensemble(s.home), []byte(NewID()))
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return "", err
		}
	}
}

// MarkApplied marks the saved plan with this id as applied. Only one caller gets nil for an id; all others get
// plan.ErrApplied.
func (s *Store) MarkApplied(ctx context.Context, planID string) error {
	path := znode.Applied(s.home, planID)
	if err := s.makeFolder(ctx, znode.AppliedDir(s.home)); err != nil {
		return err
	}
	body, err := znode.Encode(s.mark(znode.Mark{Since: s.cfg.At, Plan: planID, Op: NewID()}))
	if err != nil {
		return err
	}
	err = s.createOnce(ctx, path, body)
	if !errors.Is(err, zkconn.ErrNodeExists) {
		return err
	}
	return s.Applied(ctx, planID)
}

// Applied returns plan.ErrApplied, and by whom, if an apply of the saved plan with this id has begun.
func (r *Reader) Applied(ctx context.Context, planID string) error {
	h, ok := r.holder(ctx, znode.Applied(r.home, planID))
	if !ok {
		return nil
	}
	return fmt.Errorf("%w by %s", plan.ErrApplied, describe(h, "at"))
}

// createOnce creates a znode with a body that nobody else writes. After a lost reply the body shows whether this call
// created it.
func (s *Store) createOnce(ctx context.Context, path string, body []byte) error {
	return s.session.Once(ctx, func() error {
		_, err := s.session.Create(ctx, path, body, zkconn.Persistent, s.acl)
		return err
	}, s.holds(ctx, path, body))
}

func (s *Store) holds(ctx context.Context, path string, body []byte) func() (bool, error) {
	return func() (bool, error) {
		found, _, there, err := zkconn.IfThere(s.session.Get(ctx, path))
		return there && bytes.Equal(found, body), err
	}
}

// PruneApplied deletes the marks of plans that were applied more than maxAge before now. Such plans are refused because
// of their age.
func (s *Store) PruneApplied(ctx context.Context, maxAge time.Duration, now time.Time) error {
	dir := znode.AppliedDir(s.home)
	names, err := s.children(ctx, dir)
	if err != nil {
		return err
	}
	return s.prune(ctx, dir, names, func(stat zkconn.Stat) bool { return now.Sub(stat.Ctime) >= maxAge })
}

// prune deletes those of the znodes names in dir that are old. What changes meanwhile, the next apply deletes.
func (s *Store) prune(ctx context.Context, dir string, names []string, old func(zkconn.Stat) bool) error {
	_, err := ForEach(ctx, names, func(ctx context.Context, name string) (struct{}, error) {
		path := dir + "/" + name
		stat, ok, err := s.session.Exists(ctx, path)
		if errors.Is(err, zkconn.ErrNoAuth) {
			return struct{}{}, nil // nobody knows how old it is
		}
		if err != nil || !ok || !old(stat) {
			return struct{}{}, err
		}
		err = s.session.Delete(ctx, path, stat.Version)
		if errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrUnknown) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}
