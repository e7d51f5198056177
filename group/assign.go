package group

import (
	"encoding/json"

	"muster/resource"
)

// keyAssign is a field of a group's Record, besides those of every kind: the method by which an assigner assigns
// duties. A member whose software does not know it is never the assigner, so that assigners of two versions do not undo
// each other's rosters.
const keyAssign = "assign"

// firstAssign is the method of a Record that names none.
const firstAssign = 1

// Assign is the method of assignment that r wants. A newer muster may know more methods than this one.
func Assign(r *resource.Record) int {
	n := firstAssign
	if r != nil && r.Extra[keyAssign] != nil {
		_ = json.Unmarshal(r.Extra[keyAssign], &n)
	}
	return max(n, firstAssign)
}
