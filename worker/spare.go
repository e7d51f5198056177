package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A gang may have spares: processes that wait in a seat until a worker is gone, and take its id.
//
//	run/<g>/spare          persistent   by the first worker; removed with the generation
//	run/<g>/spare/<seat>   ephemeral    from 0: a WorkerInfo that says who waits there
//
// A worker is gone if its claim is there and its live znode is not. While an attempt runs nobody is replaced: the
// others find the loss, and decide. Only if all are gone, so that nobody can, a spare takes an id and decides. Taking
// an id is one transaction that checks the gate:
//
//	run/<g>/by/<old>     deleted, at the version read: refused if its owner has come back since
//	run/<g>/by/<own>     created: it says the id
//	run/<g>/id/n-<id>    set, at the version read: it says whose the id is now
//	<job>/<own>          created, ephemeral: live
//	run/<g>/spare/<seat> deleted
//
// A process that dies before the commit has changed nothing; one that dies after it is a worker that is gone. The spare
// in the first taken seat takes the first id, the one in the second the second, and so on: so they do not compete. The
// owner of before finds that its claim is gone and the id another's (ErrReplaced). It may wait in a seat itself.

// ErrSpare means that another one has the id, or all are taken, and that the job has seats for spares: call Spare.
var ErrSpare = errors.New("no id is left, but seats for spares are")

// ErrReplaced means that a spare has taken the id of this worker. It is ErrFenced. Stop the command; then Join again,
// which is ErrSpare while nobody else is gone.
var ErrReplaced = fmt.Errorf("%w: a spare has taken its id", ErrFenced)

// Spare waits in a seat until the process behind s can take the id of a worker that is gone, for any time unless ctx
// has a deadline. It is for a process that Join has refused with ErrSpare.
//
// It is ErrFull if no seat is free, ErrHeld if another process waits under this identity, ErrDone once all workers have
// completed, ErrGangFailed, ErrStopRequested, and ErrFenced if the generation has ended otherwise.
func Spare(ctx context.Context, s *zkconn.Session, c Config) (*Member, error) {
	w := &waitingSpare{join: newJoin(s, c), since: time.Now(), seat: noSeat, gone: map[string]time.Time{}}
	return w.until(ctx, w.look)
}

// waitingSpare is one call of Spare.
type waitingSpare struct {
	*join
	since time.Time // it waits
	full  bool      // no id is left in the generation that it has read
	seat  int
	gone  map[string]time.Time // since when it has seen that a worker is gone, by identity

	recordChanged, attemptOver, liveChanged, seatsChanged <-chan struct{} // closed at the event
}

const noSeat = -1

// look takes an id if it can now. Else it returns errAgain after something has changed.
func (w *waitingSpare) look(ctx context.Context) (*Member, error) {
	m, err := w.lookOnce(ctx)
	if refused, ok := errors.AsType[*zkconn.Error](err); ok && w.full && w.attempts > 0 &&
		errors.Is(err, zkconn.ErrNoNode) {
		err = w.awaitRepair(ctx, missingPart(refused))
	}
	return m, err
}

func (w *waitingSpare) lookOnce(ctx context.Context) (*Member, error) {
	w.seatsChanged = nil
	if !w.full { // an id may be left by now, as in another generation
		m, err := w.attempt(ctx)
		if !errors.Is(err, ErrSpare) {
			return m, err
		}
		w.full = true
	}
	if err := w.readAgain(ctx); err != nil {
		return nil, err
	}
	// Who comes and goes after this is an event. Who only comes is no more gone than that: replace looks again.
	live, _, changed, err := w.s.ChildrenW(ctx, w.job.Path())
	if err != nil {
		return nil, err
	}
	w.liveChanged = changed
	claimed, _, err := w.s.Children(ctx, znode.By(w.job.Root, w.rec.Generation))
	if err != nil && (w.seat != noSeat || !errors.Is(err, zkconn.ErrNoNode)) { // before the first worker there are none
		return nil, err
	}
	if _, mine := slices.BinarySearch(claimed, w.c.Identity); mine {
		return nil, w.leaveSeat(ctx)
	}
	if w.seat == noSeat {
		if err := w.takeSeat(ctx); err != nil {
			return nil, err
		}
	}
	a, err := w.readOpen(ctx)
	if err != nil {
		return nil, err
	}
	w.noteGone(claimed, live)
	gone, wait := w.overdue()
	if len(gone) > 0 {
		begun, err := w.hasBegun(ctx, a.Number)
		if err != nil {
			return nil, err
		}
		if !begun || len(w.gone) == len(claimed) {
			if m, err := w.replace(ctx, gone); m != nil || err != nil {
				return m, err
			}
		}
	}
	return nil, w.awaitChange(ctx, wait)
}

