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
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-version"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/seat"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Member is a live member of a group. It is one until its Context ends.
//
// A member watches its live znode, its seat and the Record; it finds the gate and the folders gone when it needs them.
// Who finds a part gone is no member any more, see package seat.
type Member struct {
	Identity   string
	Generation string

	seat    *seat.Seat
	session *zkconn.Session // of the seat, as is the ACL
	acl     []zkconn.ACL
	present znode.Present // as in the live znode
	root    string
	knows   int // the newest method of assignment that it knows: the assigner must know that of the Record
	clock   func() time.Time
	silence time.Duration // the longest that Config allows

	ctx    context.Context // ends with the membership
	events events

	mu       sync.Mutex
	now      orders
	resigned map[string]int32 // duty: the version of the seat at which this member resigned
	zkTime   time.Time        // a time that ZooKeeper's clock had passed at seen; see clockRead
	seen     time.Time
}

func newMember(c Config, taken *seat.Seat, rec *resource.Record, knows int, present znode.Present) *Member {
	m := &Member{
		Identity: c.Identity, Generation: taken.Generation,
		seat: taken, session: taken.Session, acl: taken.ACL, ctx: taken.Context(), present: present, root: c.Root,
		knows: knows, resigned: map[string]int32{}, silence: cmp.Or(c.MaxSilence, math.MaxInt64),
		now: orders{group: group.Of(rec), assign: group.Assign(rec), seat: -1, changed: make(chan struct{})},
	}
	if m.clock = c.Clock; m.clock == nil {
		m.clock = time.Now
	}
	return m
}

// Context ends when the membership does. Its cause is ErrSessionLost, ErrRemoved, context.Canceled after Leave, or an
// error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a member needs.
func (m *Member) Context() context.Context { return m.ctx }

// Group is the group as it is declared now.
func (m *Member) Group() group.Group { return m.orders().group }

// start watches in the background until the membership ends.
func (m *Member) start() *Member {
	m.seat.Watch(m.checkLive, m.readSeat, m.readRecord)
	m.seat.Go(m.assigner)
	context.AfterFunc(m.ctx, func() { m.events.close(context.Cause(m.ctx)) })
	return m
}

// removed ends the membership if err says that a part of the group is gone, and returns why; else it returns err. A
// duty or held that is gone ends only a hold.
func (m *Member) removed(err error) error {
	if errors.Is(err, ErrNotHeld) {
		return err
	}
	return m.seat.Removed(err)
}

// checkLive ends the membership if somebody wrote to the live znode by hand: then the assigner cannot read what this
// member can do.
func (m *Member) checkLive(body []byte, _ zkconn.Stat) error {
	if p, err := znode.Decode[znode.Present](body); err != nil || p.Nonce != m.present.Nonce {
		return fmt.Errorf("%w: somebody wrote to %s", ErrRemoved, m.seat.Live())
	}
	return nil
}

func (m *Member) readSeat(body []byte, stat zkconn.Stat) error {
	own, err := znode.Decode[znode.Seat](body)
	if err != nil || own.Nonce != m.present.Nonce {
		return fmt.Errorf("%w: somebody wrote to %s", ErrRemoved, m.seat.Path)
	}
	m.clockRead(stat.Mtime)
	m.give(own, stat.Version)
	return nil
}

// give notes what the assigner has given this member, unless something newer is known.
func (m *Member) give(seat znode.Seat, version int32) {
	had := seat.Duties
	m.update(func() {
		if version > m.now.seat {
			had = m.now.duties
			m.now.duties, m.now.seat = seat.Duties, version
		}
	})
	for _, duty := range seat.Duties {
		if _, old := slices.BinarySearch(had, duty); !old {
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

func (m *Member) readRecord(rec resource.Record, stat zkconn.Stat) {
	m.update(func() {
		m.now.group, m.now.record, m.now.edited = group.Of(&rec), stat.Version, stat.Mzxid
		m.now.assign, m.now.stop = group.Assign(&rec), rec.State == resource.StateTerminating
	})
}

// update changes what mu guards, and wakes all who wait for a change.
func (m *Member) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.now.changed)
	m.now.changed = make(chan struct{})
}

// orders is what a member has read at one moment.
type orders struct {
	group   group.Group   // as the Record declares it
	record  int32         // version of the Record
	edited  int64         // zxid of that
	assign  int           // the method of assignment that the Record wants
	stop    bool          // the members were asked to stop
	duties  []string      // that the assigner has given to this member
	seat    int32         // version of the seat
	changed chan struct{} // closed when there are newer ones
}

func (m *Member) orders() orders {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// wants reports whether this member should hold the duty. One that is no longer declared is held by nobody, whatever
// the seat says, because the assigner deletes its tree.
func (o orders) wants(duty string) bool {
	_, declared := o.group.Duty(duty)
	_, given := slices.BinarySearch(o.duties, duty)
	return declared && given && !o.stop
}

// resign notes that the duty is not taken again before the assigner has written the seat. It returns the version of the
// seat.
func (m *Member) resign(duty string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resigned[duty] = m.now.seat
	return m.now.seat
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
			now, stat, err := m.session.Get(ctx, m.seat.Live())
			if err == nil {
				err = m.checkLive(now, stat)
			}
			if err == nil && !bytes.Equal(now, body) {
				_, err = m.session.Set(ctx, m.seat.Live(), body, -1)
			}
			return err
		}, nil)
	}
	return m.removed(err)
}

