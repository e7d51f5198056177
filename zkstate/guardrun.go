package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// guardRun returns operations with which a delete or a replace of a job is refused, also if nobody is live any more, if
// what was read of its run has changed since.
//
// Nobody has joined: then nobody must have, so there must be no ids. All have joined, and some have not completed: then
// the run must not have completed. If only some have joined, it cannot complete unnoticed: its last worker writes the
// roll into the znode, or into the Record that there is none, and both have their versions in the transaction.
func (s *Store) guardRun(ctx context.Context, row plan.Row, now *resource.Observed) ([]zkconn.Op, error) {
	act := row.Action()
	if act != plan.Delete && act != plan.Replace || now == nil || now.Record == nil || len(now.Lost) > 0 {
		return nil, nil
	}
	j, ok := now.Record.Declaration.(job.Job)
	switch joined := job.Joined(now); {
	case !ok:
		return nil, nil
	case joined == 0:
		return guardAbsent(now, znode.IDs(j.Root, now.Record.Generation))
	case joined == j.Workers && job.Done(now) < j.Workers:
		return s.guardUnfinished(ctx, znode.By(j.Root, now.Record.Generation), j.Workers)
	}
	return nil, nil
}

// guardUnfinished returns operations which check that one of n workers that have joined has not completed: its claim is
// unchanged. There may be more claims than workers: of processes that found the job full, and died. Nobody can tell
// whose they are, so as many more are checked. None of these says done.
func (s *Store) guardUnfinished(ctx context.Context, claims string, n int) ([]zkconn.Op, error) {
	names, err := s.children(ctx, claims)
	if err != nil {
		return nil, err
	}
	var guards []zkconn.Op
	need := len(names) - n + 1
	for at, size := 0, need; at < len(names); at, size = at+size, min(2*size, reads) { // mostly the first will do
		unfinished, err := s.unfinished(ctx, claims, names[at:min(at+size, len(names))])
		if err != nil {
			return nil, err
		}
		if guards = append(guards, unfinished...); len(guards) >= need {
			return guards[:need], nil
		}
	}
	return nil, fmt.Errorf("%w: its workers have completed", plan.ErrMoved)
}

// unfinished returns the checks of those claims of these names that do not say done.
func (s *Store) unfinished(ctx context.Context, claims string, names []string) ([]zkconn.Op, error) {
	all, err := ForEach(ctx, names, func(ctx context.Context, name string) ([]zkconn.Op, error) {
		at := resource.Join(claims, name)
		body, stat, err := s.session.Get(ctx, at)
		if errors.Is(err, zkconn.ErrNoNode) {
			return nil, nil
		}
		if c, bad := znode.Decode[znode.Claim](body); err != nil || bad == nil && c.State == znode.Done {
			return nil, err
		}
		return []zkconn.Op{zkconn.CheckOp(at, stat.Version)}, nil
	})
	return slices.Concat(all...), err
}
