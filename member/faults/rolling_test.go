package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

const duties = 40

// TestRollingUpgrade: four members of 1.9, then four of 2.0 join one by one, then the old ones leave. There are 40
// crons.
func TestRollingUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		promote group.PromoteAfter
		enough  int // members of 2.0
	}{
		"first_member": {"1", 1},
		"half":         {"50%", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upgrade(t, c.promote, c.enough)
		})
	}
}

// upgrade runs the whole upgrade. So many members of the new version are enough for it to count as newest.
func upgrade(t *testing.T, promote group.PromoteAfter, enough int) {
	w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
		g.Settle, g.PromoteAfter = resource.Duration(time.Second), promote
		g.Timeouts.Session = resource.Duration(time.Minute) // nobody is lost on a busy machine: that moves duties
		for i := range duties {
			d := group.NewDuty(group.Cron, fmt.Sprintf("cron-%02d", i))
			d.Schedule, d.Keep, d.Missed = "@every 2s", 100, group.MissedAll
			g.Add(d)
		}
	})
	u := &upgradeRun{world: w, books: newBooks(w), version: map[string]string{}}
	for i := range 4 {
		u.join(fmt.Sprint("old-", i), "1.9")
	}
	takes := u.settled(u.of("1.9"))
	for i := range 4 {
		before := u.loads()
		u.join(fmt.Sprint("new-", i), "2.0")
		wanted := u.of("1.9")
		if i+1 >= enough {
			wanted = u.of("2.0")
		}
		takes += u.step(t, fmt.Sprint("new-", i, " joins"), takes, before, wanted)
		if i+1 == enough {
			u.promoted = u.zxidOfSeat(t, "new-")
		}
	}
	for i := range 4 {
		before := u.loads()
		id := fmt.Sprint("old-", i)
		if err := w.members[id].leave(time.Minute); err != nil {
			t.Fatal(err)
		}
		if code := w.members[id].run.Code(); code != 0 && code != 143 {
			t.Errorf("%s ended with %d", id, code)
		}
		delete(u.version, id)
		takes += u.step(t, id+" leaves", takes, before, u.of("2.0"))
	}
	until := time.Now().Add(6 * time.Second).UTC()
	rig.Until(t, 2*time.Minute, "two more ticks", func() string { return past(t, u.books, until) })
	if n := u.takes(); n != takes {
		t.Errorf("%d duties moved after the last step", n-takes)
	}
	finish(t, u.books, u.checkVersions)
}

// upgradeRun is the state of an upgrade.
type upgradeRun struct {
	*world
	books    *books
	version  map[string]string // of each live member
	promoted int64             // zxid of the transaction that gave the new version its first duties
}

// join starts another member.
func (u *upgradeRun) join(identity, version string) {
	u.version[identity] = version
	u.add(identity, version, false, false)
}

// of lists the live members of a version.
func (u *upgradeRun) of(version string) (ids []string) {
	for id, v := range u.version {
		if v == version {
			ids = append(ids, id)
		}
	}
	return ids
}

// takes is how often any duty was taken so far.
func (u *upgradeRun) takes() int {
	n := 0
	for _, d := range u.group.Duties {
		// A version per take: each is one write of this znode.
		if _, stat, err := u.session().Get(u.t.Context(), znode.Duty(u.group.Root, u.generation, d.Name)); err == nil {
			n += int(stat.Version)
		}
	}
	return n
}

// settled waits until these members share the duties evenly, and nobody else has any. It returns how often
// duties were taken so far.
func (u *upgradeRun) settled(wanted []string) int {
	u.t.Helper()
	rig.Until(u.t, 2*time.Minute, "an even roster", func() string {
		if o := u.look(); o == nil || o.Live != len(u.version) {
			return fmt.Sprintf("not all members are live: %+v", o)
		}
		n := u.loads()
		for _, id := range wanted {
			if share := n[id]; share != duties/len(wanted) && share != (duties-1)/len(wanted)+1 {
				return fmt.Sprintf("%v of %v", n, wanted)
			}
			delete(n, id)
		}
		if len(n) > 0 {
			return fmt.Sprintf("%v are held by others than %v", n, wanted)
		}
		return ""
	})
	if err := u.books.read(u.t.Context()); err != nil {
		u.t.Error(err)
	}
	return u.takes()
}

// step waits until the wanted members share the duties, and checks that no duty has moved without need. It returns how
// many moved.
func (u *upgradeRun) step(t *testing.T, what string, takes int, before map[string]int, wanted []string) int {
	t.Helper()
	moved := u.settled(wanted) - takes
	if best := fewestMoves(before, wanted); moved != best {
		t.Errorf("%s: %d duties moved, and %d are enough: %v to %v", what, moved, best, before, u.loads())
	}
	t.Logf("%s: %d duties moved", what, moved)
	return moved
}

// fewestMoves is how many of the duties must move so that the wanted members share them evenly.
func fewestMoves(before map[string]int, wanted []string) int {
	total := 0
	for _, n := range before {
		total += n
	}
	kept := make([]int, 0, len(wanted))
	for _, id := range wanted {
		kept = append(kept, before[id])
	}
	slices.Sort(kept)
	slices.Reverse(kept)
	stay := 0
	for i, n := range kept { // those with the most may have one more
		share := total / len(wanted)
		if i < total%len(wanted) {
			share++
		}
		stay += min(n, share)
	}
	return total - stay
}

// zxidOfSeat is the transaction that gave the first duties to the new members: until then their seats were not written.
func (u *upgradeRun) zxidOfSeat(t *testing.T, prefix string) int64 {
	t.Helper()
	seats := znode.Seats(u.group.Root, u.generation)
	names, _, err := u.session().Children(t.Context(), seats)
	if err != nil {
		t.Fatal(err)
	}
	var zxid int64
	for _, name := range names {
		body, stat, err := u.session().Get(t.Context(), seats+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		seat, err := znode.Decode[znode.Seat](body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(seat.Identity, prefix) {
			continue
		}
		if zxid != 0 && zxid != stat.Mzxid || stat.Version != 1 {
			t.Errorf("the new members were not given all duties in one transaction: %s has version %d", name, stat.Version)
		}
		zxid = stat.Mzxid
	}
	return zxid
}

// checkVersions says which ticks an old version claimed after the new one had the duty, and which runs of an old
// version came after one of the new.
func (u *upgradeRun) checkVersions(l *ledger, runs []run) (problems []string) {
	for at, r := range l.records {
		if !r.Range() && r.created > u.promoted && strings.HasPrefix(r.By, "old-") {
			problems = append(problems, fmt.Sprintf("%s: %s claimed %s after the promotion", l.duty.Name, r.By, at))
		}
	}
	for i, r := range runs[1:] {
		if r.version == "1.9" && runs[i].version == "2.0" {
			problems = append(problems, fmt.Sprintf("%s: %s ran after %s", l.duty.Name, r.who, runs[i].who))
		}
	}
	return problems
}
