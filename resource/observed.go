package resource

import (
	"slices"
	"strings"
	"time"
)

// Observed is one resource as it was read: plain facts. Its Status and its Class follow from them. Those with a name in
// JSON are what a plan file has as the precondition of a row.
type Observed struct {
	Record *Record `json:"-"` // nil if classic, foreign or unreadable, or if the Record and its copy are lost

	// Classic: workers of the classic controller made it. Its roll or its ephemeral children show that.
	Classic    bool     `json:"classic,omitempty"`
	Companions []string `json:"companions,omitempty"` // znodes that go when it is replaced: full paths, sorted

	Version       int32          `json:"version"`        // of its znode
	RecordVersion int32          `json:"record_version"` // of the Record
	Pzxid         int64          `json:"pzxid"`          // of its znode: changes at every join and leave
	Live          int            `json:"live"`           // number of children of its znode
	Created       time.Time      `json:"-"`              // its znode, by ZooKeeper's clock; zero: not known
	Counts        map[string]int `json:"-"`              // what its kind counts, by name; absent is 0

	// Members and Strangers name the children of its znode, sorted. They are filled only where a decision depends on
	// who is live. A stranger is a persistent child: no member, and not made by muster.
	Members   []string `json:"-"`
	Strangers []string `json:"-"`

	// Results are those of its crons that have run, sorted. They are filled while a member is live.
	Results []Results `json:"-"`

	// Saved is what members have saved in it, by section, sorted. It is filled only where a row would delete some of it.
	Saved []Saved `json:"-"`

	Foreign      bool   `json:"foreign,omitempty"`       // not recognisable; Problem says what it looks like
	Problem      string `json:"problem,omitempty"`       // why it is unreadable (no permission, how damaged) or foreign
	Lost         []Part `json:"lost,omitempty"`          // parts that somebody deleted or changed by hand
	BeyondRepair string `json:"beyond_repair,omitempty"` // why some of Lost cannot be put back; empty if all can
}

// Saved is what members have saved for one section of a declaration, such as a duty. It is deleted with the section.
type Saved struct {
	// Section is how the names of its fields begin: "cron.nightly-report" has the field "cron.nightly-report.schedule".
	Section string   `json:"section"`
	Keys    int      `json:"keys"`
	Bytes   int64    `json:"bytes"`
	Open    []string `json:"open,omitempty"` // operations that were begun and are not done, sorted
}

// Results is how the runs of one cron went so far. Its holder writes them.
type Results struct {
	Section string `json:"-"` // as in Saved

	Done    int `json:"done,omitempty"` // runs
	Failed  int `json:"failed,omitempty"`
	Lost    int `json:"lost,omitempty"`
	Missed  int `json:"missed,omitempty"` // ticks
	Skipped int `json:"skipped,omitempty"`

	InARow      int       `json:"failed_in_a_row,omitempty"` // the last so many runs have failed, or were lost
	LastSuccess time.Time `json:"last_success,omitzero"`     // when the last run that is done ended; zero: none is
}

// Duty is the name of the cron.
func (r Results) Duty() string { return strings.TrimPrefix(r.Section, "cron.") }

// Ended is how many runs have ended.
func (r Results) Ended() int { return r.Done + r.Failed + r.Lost }

// Part is one of the znodes that make up a resource with a Record.
type Part string

// The parts. Every other part is a folder in the generation; its Part is the name of that folder.
const (
	PartRecord     Part = "record" // if it is lost, Observed.Record is its copy
	PartZnode      Part = "znode"  // the resource's own znode
	PartGate       Part = "gate"
	PartGeneration Part = "generation" // all of it, with the gate
	// PartReference: the Record names a generation that is not its own. Observed.Record is the copy in its open
	// generation; nil unless exactly one open generation has a copy.
	PartReference Part = "reference"
	PartCopy      Part = "copy" // of the Record, in the generation
)

// Class is what the facts mean for the decision about an action. All kinds have the same classes.
type Class int

const (
	Missing     Class = iota // nothing is there
	Foreign                  // something is there that muster did not make
	Damaged                  // muster made it, and somebody deleted a part of it by hand
	Unreadable               // no permission, or the Record cannot be decoded
	Terminating              // members have been asked to stop
	Done                     // its work is done; no member is needed any more
	Ready                    // no member has joined
	Idle                     // no member is live, and no work was left behind; members may come back
	Stale                    // no member is live, and the work that was begun is not done
	Live                     // members are or may be at work
	Degraded                 // as Live, and some needed members are gone
)

// IsLive reports whether members may be at work.
func (c Class) IsLive() bool { return c == Live || c == Degraded }

// Status is the class in a word for people. A kind can have its own words.
type Status string

