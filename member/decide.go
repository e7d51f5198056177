package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-version"

	"muster/member/roster"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// decide makes the best roster and writes what is different. next is when it must be made again, though nothing
// happens; 0 is never.
func (f *office) decide(ctx context.Context, o orders) (next time.Duration, err error) {
	old := f.memory
	f.memory, f.also = clone(old), nil
	f.forgetGone(o.group)
	f.takeOffice()
	in := f.input(o.group)
	answered := f.takeIn(o.group, &in)
	if err := f.decideCrons(ctx, o.group, old); err != nil {
		return 0, err
	}
	r := roster.Assign(in)
	untaken := f.untaken
	f.untaken = nil
	if err := f.write(ctx, o, r, old, answered); err != nil {
		return 0, err
	}
	for d, seat := range untaken {
		if s := f.seats[seat]; s != nil {
			f.m.emit(Event{Kind: EventNotTaken, Duty: d, Text: s.seat.Identity + ": " + notTaken(o.group)})
		}
	}
	return r.Next, nil
}

// input is what a roster follows from, without what the inboxes say.
func (f *office) input(g group.Group) roster.Input {
	in := roster.Input{
		Settle: time.Duration(g.Settle), Size: f.memory.Size, Enough: g.PromoteAfter.Members,
		Holders: map[string]int32{}, Pins: seatNumbers(f.memory.Pins), HandOver: seatNumbers(f.memory.HandOver),
		Newest: map[string]*version.Version{}, Paused: map[string]bool{},
		Failures: map[string]map[int32]int{}, Backoff: map[string]map[int32]time.Duration{},
	}
	for _, d := range g.Duties {
		// The Record was checked when it was read: its constraints are valid.
		fits, _ := version.NewConstraint(d.Versions)
		in.Duties = append(in.Duties, roster.Duty{
			Name: d.Name, Versions: fits, Newest: d.Prefer == group.Newest, Leader: d.Type == group.Leader,
		})
	}
	for name, s := range f.seats {
		n, _ := znode.SeatNumber(name) // readSeats has left out other names
		m := roster.Member{Seat: n, Age: f.now().Sub(s.created)}
		if p := s.present; p != nil {
			m.Version, _ = version.NewVersion(p.Version) // nil is older than every other
			m.Can, m.Ready = p.Can, p.Ready
		}
		in.Members = append(in.Members, m)
		for _, d := range s.seat.Duties {
			in.Holders[d] = n
		}
	}
	for d, text := range f.memory.Newest {
		if v, err := version.NewVersion(text); err == nil {
			in.Newest[d] = v
		}
	}
	for d := range f.memory.Paused {
		in.Paused[d] = true
	}
	for _, d := range f.memory.Purge { // declared again: its holder must find nothing of what was there before
		in.Paused[d] = true
	}
	return in
}

func seatNumbers(names znode.ByDuty) map[string]int32 {
	numbers := map[string]int32{}
	for d, name := range names {
		if n, err := znode.SeatNumber(name); err == nil {
			numbers[d] = n
		}
	}
	return numbers
}

// seatNames is the reverse of seatNumbers.
func (f *office) seatNames(numbers map[string]int32) znode.ByDuty {
	names := znode.ByDuty{}
	for d, n := range numbers {
		names[d] = f.names[n]
	}
	return names
}

// answers is what the inboxes say about seats and duties: all of it is written in one transaction.
type answers struct {
	seats  map[string]bool // whose members resigned: they wait until their seat is written
	duties map[string]bool
}

