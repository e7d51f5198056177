package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The commands of a gang belong to attempts, from 1:
//
//	run/<g>/attempt                persistent  which attempt it is, how many restarts were used, whether it has failed
//	barrier/.start/<attempt>       a round with live arrivals, at which all meet before their commands start
//	barrier/.finish/<attempt>      a round with durable arrivals, of those whose commands have ended well
//	barrier/<name>@<attempt>       the barriers of the commands of a later attempt
//
// The first worker of the generation makes the znode attempt, and both rounds of attempt 1. An attempt begins when its
// round of .start is released. From then on an arrival there stands for a worker whose session has not ended. Who is
// gone, and has not arrived at .finish, is lost.
//
// A worker that finds somebody lost, or whose command has failed, decides for all, by one transaction: it sets attempt,
// aborts the round of .finish, and makes the rounds of the next attempt, or none if the gang has failed. The release of
// .finish and each decision create the same znode, the token of that round. So an attempt was finished by all, or is
// repeated by all, or failed. Nothing changes attempt before .start is released: who is gone then is only missing.
//
// Nobody arrives at the round of .start before its command of the attempt before has ended, and what that has published
// is deleted. So when an attempt begins, nothing is written for an earlier one any more, and no call needs to check it.
// If a process dies before its transaction nothing has changed, and another one finds the same loss. After it the
// others go on.

// ErrMoved means that the attempt to which a command belongs is over. Stop the command, and call Attempt.
var ErrMoved = errors.New("another attempt has begun, or the gang has failed")

// ErrGangFailed means that the gang has failed: no other command of this generation will start, and nobody joins any
// more. Find out why, and apply: that begins anew.
var ErrGangFailed = errors.New("the gang has failed")

// ErrStopRequested means that the workers of the job were asked to stop: nobody decides any more. Stop the command, and
// Leave.
var ErrStopRequested = errors.New("the workers of the job were asked to stop")

// Attempt is an attempt of a gang, as its member has read it.
type Attempt struct {
	znode.GangAttempt
	Begun    bool // its commands have started
	Arrived  bool // the command of this worker has ended well in it
	Finished bool // the commands of all have

	version int32
	changed <-chan struct{} // at an event of the znode
	start   string          // folder of the round of .start, once it is released
	arrived atomic.Bool     // as Arrived, also for a Rejoin at the same time
}

// Err is ErrGangFailed if no other attempt follows.
func (a *Attempt) Err() error {
	if !a.Failed() {
		return nil
	}
	return fmt.Errorf("%w: %s (attempt %d; %s used)", ErrGangFailed, cmp.Or(a.Because, "nobody says why"), a.Number,
		text.Count(a.Used, "restart"))
}

// Attempt reads the newest attempt. What the member writes for its command belongs to it from now on. While a part of
// the job is missing that somebody deleted it waits.
func (m *Member) Attempt(ctx context.Context) (a *Attempt, err error) {
	err = m.untilWritten(ctx, func() error {
		if err := m.session.Settled(ctx); err != nil { // nothing that a command of before asked for is on its way
			return err
		}
		a, err = m.readAttempt(ctx)
		return err
	})
	return a, m.attemptError(err)
}

func (m *Member) readAttempt(ctx context.Context) (*Attempt, error) {
	at := m.attemptAt()
	body, stat, changed, err := m.session.GetW(ctx, at)
	if err != nil {
		return nil, err
	}
	a := &Attempt{version: stat.Version, changed: changed}
	if a.GangAttempt, err = znode.Decode[znode.GangAttempt](body); err != nil {
		return nil, resource.InField(at, err)
	}
	before := m.attempt.Swap(a)
	if a.Failed() || before != nil && before.Number < a.Number { // it cannot begin without this member
		return a, nil
	}
	err = m.readStage(ctx, a)
	if err == nil && zkconn.Closed(changed) { // what was read may be another one's
		err = errAgain
	}
	return a, err
}

func (m *Member) attemptError(err error) error {
	if err != nil {
		return fmt.Errorf("the attempt of %s: %w", m.Job.Path(), err)
	}
	return nil
}

