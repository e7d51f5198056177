package group_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/group"
)

func TestFits(t *testing.T) {
	for _, c := range []struct {
		versions, member string
		want             bool
	}{
		{"", "1.0", true}, {"", "anything", true},
		{">= 2.0", "2.0", true}, {">= 2.0", "1.9.9", false}, {">= 2.0", "anything", false},
		{">= 2.0", "2.1.0-rc1", false}, // as the roster says
	} {
		if got := (group.Duty{Versions: c.versions}).Fits(c.member); got != c.want {
			t.Errorf("%q fits %q: %v", c.member, c.versions, got)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	versions := []string{"10.0", "odd", "2.0", "1.9.0", "2.0-rc1", "even"}
	slices.SortFunc(versions, group.CompareVersions)
	if d := cmp.Diff([]string{"even", "odd", "1.9.0", "2.0-rc1", "2.0", "10.0"}, versions); d != "" {
		t.Errorf("in order (-want +got):\n%s", d)
	}
}
