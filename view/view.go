// Package view is what was read of jobs, groups and queues, as data that reports, the page and the API show, with the
// sentences about it. zkstate and member fill it. It reads nothing, and says nothing about layout.
package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
)

// MaxCounted limits the counting of restarts, which takes three reads a worker. A table of more workers has none.
const MaxCounted = 1000

// Resource is what was read of one job, group or queue. Its JSON is who is in it, and what they do.
type Resource struct {
	Path     string            `json:"path"`
	Observed resource.Observed `json:"-"`
	Restarts *int              `json:"-"`                  // how often the workers of a job joined again; nil: not read
	Workers  []Worker          `json:"workers,omitempty"`  // of a job, by id; empty if they were not read
	Barriers []Barrier         `json:"barriers,omitempty"` // under way in a job; empty if they were not read
	Gang     *Gang             `json:"gang,omitempty"`     // of a job that is one; nil: not read
	Group    *Group            `json:"group,omitempty"`    // of a group; nil: not read
	Queue    *Queue            `json:"queue,omitempty"`    // of a queue; nil: not read

	// MoreWorkers, of a job, counts claims that are left out, because they are far more than it can have workers.
	MoreWorkers int `json:"-"`
}

// Display is how resources of one kind are shown. Reports, the page and the API ask it, and not which kind it is.
type Display interface {
	Columns() []string                             // of its table, besides name, status and age
	Cells(r Resource, now time.Time) []string      // one for each column
	Sections(r Resource, now time.Time) []Section  // of a status of r alone
	Explained(r Resource, now time.Time) []Section // of an explanation of r, besides what was observed
	Progress(o *resource.Observed) string          // how far it is, in a few words; o has counts
	Figures(o *resource.Observed) []Figure         // o has counts
	Gauges(r Resource) []Gauge                     // besides those of what its kind counts
	Idle() string                                  // what is amiss while nobody is live; empty: nothing
	meaning(o *resource.Observed) string           // of a status that is not one of every kind
	next(r Resource) string                        // what the user can do then
	document(r Resource, common resourceJSON) any  // of the JSON of a status
}

// DisplayOf is how o is shown. A kind that has nothing of its own to show is not listed.
func DisplayOf(o *resource.Observed) Display {
	switch KindOf(o).Name {
	case job.KindName:
		return jobs{}
	case group.KindName:
		return groups{}
	case queue.KindName:
		return queues{}
	}
	return plain{}
}

// Section is a part of a text: a line or more, or a table whose first row is its heading.
type Section struct {
	Heading string // of Lines; empty: they have none
	Lines   []string
	Table   [][]string
}

// Figure is a number with its word, and of how many.
type Figure struct {
	Word, Class string // Class: in the style sheet; may be empty
	N, Of       int    // Of 0: of nothing
}

// Gauge is a number for monitoring. Its name follows that of the kind.
type Gauge struct {
	Name, Help string
	Value      float64
}

// plain is how a resource is shown of which there is only what was observed.
type plain struct{}

func (plain) Columns() []string { return []string{"members"} }

// Cells counts members and what they do: "3 live, 39 of 40 duties held"; a dash if they were not read.
func (plain) Cells(r Resource, _ time.Time) []string {
	if !HasCounts(&r.Observed) {
		return []string{"-"}
	}
	return []string{r.Observed.Record.Declaration.Health(&r.Observed)}
}

func (plain) Sections(Resource, time.Time) []Section  { return nil }
func (plain) Explained(Resource, time.Time) []Section { return nil }
func (plain) Progress(o *resource.Observed) string    { return o.Record.Declaration.Health(o) }
func (plain) Gauges(Resource) []Gauge                 { return nil }
func (plain) Idle() string                            { return "" }
func (plain) meaning(o *resource.Observed) string     { return o.Record.Declaration.Health(o) }
func (plain) next(Resource) string                    { return "" }

func (plain) Figures(o *resource.Observed) []Figure {
	all := []Figure{{"live", okIf(o.Live), o.Live, 0}}
	for _, c := range KindOf(o).Counts {
		all = append(all, Figure{c.Word, "", o.Count(c.Name), 0})
	}
	return all
}

func (plain) document(r Resource, common resourceJSON) any {
	return struct {
		resourceJSON
		Counts map[string]int `json:"counts,omitempty"`
	}{common, r.Observed.Counts}
}

// okIf is the class of a count of what is live.
func okIf(n int) string {
	if n > 0 {
		return "ok"
	}
	return ""
}

// resourceJSON is what the JSON of every kind has.
type resourceJSON struct {
	Path       string          `json:"path"`
	Address    string          `json:"address,omitempty"`
	Status     resource.Status `json:"status"`
	Stack      string          `json:"stack,omitempty"`
	Generation string          `json:"generation,omitempty"`
	Live       *int            `json:"live,omitempty"` // as all counts, absent if it is not known
	Created    time.Time       `json:"created,omitzero"`
	Problem    string          `json:"problem,omitempty"`
}

// Since returns, by identity, since when those who were read are live.
func (r Resource) Since() map[string]time.Time {
	at := map[string]time.Time{}
	for _, w := range r.Workers {
		if w.State == Live {
			at[w.Identity] = w.Since
		}
	}
	if r.Group != nil {
		for _, m := range r.Group.Members {
			at[m.Identity] = m.Since
		}
	}
	if r.Queue != nil {
		for _, m := range r.Queue.Processes {
			at[m.Identity] = m.Since
		}
	}
	return at
}

