package group

import (
	"fmt"

	"muster/resource"
	"muster/text"
)

// held counts the duties that somebody holds, besides the live members.
const held = "held"

// The statuses of groups, besides those of every kind.
const (
	Degraded resource.Status = "degraded" // members are live, and some duty has no holder
	Running  resource.Status = "running"  // members are live, and every duty is held
)

// Counts are the counts of a group: how many of its duties somebody holds.
func Counts(haveHeld int) map[string]int { return map[string]int{held: haveHeld} }

// Held is the number of duties of o that somebody holds.
func Held(o *resource.Observed) int { return o.Count(held) }

// Classify implements resource.Declaration. A group without live members is idle: its members may only be restarting.
func (g Group) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	switch {
	case o.Live == 0:
		return resource.Idle, resource.StatusReady
	case Held(o) < len(g.Duties):
		return resource.Degraded, Degraded
	}
	return resource.Live, Running
}

// Health implements resource.Declaration.
func (g Group) Health(o *resource.Observed) string {
	return fmt.Sprintf("%d live, %d of %d duties held", o.Live, Held(o), len(g.Duties))
}

// LiveText implements resource.Declaration.
func (g Group) LiveText(o *resource.Observed) string {
	return text.Plural(o.Live-len(o.Strangers), "member is live", "members are live")
}

// Progress implements resource.Declaration. A group has no work that ends: what its members have saved is in
// Observed.Saved.
func (g Group) Progress(o *resource.Observed) (what string, work bool) {
	if o.Live == 0 {
		return "", false
	}
	return g.Health(o), false
}
