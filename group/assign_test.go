package group_test

import (
	"encoding/json"
	"testing"

	"muster/group"
	"muster/resource"
)

// TestAssign: a Record without a method, or with one that cannot be read, wants the first.
func TestAssign(t *testing.T) {
	for text, want := range map[string]int{"": 1, "3": 3, "0": 1, `"x"`: 1} {
		rec := &resource.Record{}
		if text != "" {
			rec.Extra = map[string]json.RawMessage{"assign": json.RawMessage(text)}
		}
		if got := group.Assign(rec); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
