// Package worker is a process's side of a job. A process joins, waits for the other workers, meets them at barriers,
// and is live until it leaves or its session ends.
//
// Each recipe is a file. Its first comment names the znodes that it uses, who makes and removes them, and what
// happens if the process dies at any step. Every write is one transaction, which checks the gate of the generation
// that was joined. After the join it also checks that the claim of the identity is as this process last wrote it. So
// a process that was replaced, or whose generation is gone, cannot write anything (ErrFenced). Nothing is polled, and
// the clocks of two machines are never compared.
//
// The package never creates a job. It changes or deletes one only for the last of N workers to complete, as the
// declaration says. It never opens or closes a session: that is up to its caller.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Member is a worker that has joined. It is live until its Context ends.
type Member struct {
	ID         int
	Identity   string
	Generation string
	Job        job.Job // as recorded when it joined, with the defaults of what the record does not say

	session     *zkconn.Session
	acl         []zkconn.ACL
	info        atomic.Pointer[advertised]
	attempt     atomic.Pointer[Attempt] // of a gang, as it was read last
	claim       znode.Claim             // as this process last wrote it
	version     int32                   // of the claim: the fencing token
	noID        bool                    // the live znode was made before the id was known
	rollDue     bool                    // it was the last to join, or may have been, or is back: see writeRoll
	leaving     sync.Mutex              // held while it leaves, completes or rejoins
	unconfirmed *znode.Claim            // of a Leave or Complete whose outcome is unknown

	publishing *semaphore.Weighted // 1: a Publish or Advertise, or writeID
	published  map[string]int      // bytes of each of its keys; nil while they are not known

	rejoinNonce string  // of every Rejoin
	sessionIDs  []int64 // of the sessions that may own the live znode

	ctx context.Context // ends with the membership
	end context.CancelCauseFunc

	watchCtx  context.Context // of what runs in the background
	stopWatch context.CancelFunc
	watchers  sync.WaitGroup
	rollTried chan struct{} // closed when this member has tried to write the roll; nil if it need not try
}

// newMember is the member that j's transaction has made. It wrote claim; the znode has this version now.
func newMember(j *join, id int, claim znode.Claim, version int32) *Member {
	m := &Member{
		ID: id, Identity: j.c.Identity, Generation: j.rec.Generation, Job: j.job,
		acl: j.acl, claim: claim, version: version, noID: claim.Lives == 1 && claim.ID == nil,
		rollDue: j.job.Gang == nil && (j.place == znode.NoID || j.place == j.job.Workers-1),
	}
	m.info.Store(&advertised{worker: j.info(id), first: j.info(id)})
	return m.bindTo(j.s)
}

// bindTo ties the membership to a session: it ends when the session does.
func (m *Member) bindTo(s *zkconn.Session) *Member {
	m.session, m.sessionIDs = s, []int64{s.ID()}
	m.publishing = semaphore.NewWeighted(1)
	m.ctx, m.end = context.WithCancelCause(s.Context())
	m.watchCtx, m.stopWatch = context.WithCancel(m.ctx)
	return m
}

// Context ends when the membership does. Its cause is ErrFenced, ErrSessionLost (then Rejoin), context.Canceled after
// Leave or Complete, or an error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a member needs.
func (m *Member) Context() context.Context { return m.ctx }

// write performs ops in one transaction if this process is still the member: the generation is open, and the claim is
// as this process last wrote it. If it is not, nothing is written and the membership ends with ErrFenced; after
// ErrDamaged it goes on. Other errors are those of Session.Multi. The results are those of ops.
func (m *Member) write(ctx context.Context, ops ...zkconn.Op) ([]zkconn.Result, error) {
	if m.ctx.Err() != nil {
		return nil, context.Cause(m.ctx)
	}
	guards := []zkconn.Op{zkconn.CheckOp(m.gate(), -1), zkconn.CheckOp(m.by(), m.version)}
	results, err := m.session.Multi(ctx, append(guards, ops...)...)
	if err != nil {
		return nil, m.fence(ctx, err)
	}
	return results[len(guards):], nil
}

// anyVersion is for znodes that nobody changes meanwhile: the claim or the gate in the same transaction guards them, or
// they are left over.
const anyVersion = -1

