package group

import (
	"encoding/json"
	"maps"
	"slices"

	"muster/resource"
)

// keyAssign is a field of a group's Record, besides those of every kind: the method by which a clerk assigns duties. A
// member whose software does not know it is never the clerk, so that clerks of two versions do not undo each other's
// rosters.
const keyAssign = "assign"

// FirstAssign is the method of a Record that names none.
const FirstAssign = 1

// Assign is the method of assignment that r wants. A newer muster may know more methods than this one.
func Assign(r *resource.Record) int {
	n := FirstAssign
	if r != nil && r.Extra[keyAssign] != nil {
		_ = json.Unmarshal(r.Extra[keyAssign], &n)
	}
	return max(n, FirstAssign)
}

// SetAssign writes into r that clerks assign by method n.
func SetAssign(r *resource.Record, n int) {
	body, _ := json.Marshal(n) // a number always encodes
	extra := maps.Clone(r.Extra)
	if extra == nil {
		extra = map[string]json.RawMessage{}
	}
	extra[keyAssign] = body
	r.Extra = extra // copies of r share the old map
}

// NextAssign is the method that an apply writes: the newest one that apply knows, but at most what every live member
// knows, so that there is always a clerk. It is never less than that of r, since members may have joined for it.
func NextAssign(r *resource.Record, newest int, known []int) int {
	if len(known) > 0 {
		newest = min(newest, slices.Min(known))
	}
	return max(newest, Assign(r))
}
