package roster

import (
	"cmp"
	"math"
	"slices"
)

// balance looks for the best holders of all duties. Duties and members are indices. Members
// are in the order of their seats, so of two the one with the smaller index is the more senior.
type balance struct {
	seats []int32 // of each member
	may   []set   // of each duty: who may have it
	home  []int   // of each duty: with another holder it has moved; none if nothing is a move. It is in may

	load []int   // of each member
	at   [][]int // of each member: its duties
	idle set     // members without any
}

// The weights of one square and of one move, against 1 for a seat number. They keep the order of what is minimised: a
// path has less than 2^14 moves, and no seat is 2^32 or more.
const (
	moveWeight   = 1 << 33
	squareWeight = 1 << 48
)

// solve returns the holder of each duty; none if nobody may have it.
func (b *balance) solve() []int {
	n := len(b.seats)
	b.load, b.at, b.idle = make([]int, n), make([][]int, n), newSet(n)
	for m := range n {
		b.idle.add(m)
	}
	var homeless []int
	for d, home := range b.home {
		if home != none {
			b.give(d, home)
		} else if !b.may[d].empty() {
			homeless = append(homeless, d)
		}
	}
	slices.SortStableFunc(homeless, func(c, d int) int { return cmp.Compare(b.may[c].size(), b.may[d].size()) })
	for _, d := range homeless {
		b.give(d, b.leastLoaded(b.may[d]))
	}
	for b.improve() {
	}
	holders := slices.Repeat([]int{none}, len(b.may))
	for m, duties := range b.at {
		for _, d := range duties {
			holders[d] = m
		}
	}
	return holders
}

func (b *balance) give(d, m int) {
	b.at[m] = append(b.at[m], d)
	b.load[m]++
	b.idle.remove(m)
}

func (b *balance) take(d, m int) {
	b.at[m] = slices.DeleteFunc(b.at[m], func(other int) bool { return other == d })
	if b.load[m]--; b.load[m] == 0 {
		b.idle.add(m)
	}
}

// leastLoaded returns the member of s with the smallest load, of several the most senior.
func (b *balance) leastLoaded(s set) int {
	least := none
	for m := range s.all() {
		if least == none || b.load[m] < b.load[least] {
			least = m
		}
	}
	return least
}

// arc is how a path comes to a member: from another one, which gives it a duty. The first member of a path has none.
type arc struct {
	from int
	move int64 // what the duty costs: 1 if it leaves its home, -1 if it comes back, or else 0
}

// paths are the cheapest paths of a search: of each member the cost so far, and the last arc.
type paths struct {
	cost []int64
	by   []arc
	todo []int  // members whose arcs have to be looked at (again)
	due  []bool // of each member: it is in todo
}

// improve shifts duties along the path that makes the roster better by most. It reports false if there is none.
func (b *balance) improve() bool {
	p := b.search()
	best, least := none, int64(0)
	for m, cost := range p.cost {
		if cost == math.MaxInt64 {
			continue
		}
		if total := cost + int64(b.load[m]+1)*squareWeight + int64(b.seats[m]); total < least {
			best, least = m, total
		}
	}
	if best == none {
		return false
	}
	// From its end: a member then gives away a duty that it had before the shift.
	for to := best; p.by[to].from != none; to = p.by[to].from {
		b.shift(p.by[to], to)
	}
	return true
}

// search finds the cheapest path to each member; of those without a duty only to the ones that may be the best. A path
// begins at any member that has a duty, which loses one. Half of the cost in squares counts: of a load that goes from k
// to k-1, and of one that goes from k to k+1, it is -k and k+1.
func (b *balance) search() paths {
	n := len(b.seats)
	p := paths{cost: slices.Repeat([]int64{math.MaxInt64}, n), by: make([]arc, n), due: make([]bool, n)}
	for m, load := range b.load {
		if load > 0 {
			p.reach(m, -int64(load)*squareWeight-int64(b.seats[m]), arc{from: none})
		}
	}
	slices.SortFunc(p.todo, func(l, m int) int { return cmp.Compare(p.cost[l], p.cost[m]) })
	free, leave := newSet(n), newSet(n)
	for len(p.todo) > 0 {
		m := p.todo[0]
		p.todo, p.due[m] = p.todo[1:], false
		clear(free)
		clear(leave)
		for _, d := range b.at[m] {
			switch home := b.home[d]; home {
			case m:
				leave.addAll(b.may[d])
			case none:
				free.addAll(b.may[d])
			default:
				free.addAll(b.may[d])
				p.step(m, home, -1)
			}
		}
		b.steps(&p, m, free, 0)
		leave.removeAll(free)
		b.steps(&p, m, leave, 1)
	}
	return p
}

// steps goes from a member to those of a set. Of members without a duty, which it removes from the set, it goes to the
// most senior one only: a path ends there, and the others would be worse ends.
func (b *balance) steps(p *paths, from int, to set, move int64) {
	if idle := to.firstOf(b.idle); idle != none {
		p.step(from, idle, move)
	}
	to.removeAll(b.idle)
	for m := range to.all() {
		p.step(from, m, move)
	}
}

func (p *paths) step(from, to int, move int64) {
	p.reach(to, p.cost[from]+move*moveWeight, arc{from: from, move: move})
}

// reach keeps a path to m if it is cheaper than those before.
func (p *paths) reach(m int, cost int64, by arc) {
	if cost >= p.cost[m] {
		return
	}
	p.cost[m], p.by[m] = cost, by
	if !p.due[m] {
		p.todo, p.due[m] = append(p.todo, m), true
	}
}

func (b *balance) shift(a arc, to int) {
	for _, d := range b.at[a.from] {
		if b.may[d].has(to) && b.move(d, to)-b.move(d, a.from) == a.move {
			b.take(d, a.from)
			b.give(d, to)
			return
		}
	}
}

// move is 1 if m as holder means that the duty has moved.
func (b *balance) move(d, m int) int64 {
	if b.home[d] == none || b.home[d] == m {
		return 0
	}
	return 1
}
