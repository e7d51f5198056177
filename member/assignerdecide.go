package member

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"

	"muster/group"
	"muster/member/roster"
	"muster/zkstate/znode"
)

// firstPause is how long a member that gave a duty up waits before it can get it again. It doubles each time.
const firstPause, maxPause = time.Second, 5 * time.Minute

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
	f.tellUntaken(o.group, untaken)
	return r.Next, nil
}

// input is what a roster follows from, without what the inboxes say.
func (f *office) input(g group.Group) roster.Input {
	in := roster.Input{
		Settle: time.Duration(g.Settle), Size: f.memory.Size, Enough: g.PromoteAfter.Members,
		Holders: map[string]int32{}, Pins: map[string]int32{}, Newest: map[string]*version.Version{},
		Paused: map[string]bool{}, HandOver: map[string]int32{},
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
	for d, name := range f.memory.Pins {
		if n, err := znode.SeatNumber(name); err == nil {
			in.Pins[d] = n
		}
	}
	for d, name := range f.memory.HandOver {
		if n, err := znode.SeatNumber(name); err == nil {
			in.HandOver[d] = n
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

// remember notes that a member gave a duty up.
func (f *office) remember(r znode.Resignation) {
	if f.memory.Failures[r.Duty] == nil {
		f.memory.Failures[r.Duty] = map[string]znode.Failure{}
	}
	failure := f.memory.Failures[r.Duty][r.Seat]
	failure.Tries++
	if r.Blame {
		failure.Count++
	}
	pause := firstPause
	for range min(failure.Tries, 30) - 1 {
		pause = min(2*pause, maxPause)
	}
	failure.Until, failure.Because = f.now().Add(pause).UnixMilli(), shorten(r.Because)
	f.memory.Failures[r.Duty][r.Seat] = failure
}

// shorten returns the start of a text for the assigner's memory.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// obey does what an operator asks for. A request about a member that has gone has no effect.
func (f *office) obey(a znode.Ask, in *roster.Input) {
	switch a.Do {
	case znode.AskPause:
		f.memory.Paused[a.Duty], in.Paused[a.Duty] = shorten(a.By), true
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
	f.memory.Passed = slices.DeleteFunc(slices.Clone(f.memory.Passed), func(seat string) bool {
		n, err := znode.SeatNumber(seat)
		return err != nil || f.names[n] != seat
	})
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