// takeIn changes the assigner's memory and in as the inboxes say.
func (f *office) takeIn(g group.Group, in *roster.Input) answers {
	answered := answers{map[string]bool{}, map[string]bool{}}
	for _, path := range slices.Sorted(maps.Keys(f.resigned)) {
		r := f.resigned[path]
		n, _ := znode.SeatNumber(r.Seat) // checked when it was read
		if f.seats[r.Seat] == nil {
			continue // its member has gone
		}
		answered.seats[r.Seat], answered.duties[r.Duty] = true, true
		if holder, ok := in.Holders[r.Duty]; ok && holder == n {
			delete(in.Holders, r.Duty)
		}
		if _, declared := g.Duty(r.Duty); declared {
			f.remember(r)
		}
	}
	for d, seat := range f.untaken {
		if n, holds := in.Holders[d]; !holds || f.names[n] != seat {
			continue
		}
		delete(in.Holders, d)
		f.remember(znode.Resignation{Seat: seat, Duty: d, Blame: true, Because: notTaken(g)})
	}
	for _, path := range slices.Sorted(maps.Keys(f.asks)) {
		a := f.asks[path]
		if _, declared := g.Duty(a.Duty); declared {
			f.obey(a, in)
			answered.duties[a.Duty] = true
		}
	}
	for d, bySeat := range f.memory.Failures {
		in.Failures[d], in.Backoff[d] = map[int32]int{}, map[int32]time.Duration{}
		for seat, failure := range bySeat {
			n, _ := znode.SeatNumber(seat)
			in.Failures[d][n] = failure.Count
			if wait := time.UnixMilli(failure.Until).Sub(f.now()); wait > 0 {
				in.Backoff[d][n] = wait
			}
		}
	}
	return answered
}

// maxReason is how much of a reason the assigner remembers, in bytes.
const maxReason = 200

// remember notes that a member gave a duty up: it waits before it can get it again, longer each time.
func (f *office) remember(r znode.Resignation) {
	if f.memory.Failures[r.Duty] == nil {
		f.memory.Failures[r.Duty] = map[string]znode.Failure{}
	}
	failure := f.memory.Failures[r.Duty][r.Seat]
	failure.Tries++
	if r.Blame {
		failure.Count++
	}
	failure.Until = f.now().Add(ticks.Delay(failure.Tries)).UnixMilli()
	failure.Because = text.Shorten(r.Because, maxReason)
	f.memory.Failures[r.Duty][r.Seat] = failure
}

// obey does what an operator asks for. A request about a member that has gone has no effect.
func (f *office) obey(a znode.Ask, in *roster.Input) {
	switch a.Do {
	case znode.AskPause:
		f.memory.Paused[a.Duty], in.Paused[a.Duty] = text.Shorten(a.By, maxReason), true
	case znode.AskResume:
		delete(f.memory.Paused, a.Duty)
		delete(in.Paused, a.Duty)
	case znode.AskUnpin:
		delete(in.Pins, a.Duty)
	case znode.AskHandover:
		if a.To == "" {
			delete(in.Pins, a.Duty)
			if n, ok := in.Holders[a.Duty]; ok {
				in.HandOver[a.Duty] = n
			}
			return
		}
		for name, s := range f.seats {
			if s.seat.Identity == a.To && s.present != nil {
				in.Pins[a.Duty], _ = znode.SeatNumber(name)
			}
		}
	}
}

// forgetGone forgets the failures of members that have gone, and everything about duties that are not declared.
func (f *office) forgetGone(g group.Group) {
	gone := func(d string) bool { _, declared := g.Duty(d); return !declared }
	maps.DeleteFunc(f.memory.Paused, func(d, _ string) bool { return gone(d) })
	for d, bySeat := range f.memory.Failures {
		maps.DeleteFunc(bySeat, func(seat string, _ znode.Failure) bool { return gone(d) || f.seats[seat] == nil })
		if len(bySeat) == 0 {
			delete(f.memory.Failures, d)
		}
	}
}

// clone is a copy of c whose maps can be changed.
func clone(c znode.AssignerMemory) znode.AssignerMemory {
	c.Pins, c.Newest, c.Paused = maps.Clone(c.Pins), maps.Clone(c.Newest), maps.Clone(c.Paused)
	if c.Paused == nil {
		c.Paused = znode.ByDuty{}
	}
	failures := map[string]map[string]znode.Failure{}
	for d, bySeat := range c.Failures {
		failures[d] = maps.Clone(bySeat)
	}
	c.Failures = failures
	return c
}

