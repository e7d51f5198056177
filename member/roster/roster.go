package roster

import (
	"cmp"
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

	// Holders are the members that the last roster gave duties. A member that gave a duty up is no holder of it.
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
	Last     int32 // of the member that had it before, or Nobody; also of one that does not live any more
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
	g := newGroup(in)
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
