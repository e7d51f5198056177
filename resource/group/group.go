// Package group is the kind of groups: the processes of one application, which come and go, and the duties that exactly
// one of them has at a time. It holds the fields of a group and of its duties, their limits and defaults, and what the
// facts found about a group mean.
//
// One type Group serves all: HCL declares it, ZooKeeper records it and a member reads it. The package holds plain data
// and rules about it; it talks to no server and runs no duty.
package group

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"muster/resource"
	"muster/text"
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
	resource.InPlace
	Duties []Duty `json:"-"` // sorted by name, and no two have one name; see groupJSON
}

const KindName = "group"

func Kind() resource.Kind { return kind() }

var kind = sync.OnceValue(func() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: KindName, Member: "member", Absent: "the duties that nobody holds",
		Counts: []resource.Count{
			{Name: held, Word: "held"}, {Name: paused, Word: "paused"}, {Name: failing, Word: "failing"},
			{Name: unassigned, Word: "no assigner"},
		},
		Statuses: []resource.Status{resource.StatusReady, Degraded, Failing, Running},
	}, Properties())
})

// Default is a group with all defaults. It has no name and no duties.
func Default() Group { return resource.Default(Properties()) }

// Of is the group that r declares; the zero Group if r is nil or declares another kind.
func Of(r *resource.Record) Group { return resource.Of[Group](r) }

func (g Group) Kind() resource.Kind { return Kind() }

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

// Properties is the table of a group's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Group] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Group] {
	settle := resource.DurationOf("settle", "5s", "a duty moves without need only to a member of at least this age",
		func(g *Group) *resource.Duration { return &g.Settle })
	settle.Min = 0
	return append([]resource.Property[Group]{
		settle,
		{
			Name: "promote_after", Doc: "so many members of a newer version make it the newest",
			Type: resource.TypeText, Default: "1", Valid: checkPromoteAfter,
			Form: "1 to 5000, or 1% to 100% of the holder's version",
			Ref:  func(g *Group) any { return (*string)(&g.PromoteAfter) },
		},
	}, resource.InPlaceProperties("group", "member", "a leader's command that is handed over",
		func(g *Group) *resource.InPlace { return &g.InPlace })...)
})

// DutyProperties is the table of the arguments of one type of duty, except its name.
func DutyProperties(t Type) []resource.Property[Duty] {
	if t == Cron {
		return cronProperties()
	}
	return []resource.Property[Duty]{versions(), prefer(Any)}
}

// versions is empty by default: a member of any version may have the duty.
func versions() resource.Property[Duty] {
	return resource.Property[Duty]{
		Name: "versions", Doc: "only members of these versions", Type: resource.TypeText,
		Form: "a version constraint", Valid: checkVersions, Ref: func(d *Duty) any { return &d.Versions },
	}
}

func prefer(usual Prefer) resource.Property[Duty] {
	p := resource.EnumOf("prefer", "stay while the holder lives, or move to the newest version",
		func(d *Duty) *string { return (*string)(&d.Prefer) }, Any, Newest)
	p.Default = string(usual)
	return p
}