// readStage reads how far an attempt has come.
func (m *Member) readStage(ctx context.Context, a *Attempt) error {
	start, err := m.startRound(ctx, a)
	if err != nil {
		return err
	}
	begun, err := m.decidedNow(ctx, start)
	if err != nil || !begun.released {
		return err
	}
	a.Begun, a.start = true, start
	finish := znode.FinishRound(m.Job.Root, m.Generation, a.Number)
	if _, a.Arrived, err = m.session.Exists(ctx, znode.Arrival(finish, m.ID)); err != nil {
		return err
	}
	a.arrived.Store(a.Arrived)
	end, err := m.decidedNow(ctx, finish)
	a.Finished = end.released
	return err
}

// decidedNow is decided of a round of the newest attempt, which nobody clears.
func (m *Member) decidedNow(ctx context.Context, dir string) (outcome, error) {
	if _, there, err := m.session.Exists(ctx, znode.RoundState(dir)); err != nil || !there {
		return outcome{}, cmp.Or(err, m.gone(ctx, m.session, znode.RoundState(dir)))
	}
	return m.decided(ctx, dir)
}

// startRound is the folder of the latest attempt at the round of .start.
func (m *Member) startRound(ctx context.Context, a *Attempt) (string, error) {
	kept, err := m.keptRounds(ctx, znode.StartBarrier)
	if err == nil && kept[a.Number] == 0 {
		err = m.gone(ctx, m.session, znode.StartRound(m.Job.Root, m.Generation, a.Number))
	}
	return znode.Attempt(m.Job.Root, m.Generation, znode.StartBarrier, a.Number, kept[a.Number]), err
}

// gangRounds are the operations that make the two rounds of an attempt.
func gangRounds(j job.Job, g string, attempt int, acl []zkconn.ACL) ([]zkconn.Op, error) {
	start, err := roundOps(znode.StartRound(j.Root, g, attempt), j.Workers, znode.LiveRetry, acl)
	if err != nil {
		return nil, err
	}
	finish, err := roundOps(znode.FinishRound(j.Root, g, attempt), j.Workers, znode.Durable, acl)
	return append(start, finish...), err
}

// StartAttempt waits until the commands of the attempt may start: all N workers are live at one moment, and have
// nothing published. It is AbortedError if some are missing for as long as the gang waits.
func (m *Member) StartAttempt(ctx context.Context, a *Attempt) error {
	if err := m.retract(ctx); err != nil {
		return m.attemptError(err)
	}
	r := &round{
		m: m, name: znode.StartBarrier, number: a.Number, mode: znode.LiveRetry,
		begun: time.Now(), limit: time.Duration(m.Job.Gang.Wait), chosen: new(int),
	}
	r.at(1)
	err := r.passInTime(ctx)
	if err == nil {
		a.Begun, a.start = true, r.dir
	}
	if err == nil && r.last {
		m.watchers.Go(func() { _ = m.clearAttempts(m.watchCtx, a) })
	}
	return err
}

// roll is the operation that writes the roll anew, if an address has changed since it was written; none if not. A roll
// that is too large is not written: peers are looked up by id.
func (m *Member) roll(ctx context.Context) ([]zkconn.Op, error) {
	body, stat, err := m.session.Get(ctx, m.Job.Path())
	if errors.Is(err, zkconn.ErrNoNode) {
		err = m.gone(ctx, m.session, m.Job.Path())
	}
	if err != nil {
		return nil, err
	}
	now, err := m.makeRoll(ctx)
	switch {
	case errors.Is(err, znode.ErrRollTooLarge):
		return nil, m.recordNoRoll(ctx)
	case err != nil || bytes.Equal(body, now):
		return nil, err
	}
	return []zkconn.Op{zkconn.SetOp(m.Job.Path(), now, stat.Version)}, nil
}

// LostError means that workers of an attempt are gone, and have not arrived at its end.
type LostError struct{ IDs []int }

func (e *LostError) Error() string {
	if len(e.IDs) == 1 {
		return nameIDs(e.IDs) + " is gone"
	}
	return nameIDs(e.IDs) + " are gone"
}