// StopRequested waits until the members are asked to stop, by terminate. It returns nil then: stop all commands and
// Leave.
func (m *Member) StopRequested(ctx context.Context) error { return m.seat.StopRequested(ctx) }

// Leave ends the membership: it closes the session, so that the live znode, the seat and every duty go in one
// transaction. Stop all commands before.
func (m *Member) Leave() error { return m.seat.Leave() }

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

// Config says who joins what.
type Config struct {
	Root, Group string
	Identity    string // the name of this process; see worker.Identify
	Version     string // of the application
	Address     string // host:port at which followers reach it; may be empty
	// Can are the duties that it can do. Take or Lead each of them all the time: one that is given and not taken within
	// the session timeout of the group goes to another member, with blame.
	Can      []string
	NotReady bool // it is given nothing until Ready
	FailHeld bool // do not wait for the end of another process that holds the identity: ErrHeld
	// MaxSilence, unless 0, is a limit of the session's Silence: past it the member takes no duty and claims no tick. Who
	// sets it ends the membership then.
	MaxSilence time.Duration
	// Clock is the time by which the ticks of crons fall due; nil is time.Now. Tests set it.
	Clock func() time.Time
	// Waiting, unless nil, is called when Join begins to wait: for what. It is called again when Join waits for
	// something else.
	Waiting func(what string)
}

// The errors of Join, besides those of the session.
var (
	// ErrNoGroup means that nobody created the group in time. Apply it, or check its name and root.
	ErrNoGroup = errors.New("no such group")
	// ErrVersion means that the version of this process is not one. Give it another.
	ErrVersion = errors.New("not a version")
	// The others say what they mean in package seat.
	ErrNotOpen = seat.ErrNotOpen
	ErrHeld    = seat.ErrHeld
	ErrUnknown = seat.ErrUnknown
)

// The errors with which a membership or a duty ends.
var (
	// The first two say what they mean in package seat.
	ErrSessionLost = seat.ErrSessionLost
	ErrRemoved     = seat.ErrRemoved
	// ErrNotHeld means that this process does not hold the duty any more. Nothing was written.
	ErrNotHeld = errors.New("this process does not hold the duty")
)

// errAgain means that what was read has changed: start again from what it depends on.
var errAgain = seat.ErrAgain

// damageCheck is how long to wait for what is not as it was read.
const damageCheck = 5 * time.Second

// Join makes the process behind s a member of the group.
//
// While the group does not exist, or another process holds the identity, Join waits: until ctx's deadline, or without
// one for the group's join timeout. The error then wraps the reason and context.DeadlineExceeded.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Member, error) {
	if err := znode.CheckIdentity(c.Identity); err != nil {
		return nil, err
	}
	if _, err := version.NewVersion(c.Version); err != nil {
		return nil, fmt.Errorf("%w: %q: write one such as 2.1.0", ErrVersion, c.Version)
	}
	can := slices.Clone(c.Can)
	slices.Sort(can)
	return joinKnowing(ctx, s, c, assignVersion, znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Address: c.Address, Can: slices.Compact(can), Ready: !c.NotReady,
	})
}

// joinKnowing is Join for software that knows the methods of assignment up to knows.
func joinKnowing(ctx context.Context, s *zkconn.Session, c Config, knows int, present znode.Present) (*Member, error) {
	live, err := znode.Encode(present)
	if err != nil {
		return nil, err
	}
	own, err := znode.Encode(znode.Seat{Identity: c.Identity, Nonce: present.Nonce, Assign: knows})
	if err != nil {
		return nil, err
	}
	j := seat.Join{Session: s, Begun: time.Now(), Config: seat.Config{
		Default: group.Default(), Root: c.Root, Name: c.Group, Identity: c.Identity, Folders: znode.GroupFolders(),
		NoRecord: ErrNoGroup, FailHeld: c.FailHeld, Waiting: c.Waiting,
	}}
	for {
		if err = j.Read(ctx); err == nil {
			var taken *seat.Seat
			if taken, err = j.Take(ctx, live, own); err == nil {
				return newMember(c, taken, &j.Record, knows, present).start(), nil
			}
		}
		if !errors.Is(err, errAgain) {
			return nil, fmt.Errorf("join %s as %s: %w", resource.Join(c.Root, c.Group), c.Identity, err)
		}
	}
}
