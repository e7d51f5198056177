package resource

import (
	"maps"
	"slices"
)

// Observed is one thing as it was read: plain facts, from which its Status and its Class follow.
type Observed struct {
	Record *Record // nil: classic, foreign, unreadable, or lost without a copy

	// Classic: made by workers of the classic controller, recognised by its roll or its ephemeral children.
	Classic    bool
	Companions []string // znodes that go with it when it is replaced: full paths, sorted

	Version       int32          // of its znode
	RecordVersion int32          // of the Record
	Pzxid         int64          // of its znode: changes at every join and leave
	Live          int            // children of its znode
	Counts        map[string]int // what its kind counts, by name; absent is 0

	// Members and Strangers name the children of its znode, sorted; they are filled only where live matters to a
	// decision. A stranger is a persistent child: not a member, and nothing of ours.
	Members   []string
	Strangers []string

	Foreign  bool   // not recognisable; Problem says what it looks like
	Problem  string // why it is unreadable (or foreign): no permission, or damaged and how
	Lost     []Part // what somebody deleted by hand
	Hopeless string // why something of what is lost cannot be put back; empty if all can
}

// Part is one of the znodes that a thing with a Record is made of.
type Part string

// The parts. Every other part is a folder of its generation, under its name there.
const (
	PartRecord     Part = "record" // then Observed.Record is its copy
	PartObject     Part = "znode"  // of the thing itself
	PartGate       Part = "gate"
	PartGeneration Part = "generation" // all of it, with the gate
)

// Class is what the facts mean to whoever decides what is done. It is the same for all kinds.
type Class int

// The classes.
const (
	Missing     Class = iota // nothing is there
	Foreign                  // something is there that is not ours
	Damaged                  // ours, and a part of it was deleted by hand
	Unreadable               // no permission, or a Record that cannot be understood
	Terminating              // members have been asked to stop
	Done                     // its work is done, and nobody is needed any more
	Ready                    // nobody has begun
	Stale                    // nobody is live, and what was begun is not done
	Live                     // members are or may be at work
	Degraded                 // Live, and some who are needed are gone
)

// IsLive reports whether members may be at work.
func (c Class) IsLive() bool { return c == Live || c == Degraded }

// Status is the word for what is observed. Some words are those of a kind.
type Status string

// The statuses that do not depend on a kind. A classic thing has the last three.
const (
	StatusUnreadable  Status = "unreadable"
	StatusForeign     Status = "foreign"
	StatusDamaged     Status = "damaged"
	StatusMissing     Status = "missing"
	StatusTerminating Status = "terminating"
	StatusReady       Status = "ready"
	StatusStale       Status = "stale"
	StatusRunning     Status = "running"
)

// Count is what o counts under a name of its kind.
func (o *Observed) Count(name string) int {
	if o == nil {
		return 0
	}
	return o.Counts[name]
}

// Status is the word for o; nil is missing.
func (o *Observed) Status() Status {
	_, status := o.judge()
	return status
}

// Class is what o means; nil is missing.
func (o *Observed) Class() Class {
	class, _ := o.judge()
	return class
}

func (o *Observed) judge() (Class, Status) {
	switch {
	case o == nil:
		return Missing, StatusMissing
	case o.Foreign:
		return Foreign, StatusForeign
	case len(o.Lost) > 0:
		return Damaged, StatusDamaged
	case o.Record == nil && !o.Classic, o.Problem != "":
		return Unreadable, StatusUnreadable
	case o.Classic:
		return o.judgeClassic()
	case o.Record.State == StateTerminating:
		return Terminating, StatusTerminating
	}
	return o.Record.Declaration.Judge(o)
}

// CountJoined is the one count that classic things have too.
const CountJoined = "joined"

// judgeClassic: a classic thing tells neither how many it needs nor who completed.
func (o *Observed) judgeClassic() (Class, Status) {
	switch {
	case o.Live > 0:
		return Live, StatusRunning
	case o.Count(CountJoined) > 0:
		return Stale, StatusStale
	}
	return Ready, StatusReady
}

// Has reports whether none of o's parts with this name is lost.
func (o *Observed) Has(p Part) bool { return !slices.Contains(o.Lost, p) }

// Repairable reports whether some of what is lost can be put back.
func (o *Observed) Repairable() bool {
	return o.Record != nil && o.Has(PartGeneration) && !(o.Has(PartRecord) && o.Has(PartGate) && o.Has(PartObject))
}

// Equal reports whether two observations of one thing are the same facts. Names listed only for display do not count.
func (o Observed) Equal(p Observed) bool {
	if (o.Record == nil) != (p.Record == nil) {
		return false
	}
	if o.Record != nil && o.Record.Generation != p.Record.Generation {
		return false
	}
	return o.Classic == p.Classic && slices.Equal(o.Companions, p.Companions) &&
		o.Version == p.Version && o.RecordVersion == p.RecordVersion && o.Pzxid == p.Pzxid &&
		o.Live == p.Live && maps.Equal(nonZero(o.Counts), nonZero(p.Counts)) &&
		o.Foreign == p.Foreign && o.Problem == p.Problem && slices.Equal(o.Lost, p.Lost) && o.Hopeless == p.Hopeless
}

// nonZero leaves out what counts nothing: absent is 0.
func nonZero(counts map[string]int) map[string]int {
	kept := maps.Clone(counts)
	maps.DeleteFunc(kept, func(_ string, n int) bool { return n == 0 })
	return kept
}
