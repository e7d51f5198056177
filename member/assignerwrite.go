package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/member/roster"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Limits of one transaction of the assigner.
const (
	maxSeats = 500       // seats that it writes
	maxBytes = 200 << 10 // of their bodies
)

// write writes a roster: nothing, if all is as before and there was nothing to decide upon. old is the memory as it
// was read.
func (f *office) write(
	ctx context.Context, o orders, r roster.Roster, old znode.AssignerMemory, answered answers,
) error {
	holders := map[string]string{} // by duty: names of seats
	f.memory.Pins, f.memory.Newest, f.memory.Why = znode.ByDuty{}, znode.ByDuty{}, znode.ByDuty{}
	f.memory.Size = r.Size
	outdated := false // the reason why a duty is vacant
	for _, p := range r.Posts {
		if p.Seat != roster.Nobody {
			holders[p.Duty] = f.names[p.Seat]
		}
		f.memory.Why[p.Duty] = p.Because()
		why, ok := old.Why[p.Duty]
		switch {
		case p.Seat == roster.Nobody:
			outdated = outdated || why != p.Because()
		case ok && p.Seat == p.Last:
			f.memory.Why[p.Duty] = why // why it came to its holder
		}
	}
	for d, n := range r.Pins {
		f.memory.Pins[d] = f.names[n]
	}
	f.memory.HandOver = znode.ByDuty{}
	for d, n := range r.HandOver {
		f.memory.HandOver[d] = f.names[n]
	}
	for d, v := range r.Newest {
		f.memory.Newest[d] = v.Original()
	}
	moves := f.moves(holders)
	if len(moves)+len(f.resigned)+len(f.asks) == 0 && !outdated && remembersSame(old, f.memory) && !f.undecided(o) {
		return nil
	}
	// The first transaction has all that answers somebody: an assigner that dies after it leaves nothing half decided.
	slices.SortStableFunc(moves, func(a, b move) int {
		return cmp.Compare(rank(answered.duties[a.duty]), rank(answered.duties[b.duty]))
	})
	ops := f.also
	for _, path := range slices.Concat(slices.Sorted(maps.Keys(f.resigned)), slices.Sorted(maps.Keys(f.asks))) {
		ops = append(ops, zkconn.DeleteOp(path, -1))
	}
	for part := maps.Clone(answered.seats); ; part = map[string]bool{} {
		moves = f.apply(moves, part)
		if err := f.commit(ctx, o, slices.Sorted(maps.Keys(part)), ops); err != nil || len(moves) == 0 {
			return err
		}
		ops = nil
	}
}

// rank is 0 for what comes first.
func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// remembersSame reports whether b is as a, except for the reasons.
func remembersSame(a, b znode.AssignerMemory) bool {
	same := a.Size == b.Size && slices.Equal(a.Passed, b.Passed) && slices.Equal(a.Purge, b.Purge)
	same = same && maps.Equal(a.Pins, b.Pins) && maps.Equal(a.HandOver, b.HandOver)
	same = same && maps.Equal(a.Newest, b.Newest) && maps.Equal(a.Paused, b.Paused)
	return same && maps.EqualFunc(a.Failures, b.Failures, maps.Equal[map[string]znode.Failure])
}

// move is a duty that gets another holder. One of the seats may be "".
type move struct{ duty, from, to string }

// moves is what must change so that the holders are these, by duty.
func (f *office) moves(holders map[string]string) []move {
	from := map[string]string{}
	for name, s := range f.seats {
		for _, d := range s.seat.Duties {
			from[d] = name
		}
	}
	all := maps.Clone(from)
	maps.Copy(all, holders)
	var ms []move
	for _, d := range slices.Sorted(maps.Keys(all)) {
		if from[d] != holders[d] {
			ms = append(ms, move{d, from[d], holders[d]})
		}
	}
	return ms
}