// readAgain reads the Record, and watches it.
func (w *waitingSpare) readAgain(ctx context.Context) error {
	g := w.rec.Generation
	stat, _, changed, err := w.s.ExistsW(ctx, znode.Record(job.KindName, w.c.Root, w.c.Job))
	if err != nil {
		return err
	}
	w.recordChanged, w.mzxid = changed, stat.Mzxid
	rec, _, err := zkstate.ReadRecord(ctx, w.s, job.Kind(), w.job.Path())
	switch {
	case errors.Is(err, zkconn.ErrNoNode), err == nil && rec.Generation != g:
		return w.ended(ctx)
	case err != nil:
		return err
	case rec.State == resource.StateTerminating:
		return ErrStopRequested
	}
	w.rec, w.job = rec, job.Of(&rec)
	w.acl, err = zkstate.ParseACL(rec.ACL)
	return err
}

// ended is what it means that the Record does not name the generation any more. While somebody has deleted only the
// Record it waits for that.
func (w *waitingSpare) ended(ctx context.Context) error {
	if open, err := isOpen(ctx, w.s, w.job, w.rec.Generation); err != nil {
		return err
	} else if open {
		return w.awaitRepair(ctx, znode.Record(job.KindName, w.c.Root, w.c.Job))
	}
	completed, err := haveCompleted(ctx, w.s, w.job, w.rec.Generation)
	switch {
	case err != nil:
		return err
	case completed:
		return &DoneError{Spare: true}
	}
	return fmt.Errorf("%w: the generation in which it was a spare has ended", ErrFenced)
}

// takeSeat takes the first seat that is free.
func (w *waitingSpare) takeSeat(ctx context.Context) error {
	root, g := w.job.Root, w.rec.Generation
	dir := znode.Spares(root, g)
	_, there, event, err := w.s.ExistsW(ctx, dir)
	switch {
	case err != nil:
		return err
	case !there:
		return w.await(ctx, ErrNotOpen, "the first worker to join", event, w.recordChanged)
	}
	names, _, err := w.s.Children(ctx, dir)
	if err != nil {
		return err
	}
	spares := w.job.Gang.Spares
	taken := znode.TakenSeats(names, spares)
	for _, seat := range taken {
		if mine, err := w.isMine(ctx, znode.Spare(root, g, seat)); err != nil {
			return err
		} else if mine {
			w.seat = seat
			return nil
		}
	}
	for seat := range spares {
		if slices.Contains(taken, seat) {
			continue
		}
		body, err := znode.EncodeWorker(w.info(znode.NoID))
		if err != nil {
			return err
		}
		_, err = w.s.Multi(ctx, zkconn.CheckOp(znode.Gate(root, g), -1),
			zkconn.CreateOp(znode.Spare(root, g, seat), body, zkconn.Ephemeral, w.acl))
		switch {
		case err == nil:
			w.seat = seat
			return nil
		case errors.Is(err, zkconn.ErrUnknown):
			return w.refused(ctx, err)
		case !errors.Is(err, zkconn.ErrNodeExists):
			return err
		}
	}
	return fmt.Errorf("%w: all %d ids and all %d seats for spares are taken", ErrFull, w.job.Workers, spares)
}

