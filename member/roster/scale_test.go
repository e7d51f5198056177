package roster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-version"

	"muster/member/roster"
	"muster/resource/group"
)

// crons returns duties that prefer the newest version.
func crons(n int) []roster.Duty {
	var duties []roster.Duty
	for i := range n {
		duties = append(duties, roster.Duty{Name: fmt.Sprintf("cron-%04d", i), Newest: true})
	}
	return duties
}

// crew returns settled members of a version that can do all duties.
func crew(first, n int32, text string, duties []roster.Duty) []roster.Member {
	var can []string
	for _, d := range duties {
		can = append(can, d.Name)
	}
	v := version.Must(version.NewVersion(text))
	var members []roster.Member
	for i := range n {
		members = append(members, roster.Member{Seat: first + i, Version: v, Can: can, Ready: true, Age: time.Hour})
	}
	return members
}

// follow returns the next roster, and how many duties have another holder than in the last one. It remembers in in.
func follow(in *roster.Input) (roster.Roster, int) {
	r := roster.Assign(*in)
	moves := 0
	for duty, seat := range r.Holders() {
		if last, held := in.Holders[duty]; !held || last != seat {
			moves++
		}
	}
	*in = naive{*in}.after(r)
	return r, moves
}

// spread returns how much the loads of the members differ that have any.
func spread(r roster.Roster) int {
	loads := map[int32]int{}
	for _, seat := range r.Holders() {
		loads[seat]++
	}
	least, most := len(r.Posts), 0
	for _, n := range loads {
		least, most = min(least, n), max(most, n)
	}
	return most - least
}

// TestRollingUpgrade replaces 4 members of 1.9.0 by 4 of 2.0.0, one after the other. Each step has the fewest moves
// that there can be: what 1.9.0 has, or else the share of the newcomer.
func TestRollingUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		promote group.PromoteAfter
		want    []int // when each of the 4 new members is settled
	}{
		"promoted by one":          {"1", []int{40, 20, 13, 10}},
		"promoted by half as many": {"50%", []int{0, 40, 13, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			duties := crons(40)
			in := roster.Input{
				Settle: 5 * time.Second, Enough: c.promote.Members, Duties: duties, Members: crew(0, 4, "1.9.0", duties),
			}
			if _, moves := follow(&in); moves != 40 {
				t.Fatalf("40 duties were vacant, and %d were filled", moves)
			}
			var got []int
			for seat := range int32(4) {
				newcomer := crew(4+seat, 1, "2.0.0", duties)[0]
				newcomer.Age = time.Second
				in.Members = append(in.Members, newcomer)
				if r, moves := follow(&in); moves != 0 {
					t.Errorf("%d duties moved to seat %d, which is 1s old:\n%s", moves, newcomer.Seat, describe(r))
				}
				in = naive{in}.later(in.Settle - newcomer.Age)
				r, moves := follow(&in)
				got = append(got, moves)
				checkUpgraded(t, r, moves > 0)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("moves (-want +got):\n%s", d)
			}
			for range 4 {
				in.Members = in.Members[1:]
				r, moves := follow(&in)
				checkUpgraded(t, r, true)
				if moves != 0 {
					t.Errorf("%d duties moved when an old member left that had none", moves)
				}
			}
		})
	}
}

// checkUpgraded: the loads are even, and once the new version is promoted no old member has a duty.
func checkUpgraded(t *testing.T, r roster.Roster, promoted bool) {
	t.Helper()
	const firstNew = 4
	old := slices.ContainsFunc(r.Posts, func(p roster.Post) bool { return p.Seat < firstNew })
	if n := spread(r); n > 1 || old == promoted {
		t.Errorf("loads differ by %d, an old member has duties: %t\n%s", n, old, describe(r))
	}
}

// TestDeathMovesOnlyItsOwnDuties: 100 members have 10 of 1,000 duties each, and one dies.
func TestDeathMovesOnlyItsOwnDuties(t *testing.T) {
	duties := crons(1000)
	in := roster.Input{Duties: duties, Members: crew(0, 100, "1.0.0", duties)}
	if r, _ := follow(&in); spread(r) != 0 {
		t.Fatalf("loads differ by %d", spread(r))
	}
	const dead = 42
	before := in.Holders
	in.Members = slices.Delete(in.Members, dead, dead+1)
	r, moves := follow(&in)
	if moves != 10 || spread(r) != 1 {
		t.Errorf("%d duties have another holder, loads differ by %d; want 10 and 1", moves, spread(r))
	}
	for _, p := range r.Posts {
		if was := before[p.Duty]; was != dead && p.Seat != was {
			t.Errorf("%s moved from %d to %d, and %d died", p.Duty, was, p.Seat, dead)
		}
	}
}

// large returns groups of 100 members.
func large(duties []roster.Duty) map[string]roster.Input {
	const members = 100
	vacant := roster.Input{Duties: duties, Members: crew(0, members, "1.0.0", duties)}

	one, two := vacant, vacant
	one.Holders, two.Holders = map[string]int32{}, map[string]int32{}
	for i, d := range duties {
		one.Holders[d.Name] = 0
		two.Holders[d.Name] = int32(members - 1 - i%2)
	}

	// Every member can do a tenth of the duties, and the holders are drawn.
	r := rand.New(rand.NewPCG(1, 1))
	picky := roster.Input{Duties: duties, Members: crew(0, members, "1.0.0", nil), Holders: map[string]int32{}}
	for _, d := range duties {
		picky.Holders[d.Name] = r.Int32N(members)
		for m := range picky.Members {
			if r.IntN(10) == 0 {
				picky.Members[m].Can = append(picky.Members[m].Can, d.Name)
			}
		}
	}
	return map[string]roster.Input{"vacant": vacant, "one has all": one, "two have all": two, "picky": picky}
}

// TestAThousandDutiesInASecond measures the time of processors, since the machine has other work to do. It takes a
// tenth of the second or less.
func TestAThousandDutiesInASecond(t *testing.T) {
	for name, in := range large(crons(1000)) {
		start := processorTime(t)
		r := roster.Assign(in)
		if took := processorTime(t) - start; took > time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		if n := spread(r); n > 1 {
			t.Errorf("%s: loads differ by %d", name, n)
		}
	}
}

// processorTime returns what this process has used. No other test runs at the same time.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{500, 1000} {
		for name, in := range large(crons(n)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					roster.Assign(in)
				}
			})
		}
	}
}

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
