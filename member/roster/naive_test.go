package roster_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/go-version"

	"muster/member/roster"
)

// This file says a second time, with loops and without speed, who may have a duty and which roster is the best.

// naive answers for one input.
type naive struct{ roster.Input }

func (n naive) member(seat int32) (roster.Member, bool) {
	i := slices.IndexFunc(n.Members, func(m roster.Member) bool { return m.Seat == seat })
	if i < 0 {
		return roster.Member{}, false
	}
	return n.Members[i], true
}

func (n naive) able(m roster.Member, d roster.Duty) bool {
	return m.Ready && slices.Contains(m.Can, d.Name) && (d.Versions == nil || d.Versions.Check(m.Version))
}

// free reports whether a member can have a duty that it does not hold.
func (n naive) free(m roster.Member, d roster.Duty) bool {
	return n.able(m, d) && n.Backoff[d.Name][m.Seat] <= 0
}

// age is that of the oldest member that joined with this one.
func (n naive) age(m roster.Member) time.Duration {
	age := m.Age
	for _, other := range n.Members {
		if other.Age < m.Age+max(n.Settle/10, 1) {
			age = max(age, other.Age)
		}
	}
	return age
}

// starting reports whether all members that can be of use are younger than settle, and fewer than half of the last.
func (n naive) starting() bool {
	useful := n.useful()
	for _, m := range useful {
		if m.Age >= n.Settle {
			return false
		}
	}
	return n.Size == 0 || len(useful) < (n.Size+1)/2
}

// useful are the members that can do a declared duty.
func (n naive) useful() []roster.Member {
	return n.where(func(m roster.Member) bool {
		return slices.ContainsFunc(n.Duties, func(d roster.Duty) bool { return slices.Contains(m.Can, d.Name) })
	})
}

// holder returns the member that has a duty and can do it.
func (n naive) holder(d roster.Duty) (roster.Member, bool) {
	if seat, ok := n.Holders[d.Name]; ok {
		if m, ok := n.member(seat); ok && n.able(m, d) {
			return m, true
		}
	}
	return roster.Member{}, false
}

// preferred returns the version that a duty with "newest" wants; nil if nobody can do it.
func (n naive) preferred(d roster.Duty) *version.Version {
	count := func(v *version.Version, oldEnough time.Duration) int {
		return len(n.where(func(m roster.Member) bool {
			return n.able(m, d) && v != nil && m.Version.Equal(v) && n.age(m) >= oldEnough
		}))
	}
	var newest *version.Version
	for _, m := range n.Members {
		if n.able(m, d) && (newest == nil || m.Version.GreaterThan(newest)) {
			newest = m.Version
		}
	}
	now := n.Newest[d.Name]
	if count(now, 0) == 0 {
		now = nil
		if h, ok := n.holder(d); ok {
			now = h.Version
		}
	}
	for again := true; again; {
		again = false
		enough := 1
		if n.Enough != nil {
			enough = n.Enough(count(now, 0))
		}
		start := now
		for _, m := range n.Members {
			age := n.Settle
			if start == nil {
				age = 0
			}
			above := start == nil || m.Version.GreaterThan(start)
			if above && count(m.Version, age) >= enough && (!again || m.Version.GreaterThan(now)) {
				now, again = m.Version, true
			}
		}
	}
	if now == nil {
		now = newest
	}
	return now
}

// may returns the seats that may have a duty, and whether its holder may keep it and another one would be a move.
func (n naive) may(d roster.Duty) (seats []int32, keeps bool) {
	h, holds := n.holder(d)
	pin, pinned := n.Pins[d.Name]
	pinned = pinned && slices.ContainsFunc(n.Members, func(m roster.Member) bool {
		return m.Seat == pin && (n.free(m, d) || holds && h.Seat == pin)
	})
	giver, handsOver := n.HandOver[d.Name]
	// elsewhere leaves out who handed the duty over.
	elsewhere := func(members []roster.Member, unlessAlone bool) []roster.Member {
		rest := slices.DeleteFunc(slices.Clone(members), func(m roster.Member) bool { return handsOver && m.Seat == giver })
		if len(rest) == 0 && unlessAlone {
			return members
		}
		return rest
	}
	preferred := n.preferred(d)
	wants := func(m roster.Member) bool { return !d.Newest || m.Version.Equal(preferred) }
	others := n.where(func(m roster.Member) bool { return n.free(m, d) && wants(m) && !(holds && m.Seat == h.Seat) })
	settled := slices.DeleteFunc(slices.Clone(others), func(m roster.Member) bool { return n.age(m) < n.Settle })
	switch {
	case n.Paused[d.Name]:
		return nil, false
	case n.starting() && !holds:
		return nil, false
	case n.starting():
		return []int32{h.Seat}, true
	case pinned:
		return []int32{pin}, false
	case holds && handsOver && h.Seat == giver && len(others) > 0:
		return n.leastFailed(d, others), false
	case holds && wants(h) && d.Leader:
		return []int32{h.Seat}, true
	case holds && wants(h):
		seats = n.leastFailed(d, append(elsewhere(settled, false), h))
		if !slices.Contains(seats, h.Seat) {
			seats = append(seats, h.Seat)
		}
		return seats, true
	case holds && len(settled) > 0:
		return n.leastFailed(d, elsewhere(settled, true)), false
	case holds:
		return []int32{h.Seat}, true
	case len(others) > 0:
		return n.leastFailed(d, elsewhere(others, true)), false
	}
	free := n.where(func(m roster.Member) bool { return n.free(m, d) })
	if len(free) == 0 {
		return nil, false
	}
	newest := slices.MaxFunc(free, func(a, b roster.Member) int { return a.Version.Compare(b.Version) }).Version
	of := n.where(func(m roster.Member) bool { return n.free(m, d) && m.Version.Equal(newest) })
	return n.leastFailed(d, elsewhere(of, true)), false
}

