package roster

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
)

// none is the index of no member, and of no version.
const none = -1

// indexed is an input with sets of members by what they have in common. Members are known by their index, in the order
// of seats.
type indexed struct {
	in       Input
	index    map[int32]int // by seat
	versions []ofVersion   // the newest first
	version  []int         // of each member: an index of versions
	listed   []set         // of each duty: the members that list it
	useful   set           // members that list a declared duty
	ready    set
	settled  set // members that are at least settle old
	starting bool
	oldest   time.Duration // the greatest age of a useful member
	size     int           // see Roster
}

type ofVersion struct {
	version *version.Version
	members set
}

// index makes the sets. The members and the duties of in are sorted.
func index(in Input) *indexed {
	n := len(in.Members)
	g := &indexed{
		in: in, index: map[int32]int{}, version: make([]int, n), listed: make([]set, len(in.Duties)),
		useful: newSet(n), ready: newSet(n), settled: newSet(n),
	}
	duty := map[string]int{}
	for d, declared := range in.Duties {
		duty[declared.Name], g.listed[d] = d, newSet(n)
	}
	for m, member := range in.Members {
		g.index[member.Seat] = m
		if member.Ready {
			g.ready.add(m)
		}
		if member.Age >= in.Settle {
			g.settled.add(m)
		}
		for _, name := range member.Can {
			if d, ok := duty[name]; ok {
				g.listed[d].add(m)
				g.oldest = max(g.oldest, member.Age)
				g.useful.add(m)
			}
		}
	}
	g.size = g.useful.size()
	g.starting = g.size > 0 && g.oldest < in.Settle && (in.Size == 0 || 2*g.size < in.Size)
	if g.starting || g.size == 0 {
		g.size = in.Size
	}
	g.sortVersions()
	return g
}

// sortVersions fills versions and version. Texts that mean the same version, 2.0 and 2.0.0, are one version: that of
// the most senior member.
func (g *indexed) sortVersions() {
	n := len(g.in.Members)
	for m, member := range g.in.Members {
		i := slices.IndexFunc(g.versions, func(v ofVersion) bool { return compare(v.version, member.Version) == 0 })
		if i < 0 {
			i = len(g.versions)
			g.versions = append(g.versions, ofVersion{member.Version, newSet(n)})
		}
		g.versions[i].members.add(m)
	}
	slices.SortFunc(g.versions, func(a, b ofVersion) int { return compare(b.version, a.version) })
	for i, v := range g.versions {
		for m := range v.members.all() {
			g.version[m] = i
		}
	}
}

// compare orders versions. No version is older than every other.
func compare(a, b *version.Version) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(b)
}

// choice is who may have a duty, and why.
type choice struct {
	duty   int
	last   int // the member that has it; none if nobody or a member that left
	pinned int // to this member; none if it left
	giver  int // the member that has to hand it over, or has; none if it left
	fit    set // members that list it and have a version that fits
	able   set // of those, the members that are ready: they can do it
	wanted set // of those, the members of the preferred version
	prefer int // the preferred version; none without a preference, or if nobody can do it
	newer  set // members of newer versions that are preferred once they are all settle old
	free   set // of the able, those that need not wait after they gave it up

	may  set
	home int // last, if it may keep the duty: another holder is a move
	why  Why // if last keeps it, or nobody has it; or else why it has another holder
}

