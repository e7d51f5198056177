package worker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Somebody may delete a part of a job by hand: its znode, its gate, its Record, or a folder of its generation. The
// generation goes on: muster ends one only together with its Record. So a member whose gate, claim or job znode is gone
// reads the Record. While the Record still names the generation, or is itself the only part that is gone, the member
// writes nothing, lets its command go on, and waits. Apply puts the part back, if it can, and the member goes on.

// ErrDamaged means that somebody deleted a part of the job by hand, so that nothing can be written now. The command may
// go on. Wait, or try again when apply has put the part back.
var ErrDamaged = errors.New("a part of the job was deleted by hand")

// damagedError is ErrDamaged, and names the znode that is gone.
type damagedError struct{ missing string }

func (e *damagedError) Error() string {
	return fmt.Sprintf("%v: %s is gone; muster apply puts it back, or says why it cannot", ErrDamaged, e.missing)
}

func (e *damagedError) Unwrap() error { return ErrDamaged }

// damageCheck is how often a waiting member looks whether the generation has been ended meanwhile.
const damageCheck = 5 * time.Second

// isOpen reports whether generation g of the job has not ended, whatever is missing of it.
func isOpen(ctx context.Context, s *zkconn.Session, j job.Job, g string) (bool, error) {
	at := znode.Record(job.KindName, j.Root, j.Name)
	if err := s.Sync(ctx, at); err != nil {
		return false, err
	}
	body, _, err := s.Get(ctx, at)
	switch {
	case err == nil:
		rec, err := znode.DecodeRecordAt(job.Kind(), j.Path(), body)
		return err != nil || rec.Generation == g, nil // one that cannot be understood has not been replaced by muster
	case !errors.Is(err, zkconn.ErrNoNode):
		return false, err
	}
	for _, rest := range []string{znode.Gate(j.Root, g), j.Path()} { // which go with the Record
		if _, there, err := s.Exists(ctx, rest); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

// gone is what it means for this member that a znode is missing: ErrDamaged, or ErrFenced if its generation has ended.
func (m *Member) gone(ctx context.Context, s *zkconn.Session, missing string) error {
	open, err := isOpen(ctx, s, m.Job, m.Generation)
	switch {
	case err != nil:
		return err
	case open:
		return &damagedError{missing}
	}
	return m.generationEnded()
}

// awaitPart waits, if err is ErrDamaged, until the part is there again, or for damageCheck. Any other error it returns.
func awaitPart(ctx context.Context, s *zkconn.Session, err error) error {
	var damaged *damagedError
	if !errors.As(err, &damaged) {
		return err
	}
	_, there, event, watchErr := s.ExistsW(ctx, damaged.missing)
	if watchErr != nil {
		return watchErr
	}
	if there {
		return nil
	}
	timer := time.NewTimer(damageCheck)
	defer timer.Stop()
	select {
	case <-event:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return err
	case <-s.Context().Done():
		return context.Cause(s.Context())
	}
}

// awaitRepair waits, while a part of the job is missing, for that part or for another Record.
func (j *join) awaitRepair(ctx context.Context, missing string) error {
	open, err := isOpen(ctx, j.s, j.job, j.rec.Generation)
	if err != nil {
		return err
	}
	if !open {
		return errAgain
	}
	_, there, event, err := j.s.ExistsW(ctx, missing)
	if err != nil {
		return err
	}
	if there {
		return errAgain
	}
	what := fmt.Sprintf("%s, which somebody deleted by hand: muster apply puts it back, or says why it cannot", missing)
	return j.awaitRecord(ctx, ErrNotOpen, what, event)
}

// missingPart is the znode that was not there when ZooKeeper refused a transaction.
func missingPart(refused *zkconn.Error) string {
	if refused.Op == "create" {
		return path.Dir(refused.Path)
	}
	return refused.Path
}