func (n naive) where(fits func(roster.Member) bool) []roster.Member {
	return slices.DeleteFunc(slices.Clone(n.Members), func(m roster.Member) bool { return !fits(m) })
}

func (n naive) leastFailed(d roster.Duty, members []roster.Member) []int32 {
	failures := func(m roster.Member) int { return n.Failures[d.Name][m.Seat] }
	least := slices.MinFunc(members, func(a, b roster.Member) int { return cmp.Compare(failures(a), failures(b)) })
	var seats []int32
	for _, m := range members {
		if failures(m) == failures(least) {
			seats = append(seats, m.Seat)
		}
	}
	return seats
}

// score is what a roster minimises, in this order.
type score struct {
	Vacant, Squares, Moves int
	Seats                  int64
}

func (s score) compare(t score) int {
	return cmp.Or(cmp.Compare(s.Vacant, t.Vacant), cmp.Compare(s.Squares, t.Squares), cmp.Compare(s.Moves, t.Moves),
		cmp.Compare(s.Seats, t.Seats))
}

// score returns that of a roster, and whether everybody in it may have what he has.
func (n naive) score(holders map[string]int32) (score, bool) {
	s, load := score{}, map[int32]int{}
	for _, d := range n.Duties {
		seat, held := holders[d.Name]
		if !held {
			s.Vacant++
			continue
		}
		seats, keeps := n.may(d)
		if !slices.Contains(seats, seat) {
			return s, false
		}
		if keeps && seat != n.Holders[d.Name] {
			s.Moves++
		}
		s.Squares += 2*load[seat] + 1
		load[seat]++
		s.Seats += int64(seat)
	}
	return s, true
}

// best returns the best score of all rosters.
func (n naive) best() score {
	type option struct {
		seats []int32
		keeps bool
	}
	var options []option
	for _, d := range n.Duties {
		seats, keeps := n.may(d)
		options = append(options, option{seats, keeps})
	}
	best := score{Vacant: len(n.Duties) + 1}
	load := map[int32]int{}
	var try func(d int, s score)
	try = func(d int, s score) {
		if d == len(options) {
			if s.compare(best) < 0 {
				best = s
			}
			return
		}
		without := s
		without.Vacant++
		try(d+1, without)
		for _, seat := range options[d].seats {
			with := s
			if options[d].keeps && seat != n.Holders[n.Duties[d].Name] {
				with.Moves++
			}
			with.Squares += 2*load[seat] + 1
			with.Seats += int64(seat)
			load[seat]++
			try(d+1, with)
			load[seat]--
		}
	}
	try(0, score{})
	return best
}

// later returns the input after time has passed.
func (n naive) later(by time.Duration) roster.Input {
	in := n.Input
	in.Members = slices.Clone(n.Members)
	for i := range in.Members {
		in.Members[i].Age += by
	}
	in.Backoff = map[string]map[int32]time.Duration{}
	for duty, waits := range n.Backoff {
		in.Backoff[duty] = map[int32]time.Duration{}
		for seat, wait := range waits {
			in.Backoff[duty][seat] = wait - by
		}
	}
	return in
}

// after returns the input that follows a roster, if nothing happens.
func (n naive) after(r roster.Roster) roster.Input {
	in := n.Input
	in.Holders, in.Pins, in.Newest, in.HandOver, in.Size = r.Holders(), r.Pins, r.Newest, r.HandOver, r.Size
	return in
}
