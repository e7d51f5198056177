package member

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Taking a duty that the assigner has given to this seat writes:
//
//	run/<g>/duty/<d>        persistent   set; the first time created and set. The zxid is the epoch
//	run/<g>/duty/<d>/held   ephemeral    created
//
// That is one transaction, which checks the gate, and the Record and the seat at the versions read: who was overtaken
// by the assigner or by an apply takes nothing. held excludes everybody else. A process that dies before the commit has
// taken nothing; one that dies after it holds the duty until its session ends.
//
// Giving it back deletes held, and checks that nobody has taken the duty since. A process that dies before that holds
// the duty until its session ends.

// Hold is a duty that this process holds, from Take until its Context ends.
type Hold struct {
	Duty  string
	Epoch int64 // grows with every take of the duty, for ever. Systems outside refuse a smaller one

	m            *Member
	version      int32           // of the duty's znode: guards the holder's writes
	handOver     context.Context // ends when the duty is to be handed over
	tellHandOver context.CancelFunc
	ctx          context.Context
	end          context.CancelCauseFunc
	watched      chan struct{}         // closed when watch has returned
	ending       atomic.Pointer[Event] // how this process is giving the duty back; nil: it is not
	saving       *semaphore.Weighted   // 1: who changes state
	opening      *semaphore.Weighted   // 1: who opens, closes or aborts an operation
	runners      sync.Map              // names of the operations that this process has opened
}

// Take waits until the assigner gives the duty to this member and its last holder has let it go, and takes it. It
// returns the cause if the membership or ctx ends. Then it has taken nothing: a take under way when ctx ends is given
// back.
func (m *Member) Take(ctx context.Context, duty string) (*Hold, error) {
	nonce := zkstate.NewID()
	var freed <-chan struct{} // what the last try waits for
	for {
		o := m.orders()
		var err error
		if happened(freed) {
			freed = nil // or else it would end the wait below again and again
		}
		if o.wants(duty) && o.seat > m.resignedAt(duty) && freed == nil {
			var h *Hold
			h, freed, err = m.tryTake(m.ctx, o, duty, nonce)
			if h != nil && ctx.Err() == nil {
				return h, nil
			}
			if h != nil {
				err = errors.Join(context.Cause(ctx), h.Release(m.ctx))
			}
		}
		switch {
		case errors.Is(err, errAgain):
			continue
		case errors.Is(err, zkconn.ErrSilent): // the membership is about to end
			err = nil
		case errors.Is(err, zkconn.ErrNoAuth): // somebody changed the ACL of its znodes: others may be allowed to
			err = m.tell(ctx, znode.Resignation{Duty: duty, Blame: true, Because: err.Error()}, m.resign(duty))
		}
		if err != nil {
			return nil, fmt.Errorf("take %s: %w", duty, m.removed(err))
		}
		select {
		case <-o.changed:
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.ctx.Done():
			return nil, context.Cause(m.ctx)
		}
	}
}

// tryTake takes the duty once. ctx is that of the membership: if it could end before, a take whose answer is lost would
// be held by nobody. If somebody holds it, freed is closed when that has changed: a try before is of no use. Without
// any result the orders are out of date: there will be newer ones.
func (m *Member) tryTake(
	ctx context.Context, o orders, duty, nonce string,
) (h *Hold, freed <-chan struct{}, err error) {
	results, err := m.session.MultiWithin(ctx, m.silence, m.takeOps(o, duty, nonce, false)...)
	if zkconn.RefusedAt(err, znode.Duty(m.root, m.Generation, duty), zkconn.ErrNoNode) {
		results, err = m.session.MultiWithin(ctx, m.silence, m.takeOps(o, duty, nonce, true)...)
	}
	switch {
	case err == nil:
		set := results[len(results)-2].Stat
		return m.newHold(duty, set.Mzxid, set.Version), nil, nil
	case errors.Is(err, zkconn.ErrUnknown):
		h, err = m.findTake(ctx, duty, nonce, err)
		return h, nil, err
	case errors.Is(err, zkconn.ErrNodeExists): // another member holds it, or made its znode
		_, there, event, err := m.session.ExistsW(ctx, znode.Held(m.root, m.Generation, duty))
		if err == nil && !there {
			return nil, nil, errAgain
		}
		return nil, event, err
	case errors.Is(err, zkconn.ErrBadVersion): // the Record or the seat: their watches tell
		return nil, nil, nil
	}
	return nil, nil, err
}

