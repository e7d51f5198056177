// Package member is a process's side of a group: it takes a seat, does what the assigner gives it, and is the assigner
// when its turn comes.
//
// Everything that a member holds ends with a context: the membership with Member.Context, a duty with Hold.Context.
// Every write is guarded by the version of what it depends on, so a process that was replaced cannot write.
//
// The package runs no commands and prints nothing; package wrap does. It does not keep anything exclusive outside of
// ZooKeeper: a machine that was frozen and goes on may still act for a moment. Systems outside fence it by the epoch.
package member

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Member is a live member of a group. It is one until its Context ends.
//
// What holds a group together is deleted by hand only: apply never deletes a group with live members. So there is one
// rule: whoever finds that a part is gone is no member any more, and joins again, which waits for apply to put it back.
// A member watches its live znode, its seat and the Record; it finds the gate and the folders gone when it needs them.
type Member struct {
	Identity   string
	Generation string

	session *zkconn.Session
	acl     []zkconn.ACL
	present znode.Present // as in the live znode
	root    string
	name    string // of the group
	seat    string // path
	knows   int    // the newest method of assignment that it knows: the assigner must know that of the Record
	clock   func() time.Time
	silence time.Duration // the longest that Config allows

	ctx     context.Context // ends with the membership
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup // everything that start has begun
	events  events
	changed chan struct{} // closed, under mu, when one of the following changes

	mu       sync.Mutex
	group    group.Group      // as the Record declares it now
	record   zkconn.Stat      // of the Record
	assign   int              // the method of assignment that the Record wants
	stop     bool             // the members were asked to stop
	given    znode.Seat       // as the assigner wrote it
	version  int32            // of the seat
	resigned map[string]int32 // duty: the version of the seat at which this member resigned
	zkTime   time.Time        // a time that ZooKeeper's clock had passed at seen; see clockRead
	seen     time.Time
}

func newMember(j *join, seat string, acl []zkconn.ACL) *Member {
	m := &Member{
		Identity: j.c.Identity, Generation: j.rec.Generation,
		session: j.s, acl: acl, present: j.present, root: j.c.Root, name: j.c.Group, seat: seat,
		knows: j.knows, assign: group.Assign(&j.rec), group: j.group, changed: make(chan struct{}),
		version: -1, resigned: map[string]int32{},
		silence: cmp.Or(j.c.MaxSilence, math.MaxInt64),
	}
	if m.clock = j.c.Clock; m.clock == nil {
		m.clock = time.Now
	}
	m.ctx, m.end = context.WithCancelCause(j.s.Context())
	return m
}

// Context ends when the membership does. Its cause is ErrSessionLost, ErrRemoved, context.Canceled after Leave, or an
// error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a member needs.
func (m *Member) Context() context.Context { return m.ctx }

// Group is the group as it is declared now.
func (m *Member) Group() group.Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group
}

// start watches in the background until the membership ends.
func (m *Member) start() *Member {
	for path, check := range map[string]func([]byte, zkconn.Stat) error{
		m.live():       m.checkLive,
		m.seat:         m.readSeat,
		m.recordPath(): m.readRecord,
	} {
		m.tasks.Go(func() { m.follow(path, check) })
	}
	m.tasks.Go(m.assigner)
	m.tasks.Go(func() {
		<-m.ctx.Done()
		m.events.close(context.Cause(m.ctx))
	})
	// A process that holds a duty must stop before its session can expire, counted from its last answered request.
	m.tasks.Go(func() { m.session.Probe(m.ctx, m.live()) })
	return m
}

// follow reads a znode now and after each of its events. An error of check ends the membership, and so does the end of
// the znode.
func (m *Member) follow(at string, check func([]byte, zkconn.Stat) error) {
	m.end(m.session.Follow(m.ctx, at, func(body []byte, stat zkconn.Stat, there bool) error {
		if there {
			return check(body, stat)
		}
		return fmt.Errorf("%w: %s is gone", ErrRemoved, at)
	})) // without effect if it has ended
}

// removed ends the membership if err says that a part of the group is gone, and returns why; else it returns err. A
// duty or held that is gone ends only a hold.
func (m *Member) removed(err error) error {
	if errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, ErrNotHeld) {
		err = fmt.Errorf("%w: somebody deleted a part of the group: %w", ErrRemoved, err)
		m.end(err)
	}
	return err
}

// checkLive ends the membership if the live znode is another process's, or if somebody wrote to it by hand: then the
// assigner cannot read what this member can do.
func (m *Member) checkLive(body []byte, stat zkconn.Stat) error {
	if stat.EphemeralOwner != m.session.ID() {
		return fmt.Errorf("%w: another process is %s now", ErrRemoved, m.Identity)
	}
	if p, err := znode.Decode[znode.Present](body); err != nil || p.Nonce != m.present.Nonce {
		return fmt.Errorf("%w: somebody wrote to %s", ErrRemoved, m.live())
	}
	return nil
}

