package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/job"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Job is how jobs are kept in ZooKeeper.
func Job() Kind {
	return Kind{Kind: job.Kind(), Folders: []string{"id", "by", "end", "barrier"}, Count: countJob}
}

// countJob reads how many workers have joined, and how many have completed. Two who join at once where one place is left
// make an id too many for a moment.
func countJob(ctx context.Context, r *Reader, o *resource.Observed) error {
	j, g := job.Of(o.Record), o.Record.Generation
	ids, _, err := r.session.Exists(ctx, znode.IDs(j.Root, g))
	if err != nil {
		return err
	}
	end, _, err := r.session.Exists(ctx, znode.End(j.Root, g))
	if err != nil {
		return err
	}
	o.Counts = job.Counts(min(j.Workers, int(ids.NumChildren)), min(j.Workers, int(end.NumChildren)))
	return nil
}

// Finish does what the Record says about the end of a run, once all workers of generation g have completed: it puts the job
// back to ready in a new generation, deletes it, or leaves it. That is one transaction, so that of several who try one does
// it. Before all have completed, and for a job that is being terminated, it does nothing. A job of which a part was
// deleted by hand it leaves alone, with an error.
func (s *Store) Finish(ctx context.Context, path, g string) error {
	err := s.change(ctx, path, func(o *resource.Observed) (*transaction, error) {
		switch {
		case o.Class() == resource.Damaged && (o.Record == nil || o.Record.Generation == g):
			return nil, errors.New("a part of it was deleted by hand")
		case o.Class() != resource.Done || o.Record.Generation != g:
			return nil, nil
		}
		switch job.Of(o.Record).Lifecycle.OnComplete {
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
func (s *Store) reset(ctx context.Context, o *resource.Observed) (*transaction, error) {
	rec := *o.Record
	if err := s.noteRun(ctx, o, &rec, s.cfg.At.UTC().Format(time.RFC3339)); err != nil {
		return nil, err
	}
	rec.Generation, rec.Op = NewID(), NewID()
	acl, err := ParseACL(rec.ACL)
	if err != nil {
		return nil, err
	}
	t, err := s.anew(rec, o, acl)
	return &t, err
}

// noteRun writes into rec that the run of old, if old is a completed job, has ended.
func (s *Store) noteRun(ctx context.Context, old *resource.Observed, rec *resource.Record, completed string) error {
	if _, ok := old.Record.Declaration.(job.Job); !ok || old.Class() != resource.Done {
		return nil
	}
	run, err := s.runName(ctx, old.Record)
	if err != nil {
		return err
	}
	return job.SetLastRun(rec, job.Run{ID: run, Generation: old.Record.Generation, Completed: completed})
}

// runName is the name that the first worker of a generation gave to its run; empty if it gave none.
func (s *Store) runName(ctx context.Context, rec *resource.Record) (string, error) {
	at := znode.IDs(rec.Declaration.ID().Root, rec.Generation)
	name, _, err := s.session.Get(ctx, at)
	switch {
	case errors.Is(err, zkconn.ErrNoNode): // swept with its generation: the transaction will tell
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the name of the run: %w", err)
	}
	return string(name), nil
}
