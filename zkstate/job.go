package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Job describes how ZooKeeper holds jobs.
func Job() Kind {
	return Kind{Kind: job.Kind(), Folders: []string{"id", "by", "end", "barrier"}, Count: countJob}
}

// countJob reads how many workers have joined, and how many have completed. If two workers join at once and only one id
// is free, there is one id too many for a moment.
func countJob(ctx context.Context, r *Reader, o *resource.Observed) error {
	j, g := job.Of(o.Record), o.Record.Generation
	ids, _, err := r.source.Exists(ctx, znode.IDs(j.Root, g))
	if err != nil {
		return err
	}
	end, _, err := r.source.Exists(ctx, znode.End(j.Root, g))
	if err != nil {
		return err
	}
	o.Counts = job.Counts(min(j.Workers, int(ids.NumChildren)), min(j.Workers, int(end.NumChildren)))
	return nil
}

// Finish does what on_complete says once all workers of generation g have completed: it makes the job ready again in a
// new generation, deletes it, or leaves it. This is one transaction, so only one of several callers does it. Finish
// does nothing before all have completed, or if the workers were asked to stop. A job of which a part was deleted by
// hand is an error.
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
	if err == nil {
		s.removeGeneration(ctx, job.Kind(), path, g)
	}
	return err
}

// reset makes a completed job ready again with the recorded declaration.
func (s *Store) reset(ctx context.Context, o *resource.Observed) (*transaction, error) {
	rec := *o.Record
	if err := s.recordRun(ctx, o, &rec, s.cfg.At.UTC().Format(time.RFC3339)); err != nil {
		return nil, err
	}
	rec.Generation, rec.Op = NewID(), NewID()
	acl, err := ParseACL(rec.ACL)
	if err != nil {
		return nil, err
	}
	t, err := s.newGeneration(rec, o, acl)
	return &t, err
}

// recordRun writes the run of old into rec as the last run, if old is a completed job.
func (s *Store) recordRun(ctx context.Context, old *resource.Observed, rec *resource.Record, completed string) error {
	if _, ok := old.Record.Declaration.(job.Job); !ok || old.Class() != resource.Done {
		return nil
	}
	run, err := s.RunName(ctx, old.Record)
	if err != nil {
		return err
	}
	return job.SetLastRun(rec, job.Run{ID: run, Generation: old.Record.Generation, Completed: completed})
}

// CompletedW watches whether all workers of the run in a job's record complete. The function that it returns reports
// whether they have: true is certain, also when the job is gone afterwards. After a lost connection it may stay false.
func (r *Follower) CompletedW(ctx context.Context, rec *resource.Record) (completed func() bool, err error) {
	j := job.Of(rec)
	last := znode.Completion(j.Root, rec.Generation, j.Workers-1)
	_, exists, changed, created, err := r.session.CreatedW(ctx, last)
	if err != nil {
		return nil, fmt.Errorf("whether the run completes: %w", err)
	}
	return func() bool {
		select {
		case <-changed:
			return exists || created()
		default:
			return exists
		}
	}, nil
}

// RunName is the name of the run in the generation of a job's record, which its first worker wrote; empty if it has
// none or nobody has joined.
func (r *Reader) RunName(ctx context.Context, rec *resource.Record) (string, error) {
	at := znode.IDs(rec.Declaration.ID().Root, rec.Generation)
	name, _, err := r.source.Get(ctx, at)
	switch {
	case errors.Is(err, zkconn.ErrNoNode): // or the generation was removed: a transaction will fail
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the name of the run: %w", err)
	}
	return string(name), nil
}