// isMine reports whether this process has a seat already. It waits for the end of another one with this identity that
// is there.
func (w *waitingSpare) isMine(ctx context.Context, seat string) (bool, error) {
	body, stat, there, err := zkconn.IfThere(w.s.Get(ctx, seat))
	if err != nil || !there || stat.EphemeralOwner == w.s.ID() {
		return there, err
	}
	info, bad := znode.DecodeWorker(body)
	switch {
	case bad != nil || info.Identity != w.c.Identity:
		return false, nil
	case w.c.FailHeld:
		return false, ErrHeld
	}
	_, there, event, err := w.s.ExistsW(ctx, seat)
	if err != nil || !there {
		return false, err
	}
	what := fmt.Sprintf("the session of an older process that is the spare %s to end", w.c.Identity)
	return false, w.await(ctx, ErrHeld, what, event, nil)
}

// leaveSeat is for an identity that has a claim: another process with it was faster, or the reply to takeID was lost. A
// worker needs no seat, and who waits to be one must not keep it from others. It returns errAgain.
func (w *waitingSpare) leaveSeat(ctx context.Context) error {
	if w.seat != noSeat {
		seat := znode.Spare(w.job.Root, w.rec.Generation, w.seat)
		stat, there, err := w.s.Exists(ctx, seat)
		if err == nil && there && stat.EphemeralOwner == w.s.ID() {
			err = w.s.Delete(ctx, seat, anyVersion)
		}
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return w.refused(ctx, err)
		}
	}
	w.seat, w.full = noSeat, false
	return errAgain
}

// readOpen reads the attempt, and watches whether it is over.
func (w *waitingSpare) readOpen(ctx context.Context) (znode.GangAttempt, error) {
	root, g := w.job.Root, w.rec.Generation
	a, _, there, err := zkstate.ReadAttempt(ctx, w.s, w.job, g)
	switch {
	case err != nil:
		return a, err
	case !there:
		return a, w.awaitRepair(ctx, znode.GangAttemptAt(root, g))
	case a.Failed():
		return a, (&Attempt{GangAttempt: a}).Err()
	}
	token, decided, over, err := w.s.ExistsW(ctx, znode.Finished(root, g, a.Number, w.job.Workers))
	w.attemptOver = over
	switch {
	case decided && token.DataLength == 0:
		err = &DoneError{Spare: true}
	case decided: // another attempt follows
		err = errAgain
	}
	return a, err
}

func (w *waitingSpare) hasBegun(ctx context.Context, attempt int) (bool, error) {
	root, g := w.job.Root, w.rec.Generation
	kept, err := keptRounds(ctx, w.s, w.job, g, znode.StartBarrier)
	if err != nil {
		return false, err
	}
	start := znode.Attempt(root, g, znode.StartBarrier, attempt, kept[attempt])
	token, there, err := w.s.Exists(ctx, znode.Counted(start, w.job.Workers-1))
	return there && token.DataLength == 0, err
}

// noteGone notes who has a claim and is not live.
func (w *waitingSpare) noteGone(claimed, live []string) {
	before := w.gone
	w.gone = map[string]time.Time{}
	for _, identity := range claimed {
		if _, is := slices.BinarySearch(live, identity); is {
			continue
		}
		since, known := before[identity]
		if !known {
			since = time.Now()
		}
		w.gone[identity] = since
	}
}