func (m *Member) gate() string { return znode.Gate(m.Job.Root, m.Generation) }
func (m *Member) by() string   { return znode.ByIdentity(m.Job.Root, m.Generation, m.Identity) }
func (m *Member) live() string { return znode.Live(m.Job.Root, m.Job.Name, m.Identity) }

func (m *Member) attemptAt() string { return znode.GangAttemptAt(m.Job.Root, m.Generation) }

// A member watches two znodes: its own live znode and its gate. It writes its live znode twice: it adds its id after
// the first join, and it makes the znode again if somebody has deleted it by hand. Each write is guarded, so a member
// that was replaced cannot come back. If the process dies, the live znode goes with its session.

// ErrFenced means that this process is no longer a member: another one took its identity over, or the generation has
// ended. Stop the command. This member cannot write anything any more.
var ErrFenced = errors.New("fenced")

// ErrSessionLost means that the session of a member has ended. Rejoin in another one.
var ErrSessionLost = zkconn.ErrSessionLost

// fence ends the membership if the refusal of a transaction shows that it has ended. It returns ErrFenced then, and
// ErrDamaged if somebody deleted the gate or the claim by hand.
func (m *Member) fence(ctx context.Context, err error) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) || refused.Path != m.gate() && refused.Path != m.by() {
		return err
	}
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		err = m.gone(ctx, m.session, refused.Path)
	case !errors.Is(err, zkconn.ErrBadVersion):
		return err
	case refused.Path == m.by():
		err = m.replaced()
	default:
		err = m.generationEnded()
	}
	if errors.Is(err, ErrFenced) {
		m.end(err)
	}
	return err
}

func (m *Member) generationEnded() error {
	return fmt.Errorf("%w: the generation that worker %d (%s) joined has ended", ErrFenced, m.ID, m.Identity)
}

func (m *Member) replaced() error {
	return fmt.Errorf("%w: another process is worker %d (%s) now", ErrFenced, m.ID, m.Identity)
}

// startDelay, for each worker of the job, is how long a member waits before it writes its id and sets its watches: no
// other worker waits for these, and thousands that join at once have joined by then. The members then begin at random
// within the same time again.
const startDelay, maxStartDelay = 500 * time.Microsecond, 5 * time.Second