// The statuses of every kind, and degraded and failing, which not every kind has. A classic resource has one of ready,
// stale and running.
const (
	StatusUnreadable  Status = "unreadable"
	StatusForeign     Status = "foreign"
	StatusDamaged     Status = "damaged"
	StatusMissing     Status = "missing"
	StatusTerminating Status = "terminating"
	StatusReady       Status = "ready"
	StatusStale       Status = "stale"
	StatusDegraded    Status = "degraded"
	StatusFailing     Status = "failing"
	StatusRunning     Status = "running"
)

// Count is the count of this name; 0 if there is none.
func (o *Observed) Count(name string) int {
	if o == nil {
		return 0
	}
	return o.Counts[name]
}

// WithoutStrangers is o as people see it: who is no member is not live. A plan decides by what is there.
func (o *Observed) WithoutStrangers() *Observed {
	if o == nil {
		return nil
	}
	seen := *o
	seen.Live = max(0, o.Live-len(o.Strangers))
	return &seen
}

// Status is the status of o; nil is missing.
func (o *Observed) Status() Status {
	_, status := o.classify()
	return status
}

// Class is the class of o; nil is missing.
func (o *Observed) Class() Class {
	class, _ := o.classify()
	return class
}

// IsDegraded reports whether some needed members are gone, or a resource where nobody is live says that something is
// wrong, as a queue with failed batches does.
func (o *Observed) IsDegraded() bool {
	class, status := o.classify()
	return class == Degraded || status == StatusDegraded
}

func (o *Observed) classify() (Class, Status) {
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
		return o.classifyClassic()
	case o.Record.State == StateTerminating:
		return Terminating, StatusTerminating
	}
	return o.Record.Declaration.Classify(o)
}

// CountJoined is the one count that classic resources have too.
const CountJoined = "joined"

// classifyClassic knows neither how many members a classic resource needs nor which of them have completed.
func (o *Observed) classifyClassic() (Class, Status) {
	switch {
	case o.Live > 0:
		return Live, StatusRunning
	case o.Count(CountJoined) > 0:
		return Stale, StatusStale
	}
	return Ready, StatusReady
}

// Has reports whether the part p is not lost.
func (o *Observed) Has(p Part) bool { return !slices.Contains(o.Lost, p) }

// LostText says what is lost. object is what the resource's own znode is called.
func (o *Observed) LostText(object string) string {
	if o == nil || len(o.Lost) == 0 {
		return ""
	}
	var changed, deleted []string
	for _, p := range o.Lost {
		switch p {
		case PartReference:
			changed = append(changed, "its record names a generation that is not its own")
		case PartCopy:
			changed = append(changed, "the copy of its record cannot be used")
		case PartZnode:
			deleted = append(deleted, object)
		default:
			deleted = append(deleted, string(p))
		}
	}
	if len(deleted) > 0 {
		changed = append(changed, "deleted by hand: "+strings.Join(deleted, ", "))
	}
	return strings.Join(changed, "; ")
}

// Repairable reports whether some of what is lost can be put back.
func (o *Observed) Repairable() bool {
	if o.Record == nil || len(o.Lost) == 0 {
		return false
	}
	return o.Record.Declaration.Policy().InPlace || o.Has(PartGeneration) && slices.ContainsFunc(o.Lost, Part.CanBePutBack)
}

// CanBePutBack reports whether nothing that members have written is lost with the part.
func (p Part) CanBePutBack() bool {
	return slices.Contains([]Part{PartRecord, PartZnode, PartGate, PartReference, PartCopy}, p)
}

// Equal reports whether two observations of one resource are the same facts. It does not compare what may be absent:
// Created, Members, Strangers and Saved.
func (o Observed) Equal(p Observed) bool {
	if (o.Record == nil) != (p.Record == nil) || o.Record != nil && o.Record.Generation != p.Record.Generation {
		return false
	}
	return o.Classic == p.Classic && slices.Equal(o.Companions, p.Companions) &&
		o.Version == p.Version && o.RecordVersion == p.RecordVersion && o.Pzxid == p.Pzxid &&
		o.Live == p.Live && sameCounts(o.Counts, p.Counts) && slices.Equal(o.Results, p.Results) &&
		o.Foreign == p.Foreign && o.Problem == p.Problem &&
		slices.Equal(o.Lost, p.Lost) && o.BeyondRepair == p.BeyondRepair
}

// sameCounts compares counts, of which an absent one is 0.
func sameCounts(a, b map[string]int) bool {
	for _, counts := range []map[string]int{a, b} {
		for name := range counts {
			if a[name] != b[name] {
				return false
			}
		}
	}
	return true
}