// overdue are the identities of those who have not come back in time, sorted. The others have wait left, at least one
// of them; 0: there are no others.
func (w *waitingSpare) overdue() (gone []string, wait time.Duration) {
	for _, identity := range slices.Sorted(maps.Keys(w.gone)) {
		switch left := time.Duration(w.job.Gang.Replace) - time.Since(w.gone[identity]); {
		case left <= 0:
			gone = append(gone, identity)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return gone, wait
}

// replace takes the id of the worker whose turn it is for this seat; nil: there is none.
func (w *waitingSpare) replace(ctx context.Context, gone []string) (*Member, error) {
	names, _, seats, err := w.s.ChildrenW(ctx, znode.Spares(w.job.Root, w.rec.Generation))
	if err != nil {
		return nil, err
	}
	w.seatsChanged = seats
	turn := slices.Index(znode.TakenSeats(names, w.job.Gang.Spares), w.seat)
	if turn < 0 { // somebody deleted the seat
		w.seat = noSeat
		return nil, errAgain
	}
	for _, identity := range gone {
		id, claim, err := w.vacancy(ctx, identity)
		if err != nil {
			return nil, err
		}
		if id == znode.NoID {
			continue
		}
		body, stat, _, err := zkconn.IfThere(w.s.Get(ctx, znode.ID(w.job.Root, w.rec.Generation, id)))
		if err != nil {
			return nil, err
		}
		info, bad := znode.DecodeWorker(body)
		_, live, err := w.s.Exists(ctx, znode.Live(w.job.Root, w.job.Name, identity)) // after the claim, as it is set with it
		switch {
		case err != nil:
			return nil, err
		case live || bad != nil || info.Identity != identity: // another spare was first
			continue
		case turn == 0:
			return w.takeID(ctx, identity, id, claim, stat.Version)
		}
		turn--
	}
	return nil, nil
}

// takeID takes the id of a worker that is gone. ofClaim and ofID are the versions of its claim and of the znode of its
// id. A claim that was deleted may come again with the same version; the version of an id never does.
func (w *waitingSpare) takeID(ctx context.Context, old string, id int, ofClaim, ofID int32) (*Member, error) {
	root, g := w.job.Root, w.rec.Generation
	claim := znode.Claim{Nonce: w.nonce, Lives: 1, State: znode.In, ID: &id}
	claimBody, body, err := encode(claim, w.info(id))
	if err != nil {
		return nil, err
	}
	_, err = w.s.Multi(ctx,
		zkconn.CheckOp(znode.Gate(root, g), -1),
		zkconn.DeleteOp(znode.ByIdentity(root, g, old), ofClaim),
		zkconn.CreateOp(znode.ByIdentity(root, g, w.c.Identity), claimBody, zkconn.Persistent, w.acl),
		zkconn.SetOp(znode.ID(root, g, id), body, ofID),
		zkconn.CreateOp(w.live(), body, zkconn.Ephemeral, w.acl),
		zkconn.DeleteOp(znode.Spare(root, g, w.seat), anyVersion),
	)
	switch {
	case err == nil:
		return newMember(w.join, id, claim, 0), nil
	case errors.Is(err, zkconn.ErrUnknown): // if it was committed, the claim is there
		if settle := w.s.Settled(ctx); settle != nil {
			return nil, fmt.Errorf("%w: %w", settle, err)
		}
	case zkconn.PreconditionFailed(err): // another spare was faster, or what is missing will be missed again
		w.seat = noSeat // it may be that which is gone
		return nil, errAgain
	default:
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", errAgain, err)
}

// awaitChange waits for an event, or for the time unless that is 0, and returns errAgain. After an event it pauses:
// many workers may come or go at once, and one look is enough for all.
func (w *waitingSpare) awaitChange(ctx context.Context, wait time.Duration) error {
	w.tell(fmt.Sprintf("a worker to be lost: this process is a spare, in seat %d of %d", w.seat+1, w.job.Gang.Spares), "")
	var due <-chan time.Time
	if wait > 0 {
		due = time.After(wait)
	}
	select {
	case <-w.recordChanged:
	case <-w.attemptOver:
	case <-w.liveChanged:
	case <-w.seatsChanged:
	case <-due:
	case <-ctx.Done():
		return &waitError{ErrFull, time.Since(w.since), "a worker to be lost", context.Cause(ctx)}
	case <-w.s.Context().Done():
		return context.Cause(w.s.Context())
	}
	zkconn.Pause(ctx, min(startDelay*time.Duration(w.job.Workers), maxStartDelay))
	w.attempts, w.begun = 0, time.Now()
	return errAgain
}