// Document is r in the JSON of a status.
func (r Resource) Document() any {
	o := &r.Observed
	common := resourceJSON{Path: r.Path, Status: o.Status(), Created: o.Created, Problem: o.Problem}
	if HasCounts(o) {
		common.Live = &o.Live
	}
	if rec := o.Record; rec != nil {
		common.Address, common.Stack, common.Generation = rec.Declaration.ID().Address, rec.Stack, rec.Generation
	}
	return DisplayOf(o).document(r, common)
}

// Part is one znode of a damaged or unreadable job.
type Part struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	State string `json:"state"`
}

// KindOf is the kind as which o is shown: that of its Record, or else of jobs.
func KindOf(o *resource.Observed) resource.Kind {
	if o == nil || o.Record == nil {
		return job.Kind()
	}
	return o.Record.Declaration.Kind()
}

// IsJob reports whether o is shown as a job.
func IsJob(o *resource.Observed) bool { return KindOf(o).Name == job.KindName }

// HasCounts reports whether the counts of o mean something. Children of a znode that is no job are no workers, and an
// unreadable job was not counted.
func HasCounts(o *resource.Observed) bool {
	class := o.Class()
	return class != resource.Foreign && class != resource.Unreadable
}

// Number is a count, or a dash if there is none.
func Number(n int, o *resource.Observed) string {
	if !HasCounts(o) {
		return "-"
	}
	return fmt.Sprint(n)
}

// OfN is "3 of 8", or only the count for a job without a Record.
func OfN(n int, o *resource.Observed) string {
	if o.Record == nil || !HasCounts(o) {
		return Number(n, o)
	}
	return fmt.Sprintf("%d of %d", n, job.Of(o.Record).Workers)
}

// CountMembers counts those who are or were in these jobs, groups and queues. It is what MaxCounted limits.
func CountMembers(all []Resource) int {
	n := 0
	for _, r := range all {
		n += max(job.Joined(&r.Observed), r.Observed.Live)
	}
	return n
}

// Stacks are those whose last applies stand below a status, sorted, at most 20: the declared one, unless it is empty,
// and the stacks of those resources that have the same home.
func Stacks(home, declared string, all []Resource) []string {
	const most = 20
	home = cmp.Or(home, resource.DefaultHome)
	stacks := map[string]bool{declared: true}
	for _, r := range all {
		if rec := r.Observed.Record; rec != nil && cmp.Or(rec.Home, home) == home {
			stacks[rec.Stack] = true
		}
	}
	delete(stacks, "")
	sorted := slices.Sorted(maps.Keys(stacks))
	return sorted[:min(most, len(sorted))]
}

// Meaning says why o, of this kind, has its status.
func Meaning(o *resource.Observed, kind string) string {
	switch o.Status() {
	case resource.StatusMissing:
		return "there is no " + kind + " znode"
	case resource.StatusDamaged:
		return strings.Join(text.NonEmpty(o.LostText(string(resource.PartZnode)), o.BeyondRepair), "; ")
	case resource.StatusForeign:
		return "a znode is there that is not a " + kind + ": " + o.Problem
	case resource.StatusUnreadable:
		return "it cannot be read: " + o.Problem
	case resource.StatusTerminating:
		return fmt.Sprintf("its record says that the %ss have been asked to stop; %d live", KindOf(o).Member, o.Live)
	}
	return DisplayOf(o).meaning(o)
}

// NextStep says what the user can do next; empty if there is nothing to do. It names the resource so that the command
// works without a configuration too.
func (r Resource) NextStep() string {
	o, at := &r.Observed, text.ShellWord(r.Path) // whoever made a foreign znode chose its name
	switch o.Status() {
	case resource.StatusMissing:
		return "muster apply makes it if it is declared"
	case resource.StatusForeign, resource.StatusUnreadable, resource.StatusDamaged:
		return "muster explain " + at
	case resource.StatusTerminating:
		if o.Live > 0 {
			return "muster status " + at + " --watch, until all have left"
		}
		again := "makes it anew"
		if o.Record.Declaration.Policy().InPlace {
			again = "opens it again"
		}
		return "muster apply " + again + " if it is declared, and deletes it otherwise"
	}
	return DisplayOf(o).next(r)
}

// OrDash is v, and a dash instead of the zero value.
func OrDash[T comparable](v T) string {
	var zero T
	if v == zero {
		return "-"
	}
	return fmt.Sprint(v)
}

// known is a number, and a dash if it is not known.
func known(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// Age is how long before now t was: "12s", "5m", "3h", "4d"; a dash if t is not known. Without now it is the time
// itself, so that a text changes only when something happens.
func Age(now, t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case now.IsZero():
		return Stamp(t)
	}
	return Short(now.Sub(t))
}

// Ago is age in a sentence: "3h ago", "at 2026-07-01T02:00Z".
func Ago(now, t time.Time) string {
	if now.IsZero() {
		return "at " + Stamp(t)
	}
	return Age(now, t) + " ago"
}

// AgeHeading is the heading of a column of ages.
func AgeHeading(now time.Time, word string) string {
	if now.IsZero() {
		return "since"
	}
	return word
}

// Short is a duration for people, in one unit. A negative one, between two clocks, is 0s.
func Short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// Stamp is a time in UTC, without seconds if they are zero: "2026-07-01T02:00Z".
func Stamp(t time.Time) string {
	if t = t.UTC().Truncate(time.Second); t.Second() == 0 {
		return t.Format("2006-01-02T15:04Z")
	}
	return t.Format(time.RFC3339)
}