// takeOps is the transaction that takes a duty; first if nobody has taken it before.
func (m *Member) takeOps(o orders, duty, nonce string, first bool) []zkconn.Op {
	// Both encode: their fields were checked when this process joined, and when the assigner wrote the seat.
	taken, _ := znode.Encode(znode.DutyTaken{Nonce: nonce, Identity: m.Identity, Version: m.present.Version})
	holder, _ := znode.Encode(znode.Holder{
		Identity: m.Identity, Nonce: nonce, Version: m.present.Version, Address: m.present.Address,
	})
	ops := []zkconn.Op{
		zkconn.CheckOp(m.seat.Gate(), -1),
		zkconn.CheckOp(m.seat.RecordPath(), o.record),
		zkconn.CheckOp(m.seat.Path, o.seat),
	}
	at := znode.Duty(m.root, m.Generation, duty)
	if first {
		ops = append(ops, zkconn.CreateOp(at, nil, zkconn.Persistent, m.acl))
	}
	return append(ops, zkconn.SetOp(at, taken, -1),
		zkconn.CreateOp(znode.Held(m.root, m.Generation, duty), holder, zkconn.Ephemeral, m.acl))
}

// findTake finds out whether a take was committed whose reply was lost.
func (m *Member) findTake(ctx context.Context, duty, nonce string, lost error) (*Hold, error) {
	if err := m.session.Settled(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", lost, err)
	}
	body, stat, _, err := zkconn.IfThere(m.session.Get(ctx, znode.Duty(m.root, m.Generation, duty)))
	if err != nil {
		return nil, err
	}
	if taken, err := znode.Decode[znode.DutyTaken](body); err != nil || taken.Nonce != nonce {
		return nil, errAgain
	}
	return m.newHold(duty, stat.Mzxid, stat.Version), nil // its watch finds out whether held is still there
}

func (m *Member) newHold(duty string, epoch int64, version int32) *Hold {
	h := &Hold{
		Duty: duty, Epoch: epoch, m: m, version: version,
		watched: make(chan struct{}), saving: semaphore.NewWeighted(1), opening: semaphore.NewWeighted(1),
	}
	h.handOver, h.tellHandOver = context.WithCancel(context.Background())
	h.ctx, h.end = context.WithCancelCause(m.ctx)
	m.emit(Event{Kind: EventTaken, Duty: duty, Epoch: epoch})
	go h.watch()
	return h
}

// Context ends when this process must not act as the holder any more. Its cause is that of the membership, ErrNotHeld
// if somebody deleted held by hand, or context.Canceled after Release and Resign.
func (h *Hold) Context() context.Context { return h.ctx }

// HandOver is closed when the assigner has given the duty to another member, or when it is no longer declared. Finish,
// and call Release: the next holder waits for that.
func (h *Hold) HandOver() <-chan struct{} { return h.handOver.Done() }

// watch ends the hold when held is gone, and notices when it is to be handed over. A held that somebody wrote to ends
// the membership: nobody else could take the duty before the session ends.
func (h *Hold) watch() {
	defer close(h.watched)
	for {
		stat, there, event, err := h.m.session.ExistsW(h.ctx, h.held())
		if err == nil && (!there || stat.EphemeralOwner != h.m.session.ID()) {
			err = fmt.Errorf("%w: %s is gone", ErrNotHeld, h.held())
		} else if err == nil && stat.Version != 0 { // every write of the holder checks it; the session's end deletes it
			err = fmt.Errorf("%w: somebody wrote to %s", ErrRemoved, h.held())
			h.m.seat.End(err)
		}
		if err != nil {
			h.over(err)
			return
		}
		for same := true; same; {
			o := h.m.orders()
			if h.handOver.Err() == nil && !o.wants(h.Duty) {
				h.m.emit(Event{Kind: EventHandOver, Duty: h.Duty, Epoch: h.Epoch})
				h.tellHandOver()
			}
			select {
			case <-o.changed:
			case <-event:
				same = false
			case <-h.ctx.Done():
				return
			}
		}
	}
}