// choose decides who may have a duty. The rules stand in the comment of the package.
func (g *indexed) choose(d int) choice {
	duty := g.in.Duties[d]
	c := choice{duty: d, prefer: none, home: none, may: newSet(len(g.in.Members))}
	c.newer = newSet(len(g.in.Members))
	c.last, c.pinned = g.member(g.in.Holders, duty.Name), g.member(g.in.Pins, duty.Name)
	c.giver = g.member(g.in.HandOver, duty.Name)
	c.fit = g.listed[d].and(g.fitting(duty.Versions))
	c.able = c.fit.and(g.ready)
	c.wanted, c.free = c.able, c.able.minus(g.waiting(d))
	holds := c.last != none && c.able.has(c.last)
	if duty.Newest && !c.able.empty() {
		c.prefer, c.newer = g.prefer(c, holds)
		c.wanted = c.able.and(g.versions[c.prefer].members)
	}
	others := c.wanted.and(c.free).without(c.last)
	switch {
	case g.in.Paused[duty.Name]:
		c.why = Paused
	case g.starting && holds:
		c.keep(Starts)
	case g.starting:
		c.why = Starts
	case c.pinned != none && (c.free.has(c.pinned) || holds && c.pinned == c.last):
		c.may.add(c.pinned)
		c.why = Pinned
	case holds && c.last == c.giver && !others.empty():
		c.may, c.why = g.leastFailed(d, others), HandedOver
	case holds:
		g.chooseHeld(&c, others.and(g.settled))
	default:
		g.chooseVacant(&c, others)
	}
	return c
}

func (c *choice) keep(why Why) {
	c.may.add(c.last)
	c.home, c.why = c.last, why
}

// chooseHeld decides about a duty whose holder can do it, if receivers are the others that it may move to.
func (g *indexed) chooseHeld(c *choice, receivers set) {
	switch wanted := c.wanted.has(c.last); {
	case wanted && g.in.Duties[c.duty].Leader:
		c.keep(Leads)
	case wanted:
		c.keep(Keeps)
		c.may.addAll(g.leastFailed(c.duty, receivers.without(c.giver).with(c.last)))
	case receivers.empty():
		c.keep(Waits)
	default:
		c.may, c.why = g.leastFailed(c.duty, c.unlessGiver(receivers)), Newer
	}
}

// unlessGiver returns the members of s but for the one that handed the duty over, if there is any other.
func (c *choice) unlessGiver(s set) set {
	if others := s.without(c.giver); !others.empty() {
		return others
	}
	return s
}

// chooseVacant decides about a duty that nobody has, if wanted are the members that are preferred.
func (g *indexed) chooseVacant(c *choice, wanted set) {
	for _, v := range g.versions {
		if wanted.empty() {
			wanted = c.free.and(v.members)
		}
	}
	c.may = g.leastFailed(c.duty, c.unlessGiver(wanted))
	switch {
	case c.able.empty():
		c.why = Unfit
	case c.may.empty():
		c.why = BackedOff
	case c.may.size() == 1:
		c.why = Only
	default:
		c.why = Fills
	}
}

// prefer returns the version whose members a duty wants, of which at least one can do it, and the members of newer
// versions that time may promote. holds says that c.last can do the duty.
func (g *indexed) prefer(c choice, holds bool) (v int, newer set) {
	able := func(v int) set { return c.able.and(g.versions[v].members) }
	v, newer = none, newSet(len(g.in.Members))
	if last, ok := g.in.Newest[g.in.Duties[c.duty].Name]; ok {
		v = slices.IndexFunc(g.versions, func(v ofVersion) bool { return compare(v.version, last) == 0 })
	}
	switch {
	case v != none && !able(v).empty():
	case holds:
		v = g.version[c.last]
	default:
		if v = g.newestWith(g.in.Enough(0), c.able, len(g.versions)); v == none {
			v = g.newestWith(1, c.able, len(g.versions))
		}
	}
	for {
		enough := g.in.Enough(able(v).size())
		if next := g.newestWith(enough, c.able.and(g.settled), v); next != none {
			v = next
			continue
		}
		if g.newestWith(enough, c.able, v) != none {
			for i := range v {
				newer.addAll(able(i))
			}
		}
		return v, newer
	}
}

// newestWith returns the newest version above v of which enough members are in s; none if there is none.
func (g *indexed) newestWith(enough int, s set, v int) int {
	for i := range v {
		if s.and(g.versions[i].members).size() >= enough {
			return i
		}
	}
	return none
}

// member returns the member whose seat stands at a duty's name; none if it is not live.
func (g *indexed) member(seats map[string]int32, duty string) int {
	if seat, ok := seats[duty]; ok {
		if m, ok := g.index[seat]; ok {
			return m
		}
	}
	return none
}

