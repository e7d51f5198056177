// Package roster decides which member of a group has which duty. Assign is a pure function of what is declared, who is
// live, and what the group's assigner remembers. The package reads no clock, talks to no server and writes nothing. It
// does not know how a member takes a duty or hands it over, and does not check what is declared.
//
// A member is known by its seat. A smaller seat is senior. A process that comes back has another seat, so what is
// remembered of its last life (a duty, a pin, failures) is not about it.
//
// # Who may have a duty
//
// A member can do a duty if it is ready, lists the duty, and has a version that fits. Of those, a duty that prefers the
// newest version wants the members of one version:
//
//   - the version that it had last time, while a member of it can do the duty; or else the version of its holder; or
//     else the newest that has enough members, whatever their age; or else the newest;
//   - and then, again and again, the newest version above that one which has enough members that are at least settle
//     old. If young members counted, everything would move to the first of them that is old enough, and then again.
//     What is enough may be a percentage of the version so far, so it changes with each step. Without the repetition
//     the next call would change the roster again although nothing happened.
//
// These rules are tried in this order:
//
//  1. A paused duty has no holder, and is no load. Its holder loses it, because else its command would go on.
//  2. In a group that starts, a holder keeps its duty and nobody gets one. Otherwise the first one up would start
//     everything. A group starts while every member is younger than settle, and they are fewer than half of those that
//     it had last: after an outage, in which all were lost, it does not wait for the oldest. Members that can do no
//     declared duty do not count.
//  3. A pin to a member that can do the duty is stronger than everything below, also than preferred versions, failures
//     and settle. A pin to a member that cannot do it, or has to wait after it gave it up, has no effect until it can,
//     because no duty is vacant while somebody could have it. A pin to a member that left is over: Roster.Pins lacks
//     it.
//  4. A holder that was asked to hand over loses the duty to any other member that is wanted, and gets it back only if
//     nobody else may have it: evenness would undo the hand-over. If it keeps the duty, or gets it back, the request is
//     over; so it is when the member leaves.
//  5. A leader stays where it is while its member is wanted, because evenness is not worth the end of its command. So a
//     leader that prefers no version stays while its member can do it.
//  6. A holder of another version than the wanted one loses the duty to a wanted member that is at least settle old,
//     and keeps it until there is one.
//  7. A vacant duty goes to a wanted member of any age at once. If all of them have to wait after they gave it up, it
//     goes to the newest version of which somebody has not.
//  8. Any other duty stays or moves to a wanted member that is at least settle old.
//  9. Only the members with the fewest failures at this duty get it. A holder that does its duty keeps it, whatever it
//     did before; but nobody who failed more often gets the duty from it.
//
// Members that joined within a tenth of settle are as old as the oldest of them.
//
// # Who has it
//
// Assign minimises, in this order: the number of vacant duties; the sum of the squares of loads, which is how uneven
// they are; the number of moves; the sum of the seats of all duties, so that of equal members the one that joined first
// gets a duty. A move is a duty that a holder loses although it might keep it.
//
// A load has no limit, so a duty is vacant only if nobody may have it. The rest is a flow of least cost from duties
// through members, whose k-th duty costs 2k-1 squares. Assign starts with what is kept, gives the other duties, those
// with the fewest eligible members first, to the least loaded, and then shifts duties along the cheapest alternating
// path until no path makes the roster better. That reaches the optimum:
//
//   - A flow is optimal if no cycle of its residual network has a negative cost (Klein 1967).
//   - A cycle that keeps all loads can only save moves. At the start there is none: whatever may be kept is kept. A
//     shift along a cheapest path between two members makes none.
//   - So a negative cycle changes the loads of two members, and is a path from one to the other. The search finds the
//     best of all such paths, and ends if it is no improvement.
//
// Paths that save squares end at a member with a load at least 2 smaller. They alone are not enough: the seats would
// not be minimal without the paths to a member with a load of 1 less, which save moves or seats. And a path that sends
// a duty back home saves a move again, so that the order of the shifts does not matter.
//
// The same input in any order gives the same roster, and Assign of its own result changes nothing: who may have a duty
// then is a part of who might before.
package roster

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
)

// Nobody is the seat of no member.
const Nobody int32 = -1

// together is the part of settle within which members join as one.
const together = 10

