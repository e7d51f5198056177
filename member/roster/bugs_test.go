package roster_test

import (
	"testing"

	"muster/member/roster"
)

// TestVersionsOfUnequalLengthAreOrdered: the comparison of the old "task leader by version" held only for versions with
// equally many numbers, and was not transitive.
func TestVersionsOfUnequalLengthAreOrdered(t *testing.T) {
	ordered := []string{
		"0.9", "1", "1.0.0.1", "1.0.1", "1.9", "1.10-rc.1", "1.10", "1.10.0.0.3", "2.0.0-alpha", "2.0.0-rc.2", "2", "10.0",
	}
	duty := crons(1)
	for i, older := range ordered {
		for j, newer := range ordered[i+1:] {
			for _, first := range []int32{0, 5} { // who is senior does not matter
				in := roster.Input{
					Duties: duty, Members: append(crew(first, 1, older, duty), crew(5-first, 1, newer, duty)...),
				}
				if got := roster.Assign(in).Posts[0].Seat; got != 5-first {
					t.Errorf("%s (%d) leads before %s (%d)", older, i, newer, i+1+j)
				}
			}
		}
	}
}

// TestSameVersionInOtherWords: versions that mean the same are one, so nothing moves.
func TestSameVersionInOtherWords(t *testing.T) {
	duty := crons(4)
	in := roster.Input{Duties: duty, Members: append(crew(0, 1, "2.0.0", duty), crew(1, 1, "2", duty)...)}
	for range 3 {
		r, _ := follow(&in)
		if spread(r) != 0 {
			t.Errorf("holders: %v", r.Holders())
		}
	}
}

// TestManyDutiesHaveManyHolders: five random numbers chose the leaders, so there were five at most.
func TestManyDutiesHaveManyHolders(t *testing.T) {
	duties := crons(200)
	for _, members := range []int32{1, 2, 5, 6, 40, 199, 200, 300} {
		r := roster.Assign(roster.Input{Duties: duties, Members: crew(0, members, "1.0", duties)})
		loads := map[int32]int{}
		for _, seat := range r.Holders() {
			loads[seat]++
		}
		if len(loads) != min(int(members), len(duties)) || spread(r) > 1 {
			t.Errorf("%d members: %d of them have a duty, and the loads differ by %d", members, len(loads), spread(r))
		}
	}
}