func (g *indexed) fitting(constraints version.Constraints) set {
	fit := newSet(len(g.in.Members))
	for _, v := range g.versions {
		if len(constraints) == 0 || v.version != nil && constraints.Check(v.version) {
			fit.addAll(v.members)
		}
	}
	return fit
}

// waiting returns the members that may not get a duty yet, because they gave it up.
func (g *indexed) waiting(d int) set {
	s := newSet(len(g.in.Members))
	for seat, rest := range g.in.Backoff[g.in.Duties[d].Name] {
		if m, ok := g.index[seat]; ok && rest > 0 {
			s.add(m)
		}
	}
	return s
}

// leastFailed returns the members of s with the fewest failures at a duty.
func (g *indexed) leastFailed(d int, s set) set {
	if len(g.in.Failures[g.in.Duties[d].Name]) == 0 {
		return s
	}
	least, fewest := newSet(len(g.in.Members)), g.fewestFailures(d, s)
	for m := range s.all() {
		if g.failures(d, m) == fewest {
			least.add(m)
		}
	}
	return least
}

// fewestFailures is the smallest number of failures that a member of s has at a duty.
func (g *indexed) fewestFailures(d int, s set) int {
	fewest := math.MaxInt
	for m := range s.all() {
		fewest = min(fewest, g.failures(d, m))
	}
	return fewest
}

func (g *indexed) failures(d, m int) int {
	return g.in.Failures[g.in.Duties[d].Name][g.in.Members[m].Seat]
}

// Why is the reason for a holder, or for its lack.
type Why string

// The reasons.
const (
	Starts     Why = "starts" // also of a vacant duty
	Keeps      Why = "keeps"
	Leads      Why = "leads"
	Waits      Why = "waits"
	Pinned     Why = "pinned"
	Newer      Why = "newer"
	HandedOver Why = "handed over"
	Evens      Why = "evens"
	Fills      Why = "fills"
	Only       Why = "only"

	// These say why a duty is vacant.
	Paused    Why = "paused"
	BackedOff Why = "backed off"
	Unfit     Why = "unfit"
)

// Unable counts the members that cannot do a duty, each at its first reason in this order.
type Unable struct {
	NotListed int // the member does not list the duty
	Version   int // its version does not fit
	NotReady  int
}

// Because says in words why the duty has its holder, or why nobody has it: the end of a sentence.
func (p Post) Because() string {
	text := p.words()
	if p.PinIdle {
		text += "; it is pinned to a member that cannot have it now"
	}
	return text
}

func (p Post) words() string {
	switch {
	case p.Why == Starts && p.Seat == Nobody:
		return "the group starts, and every member is young"
	case p.Why == Newer:
		return fmt.Sprintf("it has the preferred version, %s", p.Version)
	case p.Why == Fills:
		return fmt.Sprintf("the duty was vacant, and of %d eligible members this keeps the loads most even", p.Eligible)
	case p.Why == Unfit:
		return "no member can do it" + p.Unable.list()
	}
	return map[Why]string{
		Starts:     "it had the duty, and the group starts",
		Keeps:      "it had the duty, and no further move makes the loads more even now",
		Leads:      "a leader stays while its member lives",
		Waits:      "it had the duty, and the members of another version may not have it yet",
		Pinned:     "the duty is pinned to it",
		HandedOver: "the last holder was asked to hand over",
		Evens:      "the loads are more even",
		Only:       "the duty was vacant, and no other member could have it then",
		Paused:     "the duty is paused",
		BackedOff:  "every member that can do it has just given it up",
	}[p.Why]
}

// list returns the counts: " (not ready: 2)". It is empty if there are no members.
func (u Unable) list() string {
	var counts []string
	for _, c := range []struct {
		what  string
		count int
	}{{"not listed", u.NotListed}, {"version", u.Version}, {"not ready", u.NotReady}} {
		if c.count > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", c.what, c.count))
		}
	}
	if counts == nil {
		return ""
	}
	return " (" + strings.Join(counts, ", ") + ")"
}