// apply changes seats by as many of the moves as fit into one transaction. It notes these seats in changed, and returns
// the other moves. A duty leaves its old seat and comes to its new one in one transaction.
func (f *office) apply(moves []move, changed map[string]bool) (rest []move) {
	size := 0
	for i, m := range moves {
		if len(changed) > maxSeats-2 || size > maxBytes {
			return moves[i:]
		}
		for _, name := range []string{m.from, m.to} {
			s := f.seats[name]
			if s == nil {
				continue // "", or a member that has gone
			}
			if !changed[name] {
				changed[name] = true
				size += s.size()
			}
			s.seat.Duties = slices.DeleteFunc(slices.Clone(s.seat.Duties), func(d string) bool { return d == m.duty })
			if name == m.to {
				at, _ := slices.BinarySearch(s.seat.Duties, m.duty)
				s.seat.Duties = slices.Insert(s.seat.Duties, at, m.duty)
				size += len(m.duty) + 3
			}
		}
	}
	return nil
}

// size is about the number of bytes of the seat's body.
func (s *seated) size() int {
	n := 200 + len(s.seat.Identity)
	for _, d := range s.seat.Duties {
		n += len(d) + 3
	}
	return n
}

// commit writes these seats and the assigner's memory in one transaction, with more. If it fails, everything must be
// read again.
func (f *office) commit(ctx context.Context, o orders, seats []string, more []zkconn.Op) error {
	m := f.m
	body, err := znode.EncodeAssigner(f.memory)
	if err != nil {
		return err
	}
	ops, err := f.guards(o, slices.Contains(seats, m.seatName()))
	if err != nil {
		return err
	}
	assignerAt := len(ops)
	ops = append(ops, zkconn.SetOp(znode.Assigner(m.root, m.Generation), body, f.stat.Version))
	for _, name := range seats {
		s := f.seats[name]
		body, err := znode.Encode(s.seat)
		if err != nil {
			return err
		}
		ops = append(ops, zkconn.SetOp(znode.SeatAt(m.root, m.Generation, name), body, s.version))
	}
	ops = append(ops, more...)
	sent := time.Now()
	results, err := m.session.Multi(ctx, ops...)
	if err != nil {
		for _, name := range seats {
			delete(f.seats, name) // read them again
		}
		return f.failed(ctx, err)
	}
	stat := results[assignerAt].Stat
	f.zkTime, f.wrote, f.stat = stat.Mtime, sent, stat
	f.tookOffice()
	for i, name := range seats {
		f.seats[name].version = results[assignerAt+1+i].Stat.Version
		if name == m.seatName() { // it need not wait for the watch
			m.give(f.seats[name].seat, f.seats[name].version)
		}
	}
	return nil
}

// guards are the checks of every transaction of the assigner. Without own they have its seat: a transaction may not
// check and set the same znode at one version.
func (f *office) guards(o orders, own bool) ([]zkconn.Op, error) {
	m := f.m
	seat := f.seats[m.seatName()]
	if seat == nil {
		return nil, fmt.Errorf("%w: %s is gone", ErrRemoved, m.seat)
	}
	ops := []zkconn.Op{
		zkconn.CheckOp(m.gate(), -1),
		zkconn.CheckOp(m.recordPath(), o.record),
	}
	if !own {
		ops = append(ops, zkconn.CheckOp(m.seat, seat.version))
	}
	return ops, nil
}

// failed says what to do after a transaction failed. What was read has changed, or may have.
func (f *office) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		if settle := f.m.session.Settled(ctx); settle != nil {
			return fmt.Errorf("%w: %w", settle, err)
		}
	case refusedAt(err, f.m.gate(), zkconn.ErrNoNode),
		refusedAt(err, f.m.recordPath(), zkconn.ErrNoNode),
		refusedAt(err, znode.Assigner(f.m.root, f.m.Generation), zkconn.ErrNoNode),
		refusedAt(err, f.m.seat, zkconn.ErrNoNode):
		return err // somebody deleted it by hand
	case errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNotEmpty):
	default:
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}
