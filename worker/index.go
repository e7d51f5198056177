package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A job may take ids from its workers: each brings its index.

// indexes are the variables in which schedulers tell a process its index.
var indexes = []string{"JOB_COMPLETION_INDEX", "SLURM_PROCID"}

// ParseIndex reads an index. It refuses one that is not a number in its shortest form: 1 and 01 would be two workers.
func ParseIndex(s string) (int, error) {
	if !regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`).MatchString(s) {
		return 0, fmt.Errorf("%q is not an index such as 0 or 12", s)
	}
	return strconv.Atoi(s)
}

// FindIndex finds the index of a worker. It is the first of these: that of an indexed container job, of a task of
// Slurm, and the number at the end of the identity after its last dash, as in worker-3.
func FindIndex(getenv func(string) string, identity string) (int, error) {
	for _, source := range indexes {
		if index := getenv(source); index != "" {
			k, err := ParseIndex(index)
			if err != nil {
				err = fmt.Errorf("%w: %s: %w", ErrIndex, source, err)
			}
			return k, err
		}
	}
	if dash := strings.LastIndexByte(identity, '-'); dash >= 0 {
		if k, err := ParseIndex(identity[dash+1:]); err == nil {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%w: neither JOB_COMPLETION_INDEX nor SLURM_PROCID is set, and %s does not end in a dash and a "+
		"number such as 0 or 12", ErrIndex, identity)
}

func (j *join) byIndex() bool { return j.job.IDs == job.ByIndex }

// findIndex finds the id that this worker brings, if the job takes ids from its workers.
func (j *join) findIndex() (err error) {
	switch {
	case !j.byIndex() && j.c.Index != nil:
		return fmt.Errorf("%w: it is %d, and the job gives ids by the order of joining", ErrIndex, *j.c.Index)
	case !j.byIndex():
		return nil
	case j.c.Index != nil:
		j.index = *j.c.Index
	case j.c.FindIndex == nil:
		return fmt.Errorf("%w: the job takes ids from its workers, and this one has none", ErrIndex)
	default:
		if j.index, err = j.c.FindIndex(j.c.Identity); err != nil {
			return err
		}
	}
	if j.index < 0 || j.index >= j.job.Workers && !j.job.Gang.HasSpares() {
		return fmt.Errorf("%w: it is %d, and the job has 0 to %d", ErrNoIndex, j.index, j.job.Workers-1)
	}
	return nil
}

// errNoID means that somebody else than muster wrote the claim of a worker that brought its id.
var errNoID = errors.New("the claim is damaged")

// idOf is the id of an identity with this claim, which the transaction with this czxid created.
func (j *join) idOf(ctx context.Context, claim znode.Claim, czxid int64) (int, error) {
	switch {
	case !j.byIndex() && claim.ID == nil:
		return j.find(ctx, czxid)
	case claim.ID == nil || *claim.ID >= j.job.Workers:
		by := znode.ByIdentity(j.job.Root, j.rec.Generation, j.c.Identity)
		return 0, fmt.Errorf("%w: %s has no id from 0 to %d; muster terminate %s, then muster apply", errNoID, by,
			j.job.Workers-1, j.job.Path())
	}
	return *claim.ID, nil
}

// taken is ErrNoPlace with the worker that has this index.
func (j *join) taken(ctx context.Context) error {
	root, g := j.job.Root, j.rec.Generation
	body, _, err := j.s.Get(ctx, znode.ID(root, g, j.index))
	if err != nil {
		return err
	}
	info, bad := znode.DecodeWorker(body)
	if bad != nil || znode.CheckIdentity(info.Identity) != nil {
		return fmt.Errorf("%w: %d is taken", ErrNoPlace, j.index)
	}
	_, live, err := j.s.Exists(ctx, znode.Live(root, j.job.Name, info.Identity))
	if err != nil {
		return err
	}
	claim, _, claimed, err := zkconn.IfThere(readClaim(ctx, j.s, znode.ByIdentity(root, g, info.Identity)))
	if err == nil && !claimed {
		if open, err := isOpen(ctx, j.s, j.job, g); err != nil || !open {
			return cmp.Or(err, errAgain)
		}
	}
	state := "is not live; free for a process that joins under the same identity"
	switch {
	case err != nil:
		return err
	case !claimed:
		state = "cannot come back: somebody deleted its claim"
	case claim.State == znode.Done:
		state = "has completed"
	case live:
		state = "is live"
	}
	return fmt.Errorf("%w: %d is that of %s, which %s", ErrNoPlace, j.index, info.Identity, state)
}