// readSeat reads what the assigner gives this member.
func (m *Member) readSeat(body []byte, stat zkconn.Stat) error {
	seat, err := znode.Decode[znode.Seat](body)
	if err != nil || stat.EphemeralOwner != m.session.ID() || seat.Nonce != m.present.Nonce {
		return fmt.Errorf("%w: somebody wrote to %s", ErrRemoved, m.seat)
	}
	m.clockRead(stat.Mtime)
	m.give(seat, stat.Version)
	return nil
}

// give notes what the assigner has given this member, unless something newer is known.
func (m *Member) give(seat znode.Seat, version int32) {
	var had []string
	news := false
	m.update(func() {
		if version > m.version {
			had, news = m.given.Duties, true
			m.given, m.version = seat, version
		}
	})
	for _, duty := range seat.Duties {
		if _, old := slices.BinarySearch(had, duty); news && !old {
			m.emit(Event{Kind: EventGiven, Duty: duty})
		}
	}
}

// clockRead notes that ZooKeeper's clock has passed at. What is read just after it was written tells most.
func (m *Member) clockRead(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.seen.IsZero() || at.After(m.zkTime.Add(now.Sub(m.seen))) {
		m.zkTime, m.seen = at, now
	}
}

// readRecord reads what is declared. A Record of another generation ends the membership.
func (m *Member) readRecord(body []byte, stat zkconn.Stat) error {
	rec, err := znode.DecodeRecordAt(group.Kind(), resource.Join(m.root, m.name), body)
	switch {
	case err != nil:
		return nil // what it said before holds until somebody mends it
	case rec.Generation != m.Generation:
		return fmt.Errorf("%w: the group was made anew", ErrRemoved)
	}
	m.update(func() {
		m.group, m.record, m.stop = group.Of(&rec), stat, rec.State == resource.StateTerminating
		m.assign = group.Assign(&rec)
	})
	return nil
}

// update changes what mu guards, and wakes all who wait for a change.
func (m *Member) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// orders is what a member has read at one moment.
type orders struct {
	group   group.Group
	record  int32 // version
	edited  int64 // zxid of that
	assign  int
	stop    bool
	duties  []string
	seat    int32           // version
	changed <-chan struct{} // closed when there are newer ones
}

func (m *Member) orders() orders {
	m.mu.Lock()
	defer m.mu.Unlock()
	return orders{
		m.group, m.record.Version, m.record.Mzxid, m.assign, m.stop, m.given.Duties, m.version, m.changed,
	}
}

// has reports whether the assigner gave the duty to this member.
func (o orders) has(duty string) bool {
	_, ok := slices.BinarySearch(o.duties, duty)
	return ok
}

// wants reports whether this member should hold the duty. One that is no longer declared is held by nobody, whatever
// the seat says, because the assigner deletes its tree.
func (o orders) wants(duty string) bool {
	_, declared := o.group.Duty(duty)
	return declared && o.has(duty) && !o.stop
}

// resign notes that the duty is not taken again before the assigner has written the seat. It returns the version of the
// seat.
func (m *Member) resign(duty string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resigned[duty] = m.version
	return m.version
}

// resignedAt is the version of the seat at which this member resigned; -1 if it did not.
func (m *Member) resignedAt(duty string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.resigned[duty]; ok {
		return at
	}
	return -1
}

// Ready makes a member eligible that joined with NotReady. ErrRemoved means that somebody deleted its live znode by
// hand. Ready looks before it writes whether another process has made one since.
func (m *Member) Ready(ctx context.Context) error {
	ready := m.present
	ready.Ready = true
	body, err := znode.Encode(ready)
	if err == nil {
		err = m.session.Once(ctx, func() error {
			now, stat, err := m.session.Get(ctx, m.live())
			if err == nil {
				err = m.checkLive(now, stat)
			}
			if err == nil && !bytes.Equal(now, body) {
				_, err = m.session.Set(ctx, m.live(), body, -1)
			}
			return err
		}, nil)
	}
	return m.removed(err)
}

// StopRequested waits until the members are asked to stop, by terminate. It returns nil then: stop all commands and
// Leave.
func (m *Member) StopRequested(ctx context.Context) error {
	for {
		o := m.orders()
		if o.stop {
			return nil
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
	}
}

// Leave ends the membership: it closes the session, so that the live znode, the seat and every duty go in one
// transaction. Stop all commands before.
func (m *Member) Leave() error {
	m.end(context.Canceled)
	m.tasks.Wait()
	return m.session.Close()
}

// live is the znode that exists while this member is live.
func (m *Member) live() string { return znode.Live(m.root, m.name, m.Identity) }

func (m *Member) gate() string { return znode.Gate(m.root, m.Generation) }

func (m *Member) recordPath() string { return znode.Record(group.KindName, m.root, m.name) }

// seatName is the name of this member's seat.
func (m *Member) seatName() string { return path.Base(m.seat) }

// Declared yields the group as it is declared now, and again whenever that may have changed, until ctx or the
// membership ends.
func (m *Member) Declared(ctx context.Context) iter.Seq[group.Group] {
	return func(yield func(group.Group) bool) {
		for ctx.Err() == nil && m.ctx.Err() == nil {
			o := m.orders()
			if !yield(o.group) {
				return
			}
			select {
			case <-o.changed:
			case <-ctx.Done():
			case <-m.ctx.Done():
			}
		}
	}
}