// await waits for an event. The error is why ctx or the membership has ended.
func (m *Member) await(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// start watches in the background until the membership ends, or until Leave, Complete or Rejoin stops it.
func (m *Member) start() *Member {
	m.watchers.Go(func() {
		delay := min(startDelay*time.Duration(m.Job.Workers), maxStartDelay)
		if zkconn.Pause(m.watchCtx, delay+rand.N(delay)); m.watchCtx.Err() != nil {
			return
		}
		m.watchers.Go(func() { m.follow(m.gate(), m.checkGate) })
		m.writeID()
		m.follow(m.live(), m.checkLive)
	})
	if m.rollDue {
		m.rollTried = make(chan struct{})
		m.watchers.Go(func() {
			defer close(m.rollTried)
			_ = m.writeRoll(m.watchCtx) // after an error a later joiner writes it
		})
	}
	return m
}

func (m *Member) stop() {
	m.stopWatch()
	m.watchers.Wait()
}

// writeID adds the id to a live znode that was created before the id was known. It helps those that list the live
// workers; nothing depends on it.
func (m *Member) writeID() {
	if !m.noID || m.publishing.Acquire(m.watchCtx, 1) != nil {
		return
	}
	defer m.publishing.Release(1)
	body, err := znode.EncodeWorker(m.info.Load().worker)
	for err == nil || errors.Is(err, zkconn.ErrUnknown) {
		if _, err = m.write(m.watchCtx, zkconn.SetOp(m.live(), body, anyVersion)); err == nil {
			return
		}
	}
}

// follow checks a znode now and after each of its events. An error of check ends the membership, unless it is a write
// whose outcome is unknown: then follow checks again; or ErrDamaged: then it checks again when the part is back.
func (m *Member) follow(path string, check func([]byte, zkconn.Stat, bool) error) {
	for {
		err := m.session.Follow(m.watchCtx, path, check)
		switch {
		case m.watchCtx.Err() != nil:
			return
		case errors.Is(err, zkconn.ErrUnknown):
		case errors.Is(err, ErrDamaged):
			if awaitPart(m.watchCtx, m.session, err) != nil {
				return // the session's end, or ours
			}
		default:
			m.end(err)
			return
		}
	}
}

// checkGate ends the membership with the generation.
func (m *Member) checkGate(_ []byte, _ zkconn.Stat, open bool) error {
	if !open {
		return m.gone(m.watchCtx, m.session, m.gate())
	}
	return nil
}

// checkLive makes the live znode again if it is gone. If another process owns it, the claim has changed, and the
// membership ends; if the claim is as it was, somebody made the live znode by hand.
func (m *Member) checkLive(_ []byte, stat zkconn.Stat, exists bool) error {
	switch {
	case exists && stat.EphemeralOwner == m.session.ID():
		return nil
	case exists:
		_, err := m.write(m.watchCtx)
		return err
	}
	body, err := znode.EncodeWorker(m.info.Load().worker)
	if err != nil {
		return err
	}
	_, err = m.write(m.watchCtx, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	switch {
	case errors.Is(err, zkconn.ErrNodeExists):
		return nil // somebody made it: follow checks again
	case errors.Is(err, zkconn.ErrNoNode): // the job znode is gone, and the gate is not
		return m.gone(m.watchCtx, m.session, m.Job.Path())
	}
	return err
}

// Somebody may delete a part of a job by hand: its znode, its gate, its Record, or a folder of its generation. The
// generation goes on: muster ends one only together with its Record. So a member whose gate, claim or job znode is gone
// reads the Record. While the Record still names the generation, or is itself the only part that is gone, the member
// writes nothing, lets its command go on, and waits. Apply puts the part back, if it can, and the member goes on.

// ErrDamaged means that somebody deleted a part of the job by hand, so that nothing can be written now. The command may
// go on. Wait, or try again when apply has put the part back.
var ErrDamaged = errors.New("a part of the job was deleted by hand")

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

// gone is what it means for this member that a znode is missing: ErrDamaged, ErrFenced if its generation has ended, or
// ErrReplaced.
func (m *Member) gone(ctx context.Context, s *zkconn.Session, missing string) error {
	open, err := isOpen(ctx, s, m.Job, m.Generation)
	switch {
	case err != nil:
		return err
	case !open:
		return m.generationEnded()
	case missing == m.by():
		if err := m.whoReplaced(ctx, s); !errors.Is(err, ErrFenced) || errors.Is(err, ErrReplaced) {
			return err
		}
	}
	return &damagedError{missing}
}

// whoReplaced is ErrReplaced if the id is another identity's, and else ErrFenced: another process is this identity.
func (m *Member) whoReplaced(ctx context.Context, s *zkconn.Session) error {
	if !m.Job.Gang.HasSpares() {
		return m.replaced()
	}
	body, _, _, err := zkconn.IfThere(s.Get(ctx, znode.ID(m.Job.Root, m.Generation, m.ID)))
	if err != nil {
		return err
	}
	if now, err := znode.DecodeWorker(body); err == nil && now.Identity != "" && now.Identity != m.Identity {
		return fmt.Errorf("%w: %s is worker %d now", ErrReplaced, now.Identity, m.ID)
	}
	return m.replaced()
}

// awaitPart waits, if err is ErrDamaged, until the part is there again, or for damageCheck. It returns any other error,
// and at the end of ctx this one.
func awaitPart(ctx context.Context, s *zkconn.Session, err error) error {
	var damaged *damagedError
	if !errors.As(err, &damaged) || ctx.Err() != nil {
		return err
	}
	_, there, event, watchErr := s.ExistsW(ctx, damaged.missing)
	if watchErr != nil {
		return watchErr
	}
	if there {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, damageCheck)
	defer cancel()
	select {
	case <-event: // also at the end of the session, which the next request tells
	case <-limited.Done():
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// repeat calls try again after errAgain, up to maxAttempts times in all. While a part of the job is missing it waits.
func repeat(ctx context.Context, s *zkconn.Session, try func() error) error {
	for attempts := 1; ; {
		err := try()
		switch {
		case errors.Is(err, ErrDamaged):
			if err := awaitPart(ctx, s, err); err != nil {
				return err
			}
		case errors.Is(err, errAgain) && attempts < maxAttempts:
			attempts++
		default:
			return err
		}
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

// A command that chooses its port at run time says it afterwards. One guarded transaction sets the address in
//
//	run/<g>/id/n-<id>   where peers look it up
//	<job>/<identity>    the live znode; made again if somebody has deleted it by hand
//
// If the process dies before the commit nothing has changed. If it dies after it, the address stays until the next life
// of the identity joins with its own. A session that is lost takes the live znode along: the rejoin writes both again.
// The roll, if it has been written, keeps the address that it has.

// checkInfo says which part of what a worker says of itself cannot be in a roll.
func checkInfo(w znode.Worker) error {
	check := func(what, place string) error {
		if place == "" {
			return nil
		}
		return resource.InField(what, znode.CheckPlace(place))
	}
	return cmp.Or(check("rack", w.Node.Rack), check("data center", w.Node.Datacenter),
		resource.InField("additional ports", znode.CheckPorts(w.Ports)))
}

// advertised is what the worker's znodes say.
type advertised struct {
	worker  znode.Worker // where its peers reach it, with its ID
	first   znode.Worker // as it joined
	changed bool         // since it joined
}

// Address is where peers reach this worker, as it was advertised last.
func (m *Member) Address() string { return m.info.Load().worker.Address() }

// Advertise tells peers another address of this worker: a host name or IP, and a port. It may be repeated. While a part
// of the job is missing that somebody deleted it waits. After zkconn.ErrUnknown it is not known which of the two
// addresses peers see: call it again.
func (m *Member) Advertise(ctx context.Context, host string, port int) error {
	if err := m.publishing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.publishing.Release(1)
	before := m.info.Load()
	next := before.worker
	next.IP, next.Port = host, port
	body, err := znode.EncodeWorker(next)
	if err != nil {
		return err
	}
	m.info.Store(&advertised{next, before.first, true}) // now: a live znode that is made again has the new address
	err = m.untilWritten(ctx, func() error { return m.writeAddress(ctx, body) })
	if err != nil && !errors.Is(err, zkconn.ErrUnknown) && !errors.Is(err, ErrSessionLost) {
		m.info.Store(before)
	}
	if err != nil {
		return fmt.Errorf("advertise %s: %w", next.Address(), err)
	}
	return nil
}

// writeAddress is errAgain if the live znode came or went meanwhile.
func (m *Member) writeAddress(ctx context.Context, body []byte) error {
	live, exists, err := m.session.Exists(ctx, m.live())
	if err != nil {
		return err
	}
	ops := []zkconn.Op{zkconn.SetOp(znode.ID(m.Job.Root, m.Generation, m.ID), body, anyVersion)} // the claim guards it
	switch {
	case !exists:
		ops = append(ops, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	case live.EphemeralOwner == m.session.ID():
		ops = append(ops, zkconn.SetOp(m.live(), body, anyVersion))
	}
	_, err = m.write(ctx, ops...)
	refused, ok := errors.AsType[*zkconn.Error](err)
	if ok && refused.Path == m.live() && refused.Op != "create" || errors.Is(err, zkconn.ErrNodeExists) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// untilWritten calls write, which performs a guarded transaction, again after a lost reply and after errAgain: it must
// bear to be repeated. While a part of the job is missing it waits for it.
func (m *Member) untilWritten(ctx context.Context, write func() error) error {
	wait := time.Duration(0)
	return repeat(ctx, m.session, func() error {
		err := write()
		switch refused, ok := errors.AsType[*zkconn.Error](err); {
		case errors.Is(err, zkconn.ErrUnknown):
			if settle := m.session.Settled(ctx); settle != nil {
				return fmt.Errorf("%w: %w", settle, err)
			}
			return fmt.Errorf("%w: %w", errAgain, err)
		case errors.Is(err, errAgain):
			wait = min(wait+writePause, maxWritePause)
			zkconn.Pause(ctx, rand.N(wait)) // the next attempt says if ctx has ended
		case errors.Is(err, zkconn.ErrNoNode) && ok:
			return m.gone(ctx, m.session, missingPart(refused))
		}
		return err
	})
}

// writePause, for each attempt so far, is how long a member waits at most before it tries a transaction again that
// others were in the way of.
const writePause, maxWritePause = 5 * time.Millisecond, 500 * time.Millisecond
