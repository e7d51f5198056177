package worker

import (
	"context"
	"errors"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// With Retry an abort ends an attempt at a round, and not the round. The first attempt is in the round's own folder,
// the later ones are beside it:
//
//	barrier/<name>/7     the round; the first attempt
//	barrier/<name>/7.2   the second attempt, and so on: st, a and c as in a round
//
// An attempt is made by who has read that the one before it was aborted, which is final: so at most one attempt at a
// round is released, and none follows it. Below the floor no attempt is made. The maker then deletes the arrivals of
// the attempt before; each st stays, so that everybody learns of the abort, until the round is cleared. A process that
// dies in between leaves arrivals that no one counts.
//
// A call that finds the round aborted goes to the latest attempt, or makes one after that if it was aborted too. Once a
// call has found an attempt open it stays there, also in another session: its outcome is that of the call.

// at makes r a call at this attempt.
func (r *round) at(attempt int) { r.attempt, r.dir = attempt, r.folder(attempt) }

// folder is the folder of an attempt at this round.
func (r *round) folder(attempt int) string {
	return znode.Attempt(r.m.Job.Root, r.m.Generation, r.name, r.number, attempt)
}

// moveOn goes from an aborted attempt to the latest, or to the one after it if this is the latest.
func (r *round) moveOn(ctx context.Context) error {
	kept, err := r.m.keptRounds(ctx, r.name)
	if err != nil {
		return err
	}
	next := r.attempt + 1
	for _, k := range kept {
		if k.number == r.number {
			next = max(next, k.attempts)
		}
	}
	r.at(next)
	return nil
}

// belowFloor reports whether a round below the floor, of which this attempt does not exist, was released. It was not if
// its own st is there: all have skipped it after an abort, for good.
func (r *round) belowFloor(ctx context.Context) (released bool, err error) {
	body, _, err := r.m.session.Get(ctx, znode.RoundState(r.folder(1)))
	if errors.Is(err, zkconn.ErrNoNode) {
		return true, nil
	}
	if err != nil || r.attempt == 1 {
		return false, err
	}
	st, err := znode.Decode[znode.Round](body)
	if err != nil {
		return false, err
	}
	return false, &AbortedError{Name: r.name, Round: r.number, Attempt: 1, Why: st.Aborted, Missing: st.Missing}
}

// clearBefore deletes the arrivals of the aborted attempt before this one. What is left, if it fails, is deleted with
// the round.
func (r *round) clearBefore(ctx context.Context) {
	if r.attempt == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	_ = r.m.clearAttempt(ctx, r.folder(r.attempt-1), false)
}
