package member

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"muster/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The assigner decides who has which duty. It is the member with the smallest seat of those whose software knows how
// the Record wants duties to be assigned. The others watch the nearest such seat before theirs, and the one before
// that: so the next one knows that it is next, and looks whether the assigner is silent.
//
// Each decision is one transaction, or several if it is large, that writes:
//
//	run/<g>/assigner        set: its memory
//	run/<g>/seat/s-<10>  set: each seat that gets or loses a duty, and each whose member resigned
//	run/<g>/resigned/…   deleted: what was decided upon
//	run/<g>/ask/…        deleted: as above
//
// It checks the gate, the Record and the assigner's own seat, and sets its memory and the seats, at the versions read.
// So what an assigner writes follows from all that was written before: one that was frozen while another one took over
// writes nothing. An assigner that dies leaves what it has committed; the next one reads everything again.

// assignVersion is the newest method of assignment that this software knows.
const assignVersion = 1

// seatQueue orders the seats.
func (m *Member) seatQueue() election.Queue {
	return election.Queue{Dir: znode.Seats(m.root, m.Generation), Prefix: "s-"}
}

// assigner waits until this member is the assigner, and then works until the membership ends, or until the Record wants
// another method.
func (m *Member) assigner() {
	for m.ctx.Err() == nil {
		o := m.orders()
		if o.seat < 0 { // its own seat was not read yet, so it knows nothing of ZooKeeper's time
			select {
			case <-o.changed:
			case <-m.ctx.Done():
			}
			continue
		}
		err := m.assignerOrNot(m.ctx, o.assign)
		switch {
		case err == nil, errors.Is(err, errAgain), errors.Is(err, zkconn.ErrUnknown):
		default:
			m.end(m.removed(err)) // without effect if it has ended
			return
		}
	}
}

// assignerOrNot works as the assigner, or waits until this member may be it.
func (m *Member) assignerOrNot(ctx context.Context, assign int) error {
	at, err := m.place(ctx, assign)
	if err != nil {
		return err
	}
	var silent *silence
	if at.before != "" || m.knows < assign {
		m.emit(Event{Kind: EventAssignerEnded})
		var mine bool
		if mine, silent, err = m.awaitEnd(ctx, at, assign); !mine {
			return err
		}
	}
	m.emit(Event{Kind: EventAssigner})
	return m.serve(ctx, assign, at, silent)
}

// place is where a member stands among those that may be the assigner. Seats that were passed over come last.
type place struct {
	before  string // the nearest seat before it whose member can be the assigner; "": there is none
	earlier string // the nearest such seat before that one; "": that one's member is the assigner
	passed  bool   // its own seat was passed over
	memory  int32  // the version of the assigner's memory
}

// place reads the memory before the seats: a seat that its own one was passed over for is then among them.
func (m *Member) place(ctx context.Context, assign int) (at place, err error) {
	body, stat, err := m.session.Get(ctx, znode.Assigner(m.root, m.Generation))
	if err != nil {
		return at, err
	}
	names, _, err := m.session.Children(ctx, znode.Seats(m.root, m.Generation))
	if err != nil {
		return at, err
	}
	memory, _ := znode.DecodeAssigner(body) // of what cannot be decoded nobody knows anything
	queue := m.seatQueue().InOrder(names)
	slices.SortStableFunc(queue, func(a, b string) int {
		return cmp.Compare(rank(!slices.Contains(memory.Passed, a)), rank(!slices.Contains(memory.Passed, b)))
	})
	own := slices.Index(queue, m.seatName())
	if own < 0 {
		return at, errAgain // the watch of the seat tells
	}
	at.memory = stat.Version
	at.passed = slices.Contains(memory.Passed, m.seatName())
	for _, name := range slices.Backward(queue[:own]) {
		body, _, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			return at, err
		}
		seat, err := znode.Decode[znode.Seat](body)
		switch {
		case err != nil || seat.Assign < assign:
		case at.before == "":
			at.before = name
		default:
			at.earlier = name
			return at, nil
		}
	}
	return at, nil
}

// awaitEnd waits until a seat is gone that decides about this member's place, until the Record wants another method
// than this, or until the assigner is silent. mine says that this member has to take its office: it had the next seat.
func (m *Member) awaitEnd(ctx context.Context, at place, assign int) (mine bool, _ *silence, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var silent chan *silence
	next := at.before != "" && at.earlier == "" && m.knows >= assign
	if next {
		silent = make(chan *silence, 1)
		m.tasks.Go(func() { silent <- m.awaitSilence(ctx, at.before) })
	}
	seats, events := []string{at.before, at.earlier}, make([]<-chan struct{}, 2)
	for {
		for i, seat := range seats {
			if seat == "" || !happened(events[i]) {
				continue
			}
			var there bool
			_, there, events[i], err = m.session.ExistsW(ctx, znode.SeatAt(m.root, m.Generation, seat))
			if err != nil || !there {
				return next && err == nil && !at.passed, nil, err
			}
		}
		o := m.orders()
		if o.assign != assign {
			return false, nil, nil
		}
		select {
		case <-events[0]:
		case <-events[1]:
		case <-o.changed:
		case s := <-silent:
			return s != nil, s, nil
		case <-ctx.Done():
			return false, nil, context.Cause(ctx)
		}
	}
}

