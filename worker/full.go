package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The error of a full job names at most maxVacancies identities, and at most maxVacancyReads claims are read for it.
const maxVacancies, maxVacancyReads = 5, 100

// full is ErrFull with the ids whose workers are not live, and the identities that may join as them again. If all have
// completed it waits for the next generation.
func (j *join) full(ctx context.Context) error {
	all, _, err := j.allCompleted(ctx)
	if err != nil {
		return err
	}
	if all {
		return j.awaitNext(ctx, ErrFull, "a new generation: all workers of this one have completed")
	}
	root, g, n := j.job.Root, j.rec.Generation, j.job.Workers
	claimed, _, err := j.s.Children(ctx, znode.By(root, g))
	if err != nil {
		return err
	}
	live, _, err := j.s.Children(ctx, j.job.Path())
	if err != nil {
		return err
	}
	absent := slices.DeleteFunc(claimed, func(identity string) bool {
		_, is := slices.BinarySearch(live, identity)
		return is
	})
	var vacant []string
	for i, identity := range absent {
		if len(vacant) == maxVacancies || i == maxVacancyReads {
			vacant = append(vacant, "perhaps others")
			break
		}
		who, err := j.vacancy(ctx, identity)
		if err != nil {
			return err
		}
		if who != "" {
			vacant = append(vacant, who)
		}
	}
	if len(vacant) == 0 {
		return fmt.Errorf("%w: %d of %d workers have joined, and each is live or has completed", ErrFull, n, n)
	}
	return fmt.Errorf("%w: %d of %d workers have joined; "+
		"not live, and free for a process that joins under the same identity: %s",
		ErrFull, n, n, strings.Join(vacant, ", "))
}

// vacancy describes a worker that is not live and may come back. It is empty for one that has completed.
func (j *join) vacancy(ctx context.Context, identity string) (string, error) {
	body, stat, err := j.s.Get(ctx, znode.ByIdentity(j.job.Root, j.rec.Generation, identity))
	if errors.Is(err, zkconn.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	claim, err := znode.Decode[znode.Claim](body)
	if err != nil || claim.State == znode.Done {
		return "", nil
	}
	id, err := j.find(ctx, stat.Czxid)
	if errors.Is(err, errAgain) || err == nil && id >= j.job.Workers {
		return "", nil
	}
	return fmt.Sprintf("id %d (%s)", id, identity), err
}

// withdraw undoes, in one transaction, a join that came too late: two joined at once, and one place was left. Only
// the first of several processes that try finds the id.
func (j *join) withdraw(ctx context.Context, id int) error {
	root, g := j.job.Root, j.rec.Generation
	ops := []zkconn.Op{
		zkconn.CheckOp(znode.Gate(root, g), -1),
		zkconn.DeleteOp(znode.ID(root, g, id), anyVersion),
		zkconn.DeleteOp(znode.ByIdentity(root, g, j.c.Identity), anyVersion),
	}
	live, exists, err := j.s.Exists(ctx, j.live())
	switch {
	case err != nil:
		return err
	case exists && live.EphemeralOwner != j.s.ID():
		return j.awaitHolder(ctx)
	case exists:
		ops = append(ops, zkconn.DeleteOp(j.live(), anyVersion))
	}
	if _, err := j.s.Multi(ctx, ops...); err != nil {
		return j.refused(ctx, err)
	}
	return j.full(ctx)
}

// findBeyond looks for an id of N or above: its join came too late and has not withdrawn.
func (j *join) findBeyond(ctx context.Context, czxid int64) (int, error) {
	root, g := j.job.Root, j.rec.Generation
	names, _, err := j.s.Children(ctx, znode.IDs(root, g))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		id, err := znode.IDNumber(name)
		if err != nil || id < j.job.Workers {
			continue
		}
		if stat, _, err := j.s.Exists(ctx, znode.ID(root, g, id)); err != nil || stat.Czxid == czxid {
			return id, err
		}
	}
	return 0, fmt.Errorf("%w: no id was created together with the claim of %s", errAgain, j.c.Identity)
}
