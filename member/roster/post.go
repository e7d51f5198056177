package roster

import (
	"math"
	"time"
)

// post describes the outcome of a choice. uneven says that another roster might have more even loads.
func (g *group) post(c choice, holder int, uneven bool) Post {
	duty := g.in.Duties[c.duty]
	p := Post{Duty: duty.Name, Seat: Nobody, Last: Nobody, Why: c.why, Eligible: c.may.size(), Unable: g.unable(c)}
	if last, ok := g.in.Holders[duty.Name]; ok {
		p.Last = last
	}
	if holder != none {
		p.Seat = g.in.Members[holder].Seat
		switch {
		case c.home == none:
		case holder != c.home:
			p.Why = Evens
		case (c.why == Keeps || c.why == Leads) && !c.newer.empty():
			p.Why = Waits
		}
	}
	if c.prefer != none {
		p.Version = g.versions[c.prefer].version
	}
	p.PinIdle = c.pinned != none && holder != c.pinned && c.why != Paused
	p.Wait = g.wait(c, holder, uneven)
	return p
}

// unable counts who cannot do the duty of a choice.
func (g *group) unable(c choice) Unable {
	listed := g.listed[c.duty]
	fitting := listed.and(g.fitting(g.in.Duties[c.duty].Versions))
	return Unable{
		NotListed: len(g.in.Members) - listed.size(),
		Version:   listed.size() - fitting.size(),
		NotReady:  fitting.size() - c.able.size(),
	}
}

// uneven reports whether two members that can do a declared duty have loads that differ by 2 or more. If not, then no
// member that may soon have one more duty makes the loads more even.
func (g *group) uneven(load []int) bool {
	useful := newSet(len(load))
	for _, listed := range g.listed {
		useful.addAll(listed)
	}
	least, most := 0, 0
	first := true
	for m := range useful.all() {
		if first {
			least, most, first = load[m], load[m], false
		}
		least, most = min(least, load[m]), max(most, load[m])
	}
	return most-least > 1
}

// wait returns how long the duty of a choice stays with its holder, or vacant, if only time passes; 0 is for ever. It
// is too short where only another search could tell whether a member that may then have the duty gets it.
func (g *group) wait(c choice, holder int, uneven bool) time.Duration {
	if c.why == Paused || c.pinned != none && c.pinned == holder {
		return 0
	}
	wait := time.Duration(math.MaxInt64)
	if c.pinned != none && c.able.has(c.pinned) {
		wait = g.waitOf(c.duty, c.pinned, false)
	}
	if c.why == Starts && c.giver != none && c.giver == holder {
		wait = min(wait, g.waitOf(c.duty, holder, false)) // then the request to hand over is decided
	}
	for m := range g.later(c, holder, uneven).all() {
		wait = min(wait, g.waitOf(c.duty, m, holder != none))
	}
	if wait == math.MaxInt64 {
		return 0
	}
	return wait
}

// later returns the members that cannot have the duty now, and might get it from its holder when time has passed.
func (g *group) later(c choice, holder int, uneven bool) set {
	if holder == none {
		return c.able
	}
	might := c.newer.minus(g.settled)
	now := c.wanted.and(c.free).and(g.settled)
	late := c.wanted.minus(now).without(holder)
	switch {
	case !c.wanted.has(holder):
		might.addAll(late)
		return might
	case g.in.Duties[c.duty].Leader || !uneven:
		return might
	}
	fewest := g.fewestFailures(c.duty, now.with(holder))
	for m := range c.notGiver(late).all() {
		if g.failures(c.duty, m) <= fewest {
			might.add(m)
		}
	}
	return might
}

// waitOf returns how long a member that can do a duty may not have it: until it may take it again after it gave it up,
// until the group has started, and, if the duty moves to it without need, until it is settle old.
func (g *group) waitOf(d, m int, settles bool) time.Duration {
	member := g.in.Members[m]
	wait := g.in.Backoff[g.in.Duties[d].Name][member.Seat]
	if settles {
		wait = max(wait, g.in.Settle-member.Age)
	}
	if g.starting {
		wait = max(wait, g.in.Settle-g.oldest)
	}
	return wait
}