// over ends the hold. Its cause is err, unless this process has given the duty back.
func (h *Hold) over(err error) {
	e := Event{Kind: EventLost, Duty: h.Duty, Epoch: h.Epoch, Text: err.Error()}
	if ending := h.ending.Load(); ending != nil {
		e, err = *ending, context.Canceled
	}
	if h.m.ctx.Err() == nil { // or else the end of the membership tells
		h.m.emit(e)
	}
	h.end(err)
}

// Check returns nil if this process holds the duty now: it asks ZooKeeper. ErrNotHeld means that it does not.
func (h *Hold) Check(ctx context.Context) error {
	_, err := h.write(ctx)
	return err
}

// write performs ops in one transaction if this process is still the holder. ErrNotHeld means that it is not, that
// nothing was written, and that the hold has ended. The results are those of ops.
func (h *Hold) write(ctx context.Context, ops ...zkconn.Op) ([]zkconn.Result, error) {
	return h.writeWithin(ctx, math.MaxInt64, ops...)
}

// writeWithin is write that fails with zkconn.ErrSilent past a limit of the session's Silence.
func (h *Hold) writeWithin(ctx context.Context, limit time.Duration, ops ...zkconn.Op) ([]zkconn.Result, error) {
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx)
	}
	at := znode.Duty(h.m.root, h.m.Generation, h.Duty)
	guards := []zkconn.Op{
		zkconn.CheckOp(h.m.seat.Gate(), -1), zkconn.CheckOp(at, h.version),
		zkconn.CheckOp(h.held(), 0), // deleted by hand is lost, before anybody else has taken it
	}
	results, err := h.m.session.MultiWithin(ctx, limit, append(guards, ops...)...)
	if zkconn.RefusedAt(err, at, zkconn.ErrBadVersion) || zkconn.RefusedAt(err, at, zkconn.ErrNoNode) ||
		zkconn.RefusedAt(err, h.held(), zkconn.ErrNoNode) {
		err = fmt.Errorf("%w: another process is the holder: %w", ErrNotHeld, err)
		h.over(err)
	}
	if zkconn.RefusedAt(err, h.m.seat.Gate(), zkconn.ErrNoNode) {
		err = h.m.removed(err)
	}
	if err != nil {
		return nil, err
	}
	return results[len(guards):], nil
}

// Release gives the duty back. Stop what it was for before. It returns nil too if the hold has ended by itself.
func (h *Hold) Release(ctx context.Context) error {
	return h.giveBack(ctx, Event{Kind: EventReleased}, nil)
}

// Resign gives the duty back although the assigner did not ask for it, and tells the assigner why. blame says that this
// member failed: the assigner prefers others then. Until the assigner has decided, Take does not take the duty again.
func (h *Hold) Resign(ctx context.Context, blame bool, because string) error {
	return h.giveBack(ctx, Event{Kind: EventResigned, Text: because}, &znode.Resignation{Blame: blame, Because: because})
}