// happened reports whether there was an event, or nobody waits for one: a channel stays until its event, so it must not
// be replaced before.
func happened(event <-chan struct{}) bool {
	if event == nil {
		return true
	}
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// office is what the assigner knows. Only its own goroutine uses it.
type office struct {
	m       *Member
	folders [3]folder          // seats, resigned, ask
	seats   map[string]*seated // by the name of the seat
	names   map[int32]string   // of the seats, by number
	wake    chan struct{}      // something has happened that is none of the other events

	memory   znode.AssignerMemory
	stat     zkconn.Stat // of its znode
	resigned map[string]znode.Resignation
	asks     map[string]znode.Ask
	stuck    map[string]bool // inbox entries that cannot be deleted
	also     []zkconn.Op     // what the decision writes besides

	tidied int32                      // the version of the Record for which purge has looked for trees; -1: for none
	held   map[string]<-chan struct{} // duties that are not declared and held: events of held
	kept   map[string]bool            // trees that cannot be deleted

	over *silence // why it takes the office from another; nil: it does not, or has done so

	moreTrees bool // purge has found more than it names

	posts   map[string]post   // by duty: those that are given
	untaken map[string]string // seats by duty: those that the next decision takes away

	zkTime time.Time // ZooKeeper's time at the assigner's last write, or what its member knows of it
	wrote  time.Time // that time here
}

// folder is a folder whose children the assigner reads again after each event.
type folder struct {
	dir   string
	names []string
	event <-chan struct{}

	changed int64 // zxid of when a child was created or deleted last
}

// seated is a seat with its member.
type seated struct {
	seat    znode.Seat
	version int32
	created time.Time       // by ZooKeeper's clock
	present *znode.Present  // nil: not live
	ready   <-chan struct{} // closed when a member changes that is not ready
}

func (m *Member) newOffice() *office {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &office{
		zkTime: m.zkTime, wrote: m.seen,
		m: m, seats: map[string]*seated{}, wake: make(chan struct{}, 1), stuck: map[string]bool{}, tidied: -1,
		held: map[string]<-chan struct{}{}, kept: map[string]bool{},
		folders: [3]folder{
			{dir: znode.Seats(m.root, m.Generation)}, {dir: znode.Resigned(m.root, m.Generation)},
			{dir: znode.Asks(m.root, m.Generation)},
		},
	}
}

// serve is the assigner's work, as long as the Record wants this method.
func (m *Member) serve(ctx context.Context, assign int, at place, over *silence) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what waits for members to become ready
	f := m.newOffice()
	if f.over, f.stat.Version = over, at.memory; over != nil {
		f.stat.Version = over.version
	}
	for {
		o := m.orders()
		if o.assign != assign {
			return nil
		}
		next, err := f.work(ctx, o)
		switch {
		case errors.Is(err, errPassed):
			return nil
		case refusedAt(err, m.recordPath(), zkconn.ErrBadVersion): // wait until it was read
			next = damageCheck
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return err
		}
		if err := f.await(ctx, o, next); err != nil {
			return err
		}
	}
}

// work reads, decides and deletes once. next is when that must be done again, though nothing happens; 0 is never.
func (f *office) work(ctx context.Context, o orders) (next time.Duration, err error) {
	if o.stop {
		f.posts = nil // nobody takes anything then
	}
	if err := f.read(ctx); err != nil || o.stop {
		return 0, err
	}
	if next, err = f.decide(ctx, o); err != nil {
		return 0, err
	}
	look, err := f.findUntaken(ctx, o.group)
	if err != nil {
		return 0, err
	}
	if look > 0 && (next == 0 || look < next) {
		next = look
	}
	return next, f.purge(ctx, o)
}

// await waits for an event, or for next if that is not 0.
func (f *office) await(ctx context.Context, o orders, next time.Duration) error {
	var timer <-chan time.Time
	if next > 0 {
		t := time.NewTimer(next)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-f.folders[0].event:
	case <-f.folders[1].event:
	case <-f.folders[2].event:
	case <-f.wake:
	case <-o.changed:
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// now is ZooKeeper's time.
func (f *office) now() time.Time { return f.zkTime.Add(time.Since(f.wrote)) }