// Member is a live member of the group.
type Member struct {
	Seat    int32            // from 0; no two are equal
	Version *version.Version // nil is older than every other, and fits no constraint
	Can     []string         // names of the duties that it can do; others than the declared ones are ignored
	Ready   bool             // a member that is not ready has no duty
	Age     time.Duration    // of its seat
}

// Duty is what is declared of a duty.
type Duty struct {
	Name     string              // no two are equal
	Versions version.Constraints // of its members; nil: any. A pre-release fits only a constraint that names one
	Newest   bool                // prefers the newest version
	Leader   bool                // does not move for evenness
}

// Input is what a roster follows from. All maps are by the name of a duty, and inner maps by seat. What they say about
// other duties and about seats that nobody has is ignored.
type Input struct {
	Settle  time.Duration // how old a member must be before a duty moves to it without need
	Duties  []Duty
	Members []Member

	// Size is that of the last roster. 0: the group never had one.
	Size int
	// Enough is how many members of a newer version are enough for that version to be preferred, if the version so far
	// has this many. Those count that can do the duty and are at least Settle old. It is at least 1; nil is always 1.
	Enough func(members int) int

	// Holders are the members that the last roster gave duties, by duty. The assigner names those that are live. A member
	// that gave a duty up is no holder of it.
	Holders map[string]int32
	// Pins, HandOver and Newest are those of the last roster. Operators add to the first two, and take pins away.
	Pins     map[string]int32
	HandOver map[string]int32 // members that have to give a duty to another one, or have done so
	Newest   map[string]*version.Version
	Paused   map[string]bool
	Failures map[string]map[int32]int
	// Backoff is for how long a member that gave a duty up may not get it again. It does not touch a holder.
	Backoff map[string]map[int32]time.Duration
}

// Roster says who has which duty, and why.
type Roster struct {
	Posts    []Post                      // one for each declared duty, by name
	Pins     map[string]int32            // those of declared duties whose member lives
	HandOver map[string]int32            // those of declared duties that are not over
	Newest   map[string]*version.Version // the preferred version of each duty that prefers the newest
	// Size is how many members can do a declared duty. While the group starts it is that of the roster before.
	Size int
	// Next is how long the roster stays as it is if nothing happens but that time passes: call Assign again then. 0 is
	// for ever.
	Next time.Duration
}

// Holders returns the seat of each duty that somebody has: the Holders of the next Input.
func (r Roster) Holders() map[string]int32 {
	holders := map[string]int32{}
	for _, p := range r.Posts {
		if p.Seat != Nobody {
			holders[p.Duty] = p.Seat
		}
	}
	return holders
}

// Post is one duty in a roster.
type Post struct {
	Duty     string
	Seat     int32 // of its holder, or Nobody
	Last     int32 // of the member that had it before, or Nobody; of one that has left only if Holders names it
	Why      Why
	Eligible int              // how many members may have it now
	Version  *version.Version // the preferred one; nil if the duty prefers none, or nobody can do it
	Unable   Unable           // the members that cannot do it
	PinIdle  bool             // it is pinned to a live member that cannot have it now
	Wait     time.Duration    // after which its holder may change although nothing happened; 0: time changes nothing
}

// Assign returns the best roster.
func Assign(in Input) Roster {
	in.Members = slices.SortedFunc(slices.Values(in.Members), func(a, b Member) int { return cmp.Compare(a.Seat, b.Seat) })
	in.Duties = slices.SortedFunc(slices.Values(in.Duties), func(a, b Duty) int { return strings.Compare(a.Name, b.Name) })
	in.Members = joinedTogether(in.Members, in.Settle)
	if in.Enough == nil {
		in.Enough = func(int) int { return 1 }
	}
	g := index(in)
	choices := make([]choice, len(in.Duties))
	b := balance{may: make([]set, len(in.Duties)), home: make([]int, len(in.Duties))}
	for _, m := range in.Members {
		b.seats = append(b.seats, m.Seat)
	}
	for d := range in.Duties {
		choices[d] = g.choose(d)
		b.may[d], b.home[d] = choices[d].may, choices[d].home
	}
	holders := b.solve()

	r := Roster{
		Pins: map[string]int32{}, HandOver: map[string]int32{}, Newest: map[string]*version.Version{}, Size: g.size,
	}
	uneven := g.uneven(b.load)
	for d, c := range choices {
		p := g.post(c, holders[d], uneven)
		r.Posts = append(r.Posts, p)
		if p.Wait > 0 && (r.Next == 0 || p.Wait < r.Next) {
			r.Next = p.Wait
		}
		if p.Version != nil {
			r.Newest[p.Duty] = p.Version
		}
		if c.pinned != none {
			r.Pins[p.Duty] = in.Members[c.pinned].Seat
		}
		if c.giver != none && (c.giver != holders[d] || c.why == Starts) {
			r.HandOver[p.Duty] = in.Members[c.giver].Seat
		}
	}
	return r
}