func cronProperties() []resource.Property[Duty] {
	return []resource.Property[Duty]{
		{
			Name: "schedule", Doc: "when it runs", Type: resource.TypeText, Required: true,
			Form:  "five fields, `@daily` and the like, or `@every 10m`",
			Valid: func(text string) error { return checkSchedule(text, "UTC") },
			Ref:   func(d *Duty) any { return &d.Schedule },
		},
		{
			Name: "timezone", Doc: "of the schedule", Type: resource.TypeText, Default: "UTC",
			Form:  "a name such as Europe/Berlin",
			Valid: func(zone string) error { return checkSchedule("@daily", zone) },
			Ref:   func(d *Duty) any { return &d.Timezone },
		},
		versions(),
		prefer(Newest),
		resource.DurationOf("start_deadline", "60s", "a tick that has not begun after this is missed",
			func(d *Duty) *resource.Duration { return &d.StartDeadline }),
		resource.EnumOf("missed", "which missed ticks are run",
			func(d *Duty) *string { return (*string)(&d.Missed) }, MissedLatest, MissedSkip, MissedAll),
		resource.EnumOf("overlap", "what a tick does while the last run goes on",
			func(d *Duty) *string { return (*string)(&d.Overlap) }, OverlapSkip, OverlapWait),
		resource.EnumOf("lost", "what happens to a run whose holder was lost",
			func(d *Duty) *string { return (*string)(&d.Lost) }, LostRerun, LostSkip),
		{
			Name: "retries", Doc: "how often a run that failed is tried again", Type: resource.TypeInt, Default: "2",
			Min: 0, Max: 100, Ref: func(d *Duty) any { return &d.Retries },
		},
		resource.DurationOf("timeout", "1h", "a run is ended after this",
			func(d *Duty) *resource.Duration { return &d.Timeout }),
		{
			Name: "keep", Doc: "how many runs are remembered", Type: resource.TypeInt, Default: "20",
			Min: 1, Max: 100, Ref: func(d *Duty) any { return &d.Keep },
		},
		{
			Name: "alert_after", Doc: "it is failing when its last so many runs have failed", Type: resource.TypeInt,
			Default: "1", Min: 1, Max: 1000, Ref: func(d *Duty) any { return &d.AlertAfter },
		},
	}
}

// What is counted of a group besides its live members.
const (
	held    = "held"    // duties that somebody holds
	paused  = "paused"  // duties that nobody holds, because they are paused
	failing = "failing" // crons of which the last alert_after runs have failed

	unassigned = "unassigned" // 1 if members are live and none of them assigns duties, else 0
)

// The statuses of groups, besides those of every kind.
const (
	// Degraded: members are live, and some duty has no holder and is not paused, or nobody assigns duties.
	Degraded resource.Status = "degraded"
	Failing  resource.Status = "failing" // every duty is held or paused, and the last runs of some cron have failed
	Running  resource.Status = "running" // every duty is held or paused
)

// Counts are the counts of a group: of its duties how many somebody holds, how many are paused and so have no holder,
// and how many are failing.
func Counts(haveHeld, arePaused, areFailing int) map[string]int {
	return map[string]int{held: haveHeld, paused: arePaused, failing: areFailing}
}

// WithoutAssigner notes in the counts of a group that its live members hold duties, and that none of them assigns any.
func WithoutAssigner(counts map[string]int) { counts[unassigned] = 1 }

// Unassigned reports whether members of o are live and none of them assigns duties.
func Unassigned(o *resource.Observed) bool { return o.Live > 0 && o.Count(unassigned) > 0 }

// Held is the number of duties of o that somebody holds.
func Held(o *resource.Observed) int { return o.Count(held) }

// Paused is the number of duties of o that nobody holds, because they are paused.
func Paused(o *resource.Observed) int { return o.Count(paused) }

// Vacant is the number of duties that nobody holds, and that are not paused.
func (g Group) Vacant(o *resource.Observed) int { return max(0, len(g.Duties)-Held(o)-Paused(o)) }

// Failing reports whether the last runs of a cron have failed: as many as its declaration says.
func (d Duty) Failing(r resource.Results) bool { return d.AlertAfter > 0 && r.InARow >= d.AlertAfter }

// Failing lists the crons of which the last runs have failed.
func (g Group) Failing(o *resource.Observed) (failing []resource.Results) {
	for _, r := range o.Results {
		if d, ok := g.Duty(r.Duty()); ok && d.Failing(r) {
			failing = append(failing, r)
		}
	}
	return failing
}

// Classify implements resource.Declaration. A group without live members is idle: its members may only be restarting.
func (g Group) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	switch {
	case o.Live == 0:
		return resource.Idle, resource.StatusReady
	case g.Vacant(o) > 0, Unassigned(o):
		return resource.Degraded, Degraded
	case o.Count(failing) > 0:
		return resource.Live, Failing
	}
	return resource.Live, Running
}