// AwaitLoss waits until the attempt is over, which is ErrMoved, or until somebody is lost, which is LostError. Each
// worker watches the next one, so one sees a loss, and of many that are lost at once somebody sees one.
func (m *Member) AwaitLoss(ctx context.Context, a *Attempt) error {
	for {
		changed, err := m.watchNext(ctx, a)
		if err != nil {
			return err
		}
		select {
		case <-a.changed:
			return m.moved(ctx, a)
		case <-changed: // nil if nobody is left to be watched
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
	}
}

// watchNext watches the next worker that is there; nil: none is. It is LostError if one before that is lost.
func (m *Member) watchNext(ctx context.Context, a *Attempt) (<-chan struct{}, error) {
	finish, n := znode.FinishRound(m.Job.Root, m.Generation, a.Number), m.Job.Workers
	var lost []int
ids:
	for i := 1; i < n && len(lost) < znode.MaxLost; i++ {
		id := (m.ID + i) % n
		_, there, changed, err := m.session.ExistsW(ctx, znode.Arrival(a.start, id))
		switch {
		case err != nil:
			return nil, err
		case there && len(lost) == 0:
			return changed, nil
		case there:
			break ids
		}
		_, finished, err := m.session.Exists(ctx, znode.Arrival(finish, id))
		if err != nil {
			return nil, err
		}
		if !finished {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return nil, &LostError{lost}
	}
	return nil, nil
}

// moved is ErrMoved, unless the event was none of the znode. While somebody has deleted that it waits.
func (m *Member) moved(ctx context.Context, a *Attempt) error {
	return m.untilWritten(ctx, func() error {
		_, stat, changed, err := m.session.GetW(ctx, m.attemptAt())
		if err == nil && stat.Version != a.version {
			return ErrMoved
		}
		a.changed = changed
		return err
	})
}

// Loss is why an attempt is over.
type Loss struct {
	Because string // for people
	Exit    *int   // code of the command that failed
	Lost    []int  // ids of the workers that are lost, ascending
	Drained bool   // a worker was asked to end, which is no fault of the gang: it does not count as a restart
}

// The exit codes of commands that cannot be started, which no restart repairs.
var finalCodes = []int{126, 127}

// Decide ends an attempt that has begun: another one follows, or the gang has failed. It is nil if that is so, whoever
// has decided: call Attempt. Of an attempt that has not begun nothing is decided. ErrStopRequested: nor is it now.
func (m *Member) Decide(ctx context.Context, a *Attempt, l Loss) error {
	return m.attemptError(m.untilWritten(ctx, func() error { return m.tryDecide(ctx, a, l) }))
}

func (m *Member) tryDecide(ctx context.Context, a *Attempt, l Loss) error {
	if a.start == "" { // Attempt did not read whether it has begun, or it had not
		if err := m.readStage(ctx, a); err != nil || !a.Begun {
			return err
		}
	}
	path := m.Job.Path()
	if err := m.session.Sync(ctx, path); err != nil {
		return err
	}
	rec, _, err := zkstate.ReadRecord(ctx, m.session, job.Kind(), path)
	if err != nil {
		return err
	}
	gang := m.Job.Gang
	if now := job.Of(&rec).Gang; rec.Generation == m.Generation && now != nil {
		gang = now // the numbers may have changed
	}
	if rec.Generation == m.Generation && rec.State == resource.StateTerminating {
		return ErrStopRequested
	}
	next := znode.GangAttempt{
		Number: a.Number + 1, Used: a.Used, State: znode.GangOpen,
		Because: znode.Because(l.Because), By: m.Identity, Exit: l.Exit, Lost: l.Lost,
	}
	final := l.Exit != nil && (slices.Contains(gang.Final, *l.Exit) || slices.Contains(finalCodes, *l.Exit))
	switch counts := !l.Drained || gang.Restarts == 0; {
	case final, counts && a.Used >= gang.Restarts:
		next.Number, next.State = a.Number, znode.GangFailed
	case counts:
		next.Used++
	}
	ops, err := m.decision(a, next)
	if err != nil {
		return err
	}
	_, err = m.write(ctx, ops...)
	finish := znode.FinishRound(m.Job.Root, m.Generation, a.Number)
	if zkconn.RefusedAt(err, m.attemptAt(), zkconn.ErrBadVersion) ||
		zkconn.RefusedAt(err, znode.RoundState(finish), zkconn.ErrBadVersion) ||
		zkconn.RefusedAt(err, znode.Counted(finish, m.Job.Workers-1), zkconn.ErrNodeExists) {
		return nil // somebody has decided, or all have finished
	}
	return err
}

// decision are the operations that make next follow a.
func (m *Member) decision(a *Attempt, next znode.GangAttempt) ([]zkconn.Op, error) {
	g := m.Generation
	body, err := znode.Encode(next)
	if err != nil {
		return nil, err
	}
	aborted, err := znode.Encode(znode.Round{
		Workers: m.Job.Workers, Mode: znode.Durable, Aborted: cmp.Or(next.Because, "the attempt is over"),
	})
	if err != nil {
		return nil, err
	}
	finish := znode.FinishRound(m.Job.Root, g, a.Number)
	ops := []zkconn.Op{
		zkconn.SetOp(m.attemptAt(), body, a.version), zkconn.SetOp(znode.RoundState(finish), aborted, 0),
		zkconn.CreateOp(znode.Counted(finish, m.Job.Workers-1), []byte("aborted"), zkconn.Persistent, m.acl),
	}
	if next.State == znode.GangFailed {
		return ops, nil
	}
	rounds, err := gangRounds(m.Job, g, next.Number, m.acl)
	return append(ops, rounds...), err
}

// FinishAttempt says that the command of this worker has ended well in the attempt, and waits until those of all have.
// ErrMoved: it has to run again.
func (m *Member) FinishAttempt(ctx context.Context, a *Attempt) error {
	r := &round{
		m: m, name: znode.FinishBarrier, number: a.Number, mode: znode.Durable, chosen: new(int), arrived: &a.arrived,
	}
	r.at(1)
	err := r.pass(ctx, context.Background())
	if _, aborted := errors.AsType[*AbortedError](err); aborted {
		return ErrMoved
	}
	if err == nil {
		a.Finished = true
	}
	return m.attemptError(err)
}

// hasFinished reports whether this worker has arrived at the end of the attempt that it has read last.
func (m *Member) hasFinished() bool {
	a := m.attempt.Load()
	return a != nil && a.arrived.Load()
}

// madeFinish reports whether this worker was the last whose command ended well: one transaction made its arrival and
// the token.
func (m *Member) madeFinish(ctx context.Context) bool {
	a := m.attempt.Load()
	if a == nil {
		return false
	}
	g, n := m.Generation, m.Job.Workers
	own, there, err := m.session.Exists(ctx, znode.Arrival(znode.FinishRound(m.Job.Root, g, a.Number), m.ID))
	token, _, e := m.session.Exists(ctx, znode.Finished(m.Job.Root, g, a.Number, n))
	return err == nil && e == nil && there && own.Czxid == token.Czxid
}

// Withdraw deletes the arrival of this worker at the start of the attempt. begun: the attempt has begun, so call
// Decide. If it begins in the moment in between, the others may have found this worker lost before.
func (m *Member) Withdraw(ctx context.Context, a *Attempt) (begun bool, err error) {
	start, err := m.startRound(ctx, a)
	if err != nil {
		return false, err
	}
	err = m.untilWritten(ctx, func() error {
		now, err := m.decided(ctx, start)
		if begun = now.released; err != nil || begun {
			return err
		}
		_, err = m.write(ctx, zkconn.DeleteOp(znode.Arrival(start, m.ID), anyVersion))
		if errors.Is(err, zkconn.ErrNoNode) {
			return nil
		}
		return err
	})
	if err == nil && !begun {
		var now outcome
		now, err = m.decided(ctx, start)
		begun = now.released
	}
	return begun, m.attemptError(err)
}

// barrierName is the name under which the commands of this attempt meet at a barrier.
func (m *Member) barrierName(name string) string {
	if a := m.attempt.Load(); a != nil {
		return a.Barrier(name)
	}
	return name
}

// clearAttempts deletes the barriers of earlier attempts. What is left if it fails is deleted in the next one.
func (m *Member) clearAttempts(ctx context.Context, a *Attempt) error {
	dir := znode.Barriers(m.Job.Root, m.Generation)
	names, _, err := m.session.Children(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		at := resource.Join(dir, name)
		ofGang := name == znode.StartBarrier || name == znode.FinishBarrier
		if !ofGang && znode.BarrierAttempt(name) >= a.Number {
			continue
		}
		rounds, _, err := m.session.Children(ctx, at)
		for _, round := range rounds {
			if number, _, bad := znode.ParseAttempt(round); err == nil && (!ofGang || bad == nil && number < a.Number) {
				err = m.clearAttempt(ctx, resource.Join(at, round), true)
			}
		}
		if err == nil && !ofGang {
			err = m.clearFolder(ctx, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
