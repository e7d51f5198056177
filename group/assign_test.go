package group_test

import (
	"encoding/json"
	"testing"

	"muster/group"
	"muster/resource"
)

// TestAssign: a Record without a method, or with one that cannot be read, wants the first; an apply raises it to what
// every live member knows, and never lowers it.
func TestAssign(t *testing.T) {
	was := map[string]json.RawMessage{"other": json.RawMessage(`7`)}
	rec := &resource.Record{Extra: was}
	if got := group.Assign(rec); got != 1 {
		t.Errorf("without one: %d", got)
	}
	group.SetAssign(rec, 3)
	if got := group.Assign(rec); got != 3 || string(rec.Extra["other"]) != "7" || len(was) != 1 {
		t.Errorf("%d in %s, was %s", got, rec.Extra, was)
	}
	for _, c := range []struct {
		newest int
		known  []int
		want   int
	}{
		{5, nil, 5}, {5, []int{6, 4, 5}, 4}, {5, []int{1}, 3}, {2, nil, 3},
	} {
		if got := group.NextAssign(rec, c.newest, c.known); got != c.want {
			t.Errorf("NextAssign(%d, %v) = %d, want %d", c.newest, c.known, got, c.want)
		}
	}
	rec.Extra = map[string]json.RawMessage{"assign": json.RawMessage(`"x"`)}
	if got := group.Assign(rec); got != 1 {
		t.Errorf("unreadable: %d", got)
	}
}
