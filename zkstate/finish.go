package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/job"
	"muster/plan"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Finish does what the Record says about the end of a run, once all workers of generation g have completed: it puts the job
// back to ready in a new generation, deletes it, or leaves it. That is one transaction, so that of several who try one does
// it. Before all have completed, and for a job that is being terminated, it does nothing.
func (s *Store) Finish(ctx context.Context, path, g string) error {
	err := s.change(ctx, path, func(o *plan.Observed) (*transaction, error) {
		if o.Status() != plan.Completed || o.Record.Generation != g {
			return nil, nil
		}
		switch o.Record.Job.Lifecycle.OnComplete {
		case job.Reset:
			return s.reset(ctx, o)
		case job.Remove:
			t := s.delete(o)
			return &t, nil
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	s.sweep(ctx, path, g)
	return nil
}

// reset makes a completed job ready again, as it is recorded.
func (s *Store) reset(ctx context.Context, o *plan.Observed) (*transaction, error) {
	run, err := s.runName(ctx, o.Record)
	if err != nil {
		return nil, err
	}
	rec := *o.Record
	rec.Generation, rec.Op = NewID(), NewID()
	rec.Last = &job.Run{ID: run, Generation: o.Record.Generation, Completed: s.cfg.At.UTC().Format(time.RFC3339)}
	acl, err := ParseACL(rec.ACL)
	if err != nil {
		return nil, err
	}
	t, err := s.anew(rec, o, acl)
	return &t, err
}

// change looks at a job and sends the transaction that decide makes of it, if any; again if somebody else was faster.
func (s *Store) change(ctx context.Context, path string, decide func(*plan.Observed) (*transaction, error)) error {
	var err error
	for range attempts {
		o, lookErr := s.Look(ctx, path)
		if lookErr != nil {
			return lookErr
		}
		t, decideErr := decide(o)
		if t == nil || decideErr != nil {
			return decideErr
		}
		again := true
		_, err = s.session.Multi(ctx, t.ops...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zkconn.ErrUnknown):
			again, err = s.resolve(ctx, *t, err)
		case errors.Is(err, zkconn.ErrNodeExists), errors.Is(err, zkconn.ErrNoNode),
			errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNotEmpty):
			err = fmt.Errorf("%w: %w", plan.ErrMoved, err)
		default:
			return s.translate(ctx, err)
		}
		if !again {
			return err
		}
	}
	return err
}

// sweep removes what is left of generation g of the job at path, if its gate is gone. What it cannot remove, the next apply
// collects.
func (s *Store) sweep(ctx context.Context, path, g string) {
	root, _ := split(path)
	if open, err := s.exists(znode.Gate(root, g))(ctx); err == nil && !open {
		_ = s.removeTree(ctx, znode.Run(root, g))
	}
}