// decideCrons notes which cursors the decision sets: when a pause ends, to now, in the transaction that ends it. What
// fell due meanwhile is forgotten. old is the memory as it was read.
func (f *office) decideCrons(ctx context.Context, g group.Group, old znode.AssignerMemory) error {
	for _, d := range g.Duties {
		_, was := old.Paused[d.Name]
		if _, is := f.memory.Paused[d.Name]; d.Type == group.Cron && was && !is {
			if err := f.resumeCron(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// resumeCron sets the cursor of a cron whose pause ends. There is none if nobody has had it.
func (f *office) resumeCron(ctx context.Context, d group.Duty) (err error) {
	defer resource.Wrapf(&err, "cursor of %s", d.Name)
	at := znode.Cursor(f.m.root, f.m.Generation, d.Name)
	body, stat, there, err := zkconn.IfThere(f.m.session.Get(ctx, at))
	if err != nil || !there {
		return err
	}
	cursor, err := znode.Decode[znode.TickCursor](body)
	if err != nil {
		return nil // the holder treats it as that of an edited schedule
	}
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	if err != nil {
		return err
	}
	resumed := ticks.Cron{Schedule: sched}.Resume(ticks.Cursor(cursor), f.now())
	if body, err = znode.Encode(znode.TickCursor(resumed)); err != nil {
		return err
	}
	f.also = append(f.also, zkconn.SetOp(at, body, stat.Version))
	return nil
}

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
	f.memory.Pins, f.memory.HandOver, f.memory.Size = f.seatNames(r.Pins), f.seatNames(r.HandOver), r.Size
	f.memory.Newest, f.memory.Why = znode.ByDuty{}, znode.ByDuty{}
	outdated := false // the reason why a duty is vacant
	for _, p := range r.Posts {
		f.memory.Why[p.Duty] = p.Because()
		why, ok := old.Why[p.Duty]
		switch {
		case p.Seat == roster.Nobody:
			outdated = outdated || why != p.Because()
		case ok && p.Seat == p.Last:
			f.memory.Why[p.Duty] = why // why it came to its holder
		}
	}
	for d, v := range r.Newest {
		f.memory.Newest[d] = v.Original()
	}
	moves := f.moves(f.seatNames(r.Holders()))
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
func (f *office) moves(holders znode.ByDuty) []move {
	from := znode.ByDuty{}
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
	ops, err := f.guards(o, slices.Contains(seats, m.seat.Name()))
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
		if name == m.seat.Name() { // it need not wait for the watch
			m.give(f.seats[name].seat, f.seats[name].version)
		}
	}
	return nil
}

// guards are the checks of every transaction of the assigner. Without own they have its seat: a transaction may not
// check and set the same znode at one version.
func (f *office) guards(o orders, own bool) ([]zkconn.Op, error) {
	m := f.m
	seat := f.seats[m.seat.Name()]
	if seat == nil {
		return nil, fmt.Errorf("%w: %s is gone", ErrRemoved, m.seat.Path)
	}
	ops := []zkconn.Op{
		zkconn.CheckOp(m.seat.Gate(), -1),
		zkconn.CheckOp(m.seat.RecordPath(), o.record),
	}
	if !own {
		ops = append(ops, zkconn.CheckOp(m.seat.Path, seat.version))
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
	case !zkconn.PreconditionFailed(err),
		zkconn.RefusedAt(err, f.m.seat.Gate(), zkconn.ErrNoNode), // by hand, as those below
		zkconn.RefusedAt(err, f.m.seat.RecordPath(), zkconn.ErrNoNode),
		zkconn.RefusedAt(err, znode.Assigner(f.m.root, f.m.Generation), zkconn.ErrNoNode),
		zkconn.RefusedAt(err, f.m.seat.Path, zkconn.ErrNoNode):
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}

// The assigner deletes what is left of duties that are no longer declared: their saved state, ticks and operations.
// That is, in transactions that all check the gate, the Record and the assigner's own seat:
//
//	run/<g>/assigner       set: purge names the duty
//	run/<g>/duty/<d>/…  deleted, children first, in batches
//	run/<g>/assigner       set: purge no longer names it
//
// The first is written only after the Record was read without the duty, no seat has it, and held is not there. Nobody
// can take a duty that the Record does not declare, so from then on nobody holds it. While purge names a duty, the
// assigner gives it to nobody, also if it is declared again: its holder would find a part of what was there. An
// assigner that dies in between leaves purge, and the next one goes on.

// purgeBatch is how many znodes one transaction deletes.
const purgeBatch = 200

// maxTrees is how many duties purge names at a time: the assigner's memory has room for that many names.
const maxTrees = 100

// purge deletes one batch. It returns errAgain if there is more to do at once.
func (f *office) purge(ctx context.Context, o orders) error {
	freed := slices.ContainsFunc(slices.Collect(maps.Values(f.held)), happened) // a duty that is not declared
	if f.tidied != o.record || f.moreTrees && len(f.memory.Purge) == 0 || freed {
		if err := f.findTrees(ctx, o); err != nil {
			return err
		}
	}
	if len(f.memory.Purge) == 0 {
		return nil
	}
	duty := f.memory.Purge[0]
	paths, err := f.m.leaves(ctx, znode.Duty(f.m.root, f.m.Generation, duty), -1, purgeBatch, nil)
	if err != nil {
		return err
	}
	err = f.deleteAll(ctx, o, paths)
	if errors.Is(err, zkconn.ErrNoAuth) { // somebody else's: it stays until it can be deleted
		f.kept[duty] = true
	} else if err != nil {
		return f.failed(ctx, err)
	}
	if f.kept[duty] || len(paths) < purgeBatch {
		f.memory.Purge = slices.Clone(f.memory.Purge[1:])
		if err := f.commit(ctx, o, nil, nil); err != nil {
			return err
		}
	}
	return errAgain
}

func (f *office) deleteAll(ctx context.Context, o orders, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	ops, err := f.guards(o, false)
	if err != nil {
		return err
	}
	ops = append(ops, zkconn.CheckOp(znode.Assigner(f.m.root, f.m.Generation), f.stat.Version))
	for _, path := range paths {
		ops = append(ops, zkconn.DeleteOp(path, -1))
	}
	_, err = f.m.session.Multi(ctx, ops...)
	return err
}

// findTrees notes in the assigner's memory which trees have to be deleted.
func (f *office) findTrees(ctx context.Context, o orders) error {
	m := f.m
	names, _, err := m.session.Children(ctx, znode.Duties(m.root, m.Generation))
	if err != nil {
		return err
	}
	if f.tidied != o.record {
		clear(f.kept)
	}
	f.moreTrees = false
	purge := slices.Clone(f.memory.Purge)
	for _, name := range names {
		if _, declared := o.group.Duty(name); declared || f.kept[name] || slices.Contains(purge, name) {
			delete(f.held, name)
			continue
		}
		if len(purge) >= maxTrees {
			f.moreTrees = true
			break
		}
		held, err := f.watchHeld(ctx, name)
		if err != nil {
			return err
		}
		if !held {
			purge = append(purge, name)
		}
	}
	slices.Sort(purge)
	if !slices.Equal(purge, f.memory.Purge) {
		f.memory.Purge = purge
		if err := f.commit(ctx, o, nil, nil); err != nil {
			return err
		}
	}
	f.tidied = o.record
	return nil
}

// watchHeld reports whether somebody holds a duty. If so, the assigner is woken when that changes.
func (f *office) watchHeld(ctx context.Context, duty string) (bool, error) {
	if event := f.held[duty]; event != nil && !happened(event) {
		return true, nil
	}
	_, there, event, err := f.m.session.ExistsW(ctx, znode.Held(f.m.root, f.m.Generation, duty))
	if err != nil {
		return false, err
	}
	if there {
		f.held[duty] = event
		f.wakeAt(ctx, event, 0)
	} else {
		delete(f.held, duty)
	}
	return there, nil
}