// Health implements resource.Declaration: "3 live, 4 of 5 duties held, 1 paused; cron nightly failed 3 times in a row".
func (g Group) Health(o *resource.Observed) string {
	s := fmt.Sprintf("%d live, %d of %d duties held", o.Live, Held(o), len(g.Duties))
	if n := Paused(o); n > 0 {
		s += fmt.Sprintf(", %d paused", n)
	}
	if Unassigned(o) {
		s += ", nobody assigns duties"
	}
	named := g.Failing(o)
	for _, r := range named[:min(len(named), maxNamed)] {
		s += "; " + strings.Replace(r.Section, ".", " ", 1) + " " + FailedText(r)
	}
	if more := len(named) - maxNamed; more > 0 {
		s += fmt.Sprintf("; %d more crons are failing", more)
	}
	return s
}

// maxNamed is how many failing crons Health names.
const maxNamed = 3

// FailedText is "failed", "failed 3 times in a row".
func FailedText(r resource.Results) string {
	if r.InARow == 1 {
		return "failed"
	}
	return fmt.Sprintf("failed %d times in a row", r.InARow)
}

func (g Group) LiveText(o *resource.Observed) string {
	return text.Plural(o.Live-len(o.Strangers), "member is live", "members are live")
}

// WouldBeLost implements resource.Declaration. A group has no work that ends: what its members have saved is in
// Observed.Saved.
func (g Group) WouldBeLost(o *resource.Observed) (what string, someDone bool) {
	if o.Live == 0 {
		return "", false
	}
	return g.Health(o), false
}

// groupJSON is a Group in JSON. Of a duty only what is not the default is written: 1,000 duties with all their defaults
// would have 225 KiB, more than twice MaxSize.
type groupJSON struct {
	plainGroup
	dutiesJSON
}

// plainGroup is Group without its methods.
type plainGroup Group

// dutiesJSON holds the duties as objects by name, below their type, as in HCL.
type dutiesJSON struct {
	Leader map[string]json.RawMessage `json:"leader,omitempty"`
	Cron   map[string]json.RawMessage `json:"cron,omitempty"`
}

func (j dutiesJSON) of(t Type) map[string]json.RawMessage {
	if t == Cron {
		return j.Cron
	}
	return j.Leader
}

// MarshalJSON implements json.Marshaler. Equal groups have equal bytes.
func (g Group) MarshalJSON() ([]byte, error) {
	doc := groupJSON{plainGroup(g), dutiesJSON{map[string]json.RawMessage{}, map[string]json.RawMessage{}}}
	for _, d := range g.Duties {
		body, err := resource.EncodeChanged(DutyProperties(d.Type), &d)
		if err != nil {
			return nil, err
		}
		doc.of(d.Type)[d.Name] = body
	}
	return json.Marshal(doc)
}

// UnmarshalJSON implements json.Unmarshaler. What is absent keeps its value in g, except that all duties are replaced.
func (g *Group) UnmarshalJSON(body []byte) error {
	var doc dutiesJSON // apart from the rest, since an error would name the embedded struct
	if err := json.Unmarshal(body, (*plainGroup)(g)); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	g.Duties = nil
	for _, t := range Types() {
		objects := doc.of(t)
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			d := NewDuty(t, name)
			err := json.Unmarshal(objects[name], &d)
			if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				mismatch.Field = d.Section() + "." + mismatch.Field
			}
			if err != nil {
				return err
			}
			g.Duties = append(g.Duties, d)
		}
	}
	slices.SortFunc(g.Duties, compareDuties)
	return nil
}

// keyAssign is a field of a group's Record, besides those of every kind: the method by which an assigner assigns
// duties. A member whose software does not know it is never the assigner, so that assigners of two versions do not undo
// each other's rosters.
const keyAssign = "assign"

// firstAssign is the method of a Record that names none.
const firstAssign = 1

// Assign is the method of assignment that r wants. A newer muster may know more methods than this one.
func Assign(r *resource.Record) int {
	return max(firstAssign, resource.ExtraOf[int](r, keyAssign))
}