// giveBack deletes held. e is the event of that. Unless r is nil it tells the assigner in the same transaction that
// this member resigns. If somebody has deleted held by hand, the assigner is told all the same: or else the seat would
// go on to name a member that does not take the duty.
func (h *Hold) giveBack(ctx context.Context, e Event, r *znode.Resignation) (err error) {
	defer resource.Wrapf(&err, "give back %s", h.Duty)
	e.Duty, e.Epoch = h.Duty, h.Epoch
	h.ending.Store(&e)
	for {
		o := h.m.orders()
		ops, err := h.resignOps(r)
		if err != nil {
			return err
		}
		_, err = h.write(ctx, append(ops, zkconn.DeleteOp(h.held(), -1))...)
		err = h.m.removed(err)
		switch {
		case err == nil, errors.Is(err, ErrNotHeld), h.ctx.Err() != nil:
			h.over(context.Canceled)
			<-h.watched
			return h.tellAssigner(ctx, r, err)
		case errors.Is(err, zkconn.ErrUnknown) && h.m.session.Settled(ctx) == nil:
			continue // if it was committed, the next try is refused with ErrNotHeld
		case zkconn.RefusedAt(err, h.m.seat.Path, zkconn.ErrBadVersion): // the assigner has just written it
			select {
			case <-o.changed:
				continue
			case <-h.ctx.Done():
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		h.ending.Store(nil)
		return err
	}
}

func (h *Hold) held() string { return znode.Held(h.m.root, h.m.Generation, h.Duty) }

// What a holder writes below its duty. Every function here is guarded by write: nothing is written by a process that
// does not hold the duty any more.

// deletesAtOnce is how many znodes one transaction deletes at most.
const deletesAtOnce = 100

// writeAgain is write for operations that do no harm if they happen twice: it repeats them after a lost reply.
func (h *Hold) writeAgain(ctx context.Context, ops ...zkconn.Op) (results []zkconn.Result, err error) {
	err = h.m.session.Once(ctx, func() (err error) {
		results, err = h.write(ctx, ops...)
		return err
	}, nil)
	return results, err
}

// make creates a persistent znode, unless it is there.
func (h *Hold) make(ctx context.Context, path string) error {
	_, err := h.writeAgain(ctx, zkconn.CreateOp(path, nil, zkconn.Persistent, h.m.acl))
	if zkconn.RefusedAt(err, path, zkconn.ErrNodeExists) {
		return nil
	}
	return err
}

// setOrCreate is the operation that sets a znode at a version, or creates it if it is not there.
func (h *Hold) setOrCreate(there bool, path string, body []byte, version int32) zkconn.Op {
	if there {
		return zkconn.SetOp(path, body, version)
	}
	return zkconn.CreateOp(path, body, zkconn.Persistent, h.m.acl)
}

// removeTree deletes a znode and everything below it, some at a time. depth is how many levels are below it: more than
// there are does no harm, but costs requests.
func (h *Hold) removeTree(ctx context.Context, at string, depth int) error {
	for {
		paths, err := h.m.leaves(ctx, at, depth, deletesAtOnce, nil)
		if err != nil || len(paths) == 0 {
			return err
		}
		ops := make([]zkconn.Op, len(paths))
		for i, path := range paths {
			ops[i] = zkconn.DeleteOp(path, -1)
		}
		_, err = h.writeAgain(ctx, ops...)
		var refused *zkconn.Error
		switch {
		case err == nil && len(paths) < deletesAtOnce:
			return nil
		case err == nil:
		case !errors.As(err, &refused) || refused.Path != at && !strings.HasPrefix(refused.Path, at+"/"):
			return err
		case errors.Is(err, zkconn.ErrNotEmpty): // somebody created something by hand
			depth++
		case !errors.Is(err, zkconn.ErrNoNode): // else: deleted before its reply was lost
			return err
		}
	}
}

// leaves adds paths of a tree to paths, children before their parents, until there are most. If there are fewer, it has
// all. depth is how many levels are below it; a negative one is not known.
func (m *Member) leaves(ctx context.Context, at string, depth, most int, paths []string) ([]string, error) {
	if depth == 0 {
		return append(paths, at), nil
	}
	names, _, err := m.session.Children(ctx, at)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return paths, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return append(paths, at), nil // the delete will say so
	case err != nil:
		return nil, err
	}
	for _, name := range names {
		if paths, err = m.leaves(ctx, resource.Join(at, name), depth-1, most, paths); err != nil || len(paths) >= most {
			return paths, err
		}
	}
	return append(paths, at), nil
}

// A member that gives up a duty which the assigner gave it tells the assigner so. It writes
//
//	run/<g>/resigned/r-<10>   persistent   sequential
//
// in the transaction that deletes held, or alone if there is none. Both check the seat, so that the assigner has not
// decided since; after it has, the member takes the duty again if its seat still names it.

// resignOps are the operations that tell the assigner; none if r is nil.
func (h *Hold) resignOps(r *znode.Resignation) ([]zkconn.Op, error) {
	if r == nil {
		return nil, nil
	}
	r.Duty = h.Duty
	return h.m.resignOps(*r, h.m.resign(h.Duty))
}

// resignOps are the operations that tell the assigner, unless it has written the seat since this version.
func (m *Member) resignOps(r znode.Resignation, version int32) ([]zkconn.Op, error) {
	r.Seat, r.Identity = m.seat.Name(), m.Identity
	body, err := znode.Encode(r)
	return []zkconn.Op{
		zkconn.CheckOp(m.seat.Path, version),
		zkconn.CreateOp(znode.NewResigned(m.root, m.Generation), body, zkconn.PersistentSequential, m.acl),
	}, err
}

// tellAssigner tells the assigner of a resignation that was not written because held was gone. refused is the error of
// that. If the reply was lost to one that was written, the assigner hears of it twice, or has written the seat.
func (h *Hold) tellAssigner(ctx context.Context, r *znode.Resignation, refused error) error {
	if r == nil || refused == nil || h.m.ctx.Err() != nil {
		return nil
	}
	return h.m.tell(ctx, *r, h.m.resignedAt(h.Duty))
}

// tell tells the assigner, unless it has written the seat since this version. When the membership ends there is nothing
// to tell any more.
func (m *Member) tell(ctx context.Context, r znode.Resignation, version int32) error {
	ops, err := m.resignOps(r, version)
	if err == nil {
		err = m.session.Once(ctx, func() error {
			_, err := m.session.Multi(ctx, append([]zkconn.Op{zkconn.CheckOp(m.seat.Gate(), -1)}, ops...)...)
			return err
		}, nil) // telling it twice does no harm
	}
	if err = m.removed(err); zkconn.RefusedAt(err, m.seat.Path, zkconn.ErrBadVersion) || errors.Is(err, ErrRemoved) {
		return nil
	}
	return err
}

// The causes with which the context of a function that does a duty ends, besides those of the hold.
var (
	// ErrHandOver means that the assigner gave the duty to another member, or that it is paused, no longer declared, or to
	// be stopped. Finish within the group's drain timeout, and return: the next holder waits for that.
	ErrHandOver = errors.New("the duty was given to another member")
	// ErrLeaving means that this process is about to leave. Give it as the cause when you end the context of Lead
	// before you Leave: a duty that is held then goes with the session, without another message to the assigner.
	ErrLeaving = errors.New("this process leaves the group")
)

// Lead does a duty whenever the assigner gives it to this member: it takes the duty and calls f.
//
// The context of f ends when f must stop. Its cause is ErrHandOver, the cause of ctx, or the reason why the duty was
// lost: ErrNotHeld, or the reason why the membership has ended. Until the duty is lost, h can still write after that: h
// has a context of its own. Lead waits for f to return, and then gives the duty back. If f returned before it was asked
// to, Lead resigns: nil is without blame, and any other error is with blame and is the reason that people read.
//
// Lead returns the cause when ctx or the membership ends. It also returns an error if the duty cannot be given back,
// which ends only with the membership then.
func (m *Member) Lead(ctx context.Context, duty string, f func(ctx context.Context, h *Hold) error) error {
	for {
		h, err := m.Take(ctx, duty)
		if err != nil {
			return err
		}
		cause, failed := h.run(ctx, f)
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case h.ctx.Err() != nil: // deleted by hand: the assigner still wants this member to have it
		case cause == nil && failed == nil:
			err = h.Resign(m.ctx, false, "it ended by itself")
		case cause == nil:
			err = h.Resign(m.ctx, true, failed.Error())
		case errors.Is(cause, ErrHandOver):
			err = h.Release(m.ctx)
		case errors.Is(cause, ErrLeaving):
			return cause
		default: // this process does other things, so others should have the duty
			err = h.Resign(m.ctx, false, fmt.Sprintf("it was stopped: %v", cause))
		}
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// run calls f until it returns. cause is why f was asked to stop; nil if it was not.
func (h *Hold) run(ctx context.Context, f func(ctx context.Context, h *Hold) error) (cause, failed error) {
	fctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })()
	defer context.AfterFunc(h.handOver, func() { end(ErrHandOver) })()
	failed = f(fctx, h)
	return context.Cause(fctx), failed
}