// joinedTogether makes members as old as the oldest that joined less than a tenth of settle before them. Or else what
// moves when the first of them is settle old would move on to the others a moment later.
func joinedTogether(members []Member, settle time.Duration) []Member {
	ages := make([]time.Duration, len(members))
	for i, m := range members {
		ages[i] = m.Age
	}
	slices.Sort(ages)
	members = slices.Clone(members)
	for i, m := range members {
		older, _ := slices.BinarySearch(ages, m.Age+max(settle/together, 1))
		members[i].Age = ages[older-1]
	}
	return members
}

// post describes the outcome of a choice. uneven says that another roster might have more even loads.
func (g *indexed) post(c choice, holder int, uneven bool) Post {
	duty := g.in.Duties[c.duty]
	listed := g.listed[c.duty].size()
	p := Post{
		Duty: duty.Name, Seat: Nobody, Last: Nobody, Why: c.why, Eligible: c.may.size(), Unable: Unable{
			NotListed: len(g.in.Members) - listed, Version: listed - c.fit.size(), NotReady: c.fit.size() - c.able.size(),
		},
	}
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

// uneven reports whether two members that can do a declared duty have loads that differ by 2 or more. If not, then no
// member that may soon have one more duty makes the loads more even.
func (g *indexed) uneven(load []int) bool {
	var loads []int
	for m := range g.useful.all() {
		loads = append(loads, load[m])
	}
	return len(loads) > 0 && slices.Max(loads)-slices.Min(loads) > 1
}

// wait returns how long the duty of a choice stays with its holder, or vacant, if only time passes; 0 is for ever. It
// is too short where only another search could tell whether a member that may then have the duty gets it.
func (g *indexed) wait(c choice, holder int, uneven bool) time.Duration {
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
func (g *indexed) later(c choice, holder int, uneven bool) set {
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
	for m := range late.without(c.giver).all() {
		if g.failures(c.duty, m) <= fewest {
			might.add(m)
		}
	}
	return might
}

// waitOf returns how long a member that can do a duty may not have it: until it may take it again after it gave it up,
// until the group has started, and, if the duty moves to it without need, until it is settle old.
func (g *indexed) waitOf(d, m int, settles bool) time.Duration {
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

// set is a set of small numbers, here of indices of members: one bit each. Sets that meet in an operation have the same
// length.
type set []uint64

const wordBits = 64

// newSet returns an empty set of numbers below n.
func newSet(n int) set { return make(set, (n+wordBits-1)/wordBits) }

func (s set) add(i int)      { s[i/wordBits] |= 1 << (i % wordBits) }
func (s set) remove(i int)   { s[i/wordBits] &^= 1 << (i % wordBits) }
func (s set) has(i int) bool { return s[i/wordBits]&(1<<(i%wordBits)) != 0 }

func (s set) addAll(t set) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s set) and(t set) set {
	both := slices.Clone(s)
	for i := range both {
		both[i] &= t[i]
	}
	return both
}

func (s set) minus(t set) set {
	rest := slices.Clone(s)
	rest.removeAll(t)
	return rest
}

func (s set) removeAll(t set) {
	for i := range s {
		s[i] &^= t[i]
	}
}

// firstOf returns the smallest number that is in both; none if there is none.
func (s set) firstOf(t set) int {
	for i := range s {
		if both := s[i] & t[i]; both != 0 {
			return i*wordBits + bits.TrailingZeros64(both)
		}
	}
	return none
}

func (s set) with(i int) set {
	more := slices.Clone(s)
	more.add(i)
	return more
}

// without returns s but for i, which may be none.
func (s set) without(i int) set {
	less := slices.Clone(s)
	if i != none {
		less.remove(i)
	}
	return less
}

func (s set) empty() bool {
	return !slices.ContainsFunc(s, func(w uint64) bool { return w != 0 })
}

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// all yields the numbers in ascending order.
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i*wordBits + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}
