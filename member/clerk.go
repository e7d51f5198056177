package member

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The clerk decides who has which duty. It is the member with the smallest seat of those whose software knows how the
// Record wants duties to be assigned. The others watch the nearest such seat before theirs.
//
// Each decision is one transaction, or several if it is large, that writes:
//
//	run/<g>/clerk        set: its memory
//	run/<g>/seat/s-<10>  set: each seat that gets or loses a duty, and each whose member resigned
//	run/<g>/resigned/…   deleted: what was decided upon
//	run/<g>/ask/…        deleted: as above
//
// It checks the gate, the Record, and the clerk's own seat. Everything is set at the version read, so that a duty is
// never in two seats, and a clerk that was frozen while another one took over writes nothing. A clerk that dies leaves
// what it has committed; the next one reads everything again.

// assignVersion is the newest method of assignment that this software knows.
const assignVersion = 1

// seatQueue orders the seats.
func (m *Member) seatQueue() election.Queue {
	return election.Queue{Dir: znode.Seats(m.root, m.Generation), Prefix: "s-"}
}

// clerk waits until this member is the clerk, and then works until the membership ends.
func (m *Member) clerk() {
	for m.ctx.Err() == nil {
		before, err := m.seatBefore(m.ctx)
		if err == nil && before == "" {
			m.emit(Event{Kind: EventClerk})
			err = m.serve(m.ctx)
		} else if err == nil {
			m.emit(Event{Kind: EventClerkEnded, Text: before + " is the clerk"})
			err = m.awaitEnd(m.ctx, before)
		}
		switch {
		case err == nil, errors.Is(err, errAgain), errors.Is(err, zkconn.ErrUnknown):
		case errors.Is(err, zkconn.ErrNoNode): // somebody deleted a part of the group by hand
			<-after(m.ctx, damageCheck)
		default:
			m.end(err) // without effect if it has ended
			return
		}
	}
}

// seatBefore is the nearest earlier seat whose member can be the clerk; "" if there is none.
func (m *Member) seatBefore(ctx context.Context) (string, error) {
	names, _, err := m.session.Children(ctx, znode.Seats(m.root, m.Generation))
	if err != nil {
		return "", err
	}
	queue := m.seatQueue().InOrder(names)
	at := slices.Index(queue, m.seatName())
	if at < 0 {
		return "", errAgain // the watch of the seat tells
	}
	for _, name := range slices.Backward(queue[:at]) {
		body, _, err := m.session.Get(ctx, znode.SeatAt(m.root, m.Generation, name))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			return "", err
		}
		if seat, err := znode.DecodeSeat(body); err == nil && seat.Assign >= m.assign() {
			return name, nil
		}
	}
	return "", nil
}

// assign is the method of assignment that the Record wants.
func (m *Member) assign() int { return assignVersion }

// awaitEnd waits until a seat is gone.
func (m *Member) awaitEnd(ctx context.Context, seat string) error {
	for {
		_, there, event, err := m.session.ExistsW(ctx, znode.SeatAt(m.root, m.Generation, seat))
		if err != nil || !there {
			return err
		}
		select {
		case <-event:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// office is what the clerk knows. Only its own goroutine uses it.
type office struct {
	m     *Member
	seats map[string]*seated // by the name of the seat
	wake  chan struct{}      // a member has become ready

	memory   znode.ClerkMemory
	version  int32 // of clerk
	resigned map[string]znode.Resignation
	asks     map[string]znode.Ask
	broken   []string // inbox entries that cannot be read: paths

	zkTime time.Time // ZooKeeper's time at the clerk's last write
	wrote  time.Time // that time here
}

// seated is a seat with its member.
type seated struct {
	seat    znode.Seat
	version int32
	created time.Time       // by ZooKeeper's clock
	present *znode.Present  // nil: not live
	ready   <-chan struct{} // closed when a member changes that is not ready
}

// serve is the clerk's work.
func (m *Member) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what waits for members to become ready
	f := &office{m: m, seats: map[string]*seated{}, wake: make(chan struct{}, 1)}
	if err := f.begin(ctx); err != nil {
		return err
	}
	for {
		o := m.orders()
		events, err := f.read(ctx)
		if err != nil {
			return err
		}
		var next time.Duration
		if !o.stop {
			next, err = f.decide(ctx, o)
			if errors.Is(err, errAgain) {
				continue
			}
			if err != nil {
				return err
			}
		}
		var timer <-chan time.Time
		if next > 0 {
			t := time.NewTimer(next)
			defer t.Stop()
			timer = t.C
		}
		select {
		case <-events[0]:
		case <-events[1]:
		case <-events[2]:
		case <-f.wake:
		case <-o.changed:
		case <-timer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// now is ZooKeeper's time.
func (f *office) now() time.Time { return f.zkTime.Add(time.Since(f.wrote)) }

// begin writes clerk as it is, to learn ZooKeeper's time.
func (f *office) begin(ctx context.Context) error {
	at := znode.Clerk(f.m.root, f.m.Generation)
	body, stat, err := f.m.session.Get(ctx, at)
	if err != nil {
		return err
	}
	sent := time.Now()
	stat, err = f.m.session.Set(ctx, at, body, stat.Version)
	if errors.Is(err, zkconn.ErrBadVersion) {
		return errAgain
	}
	f.zkTime, f.wrote = stat.Mtime, sent
	return err
}
