package group

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"muster/resource"
)

// Limits of a group. Properties and DutyProperties have those of every field.
const (
	MaxDuties = 1000
	// MaxSize is the maximum size of a group's JSON, in bytes. Its Record is little larger. Members read it again
	// whenever it changes.
	MaxSize = 100 << 10
)

// Group is the processes of one application, and the duties of which one of them has each at a time.
type Group struct {
	resource.Common
	Settle       resource.Duration `json:"settle"` // a duty moves without need only to a member of at least this age
	PromoteAfter PromoteAfter      `json:"promote_after"`
	Timeouts     Timeouts          `json:"timeouts"`
	Lifecycle    Lifecycle         `json:"lifecycle"`
	resource.Labelled
	Duties []Duty `json:"-"` // sorted by name, and no two have one name; see groupJSON
}

// Timeouts of a group. Members read them again whenever the Record changes, except Session, which they keep.
type Timeouts struct {
	Session resource.Duration `json:"session"` // a crashed member counts as live for this long
	Join    resource.Duration `json:"join"`    // a member waits this long for the group
	Drain   resource.Duration `json:"drain"`   // a leader's command gets TERM, and KILL after this
	Stale   resource.Duration `json:"stale"`   // apply deletes only after nobody was live for this long
}

// Lifecycle says whether the group may be deleted.
type Lifecycle struct {
	Protect bool `json:"protect"` // never deleted
}

// KindName is the name of this kind.
const KindName = "group"

// Kind describes the kind of groups.
func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	var fields []string
	for _, t := range Types() {
		for _, name := range resource.Names(DutyProperties(t)) {
			fields = append(fields, string(t)+".*."+name)
		}
	}
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "member", Absent: "the duties that nobody holds",
		Counts:   []resource.Count{{Name: held, Word: "held"}},
		Statuses: []resource.Status{resource.StatusReady, Degraded, Running},
		Fields:   fields,
	}, Properties())
})

// Default is a group with all defaults. It has no name and no duties.
func Default() Group { return resource.Default(Properties()) }

// Of is the group that r declares; the zero Group if r is nil or declares another kind.
func Of(r *resource.Record) Group { return resource.Of[Group](r) }

// Kind implements resource.Declaration.
func (g Group) Kind() resource.Kind { return Kind() }

// Policy implements resource.Declaration.
func (g Group) Policy() resource.Policy {
	return resource.Policy{Protect: g.Lifecycle.Protect, Grace: g.Timeouts.Stale, InPlace: true}
}

// Add inserts d in the order of names.
func (g *Group) Add(d Duty) {
	at, _ := slices.BinarySearchFunc(g.Duties, d, compareDuties)
	g.Duties = slices.Insert(g.Duties, at, d)
}

// compareDuties is the order of duties in a Group. If two have one name, which Check refuses, the type decides.
func compareDuties(a, b Duty) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
}

// Duty is the duty of this name, and whether there is one.
func (g Group) Duty(name string) (Duty, bool) {
	i, ok := slices.BinarySearchFunc(g.Duties, name, func(d Duty, name string) int { return cmp.Compare(d.Name, name) })
	if !ok {
		return Duty{}, false
	}
	return g.Duties[i], true
}

// Check returns an error that starts with the JSON name of the first invalid value of g, or nil. See
// resource.CheckDeclared.
func (g Group) Check() error {
	if err := resource.CheckDeclared(Properties(), g); err != nil {
		return err
	}
	for i, d := range g.Duties {
		if err := d.check(); err != nil {
			return err
		}
		if i > 0 && g.Duties[i-1].Name >= d.Name {
			return fmt.Errorf("%s: another duty has this name, or they are not sorted", d.Section())
		}
	}
	return g.CheckSize()
}

// CheckSize says why g is too large, or returns nil. A group has at most MaxDuties and MaxSize bytes of JSON.
func (g Group) CheckSize() error {
	if n := len(g.Duties); n > MaxDuties {
		return fmt.Errorf("a group has at most %d duties; this one has %d: write a second group", MaxDuties, n)
	}
	body, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if len(body) > MaxSize {
		return fmt.Errorf("a group has at most %d KiB as JSON; this one has %d KiB: write a second group",
			MaxSize>>10, (len(body)+1<<10-1)>>10)
	}
	return nil
}

// Fields implements resource.Declaration: the properties in the order of Properties, then the fields of the duties in
// the order of their names ("cron.nightly-report.schedule"), then the labels, sorted.
func (g Group) Fields() []resource.Field {
	var duties []resource.Field
	for _, d := range g.Duties {
		duties = append(duties, d.fields()...)
	}
	return resource.DeclaredFields(Properties(), g, duties...)
}
