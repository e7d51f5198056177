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

// RunsInJSON is how many runs of each cron the JSON of a group has.
const RunsInJSON = 5

// Resource is what was read of one job, group or queue.
type Resource struct {
	Path     string
	Observed resource.Observed
	Restarts *int      // how often the workers of a job joined again; nil: not read
	Workers  []Worker  // of a job, by id; empty if they were not read
	Barriers []Barrier // under way in a job; empty if they were not read
	Group    *Group    // of a group; nil: not read
	Queue    *Queue    // of a queue; nil: not read

	MoreWorkers int // of a job: claims that are left out, because they are far more than it can have workers
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

// IsGroup reports whether o has the Record of a group.
func IsGroup(o *resource.Observed) bool { return KindOf(o).Name == group.KindName }

// IsQueue reports whether o has the Record of a queue.
func IsQueue(o *resource.Observed) bool { return KindOf(o).Name == queue.KindName }

// HasCounts reports whether the counts of o mean something. Children of a znode that is no job are no workers, and an
// unreadable job was not counted.
func HasCounts(o *resource.Observed) bool {
	return o.Class() != resource.Foreign && o.Class() != resource.Unreadable
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

// Stacks are those whose last applies stand below a status, sorted: declared, which may be empty, and the owners of all
// whose history is below home. There are at most 20, as that many lines fit below a table.
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
	if IsJob(o) {
		return meaningOfJob(o)
	}
	return o.Record.Declaration.Health(o)
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
	switch {
	case IsJob(o):
		return nextOfJob(o, r.Path)
	case r.Group != nil:
		return r.Group.next(o, r.Path)
	case r.Queue != nil:
		return nextOfQueue(o, r.Path)
	}
	return ""
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
