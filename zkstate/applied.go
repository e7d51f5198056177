package zkstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/plan"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Ensemble is the random id of the ensemble; empty before its first apply.
func (r *Reader) Ensemble(ctx context.Context) (string, error) {
	body, _, err := r.source.Get(ctx, znode.Ensemble(r.home))
	if errors.Is(err, zkconn.ErrNoNode) {
		return "", nil
	}
	if err != nil {
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
	}, func() (bool, error) {
		found, _, err := s.session.Get(ctx, path)
		if errors.Is(err, zkconn.ErrNoNode) {
			return false, nil
		}
		return bytes.Equal(found, body), err
	})
}

// PruneApplied deletes the marks of plans that were applied more than maxAge before now. Such plans are refused because
// of their age.
func (s *Store) PruneApplied(ctx context.Context, maxAge time.Duration, now time.Time) error {
	dir := znode.AppliedDir(s.home)
	names, _, err := s.session.Children(ctx, dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = ForEach(ctx, names, func(ctx context.Context, name string) (struct{}, error) {
		path := dir + "/" + name
		stat, ok, err := s.session.Exists(ctx, path)
		if err != nil || !ok || now.Sub(stat.Ctime) < maxAge {
			return struct{}{}, err
		}
		err = s.session.Delete(ctx, path, stat.Version)
		if errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrUnknown) {
			err = nil // it is gone, or the next apply deletes it
		}
		return struct{}{}, err
	})
	return err
}
