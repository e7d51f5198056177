package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"muster/group"
	"muster/group/schedule"
	"muster/member/ticks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The assigner does two things for crons. When a pause ends, it sets the cursor to now in the transaction that ends the
// pause: what fell due meanwhile is forgotten. And it remembers which members have resigned because their clocks differ
// from ZooKeeper's, so that they can tell when it is ZooKeeper's clock that is wrong.

// maxClocks is how many wrong clocks the assigner remembers.
const maxClocks = 500

// decideCrons changes the assigner's memory, and notes which cursors the decision sets. old is the memory as it was
// read.
func (f *office) decideCrons(ctx context.Context, g group.Group, old znode.AssignerMemory) error {
	f.noteClocks()
	f.judgeClocks(g)
	for _, d := range g.Duties {
		_, was := old.Paused[d.Name]
		if _, is := f.memory.Paused[d.Name]; d.Type != group.Cron || !was || is {
			continue
		}
		if err := f.resumeCron(ctx, d, old.ClockWrong[d.Name] != ""); err != nil {
			return fmt.Errorf("cursor of %s: %w", d.Name, err)
		}
	}
	return nil
}

// noteClocks remembers the clocks of members that resigned because of them, as long as they live.
func (f *office) noteClocks() {
	clocks := map[string]int64{}
	for seat, ms := range f.memory.Clocks {
		if f.seats[seat] != nil {
			clocks[seat] = ms
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f.resigned)) {
		r := f.resigned[path]
		if _, known := clocks[r.Seat]; r.ClockMS != 0 && f.seats[r.Seat] != nil && (known || len(clocks) < maxClocks) {
			clocks[r.Seat] = r.ClockMS
		}
	}
	f.memory.Clocks = clocks
}

// judgeClocks finds the crons that no member can have whose clock agrees with ZooKeeper's.
func (f *office) judgeClocks(g group.Group) {
	f.memory.ClockWrong = znode.ByDuty{}
	if len(f.memory.Clocks) == 0 {
		return
	}
	for _, d := range g.Duties {
		if d.Type == group.Cron && f.allWrong(d) {
			f.memory.ClockWrong[d.Name] = znode.ClockOfZooKeeper
		}
	}
}

// allWrong reports whether each member that may have the duty has a wrong clock.
func (f *office) allWrong(d group.Duty) bool {
	able := 0
	for name, s := range f.seats {
		if s.present == nil || !s.present.Ready || !f.fits(d, *s.present) {
			continue
		}
		if f.memory.Clocks[name] == 0 {
			return false
		}
		able++
	}
	return able > 0
}

// fits reports whether a live member may have the duty: it can do it, and has the right version.
func (f *office) fits(d group.Duty, p znode.Present) bool {
	newest := f.memory.Newest[d.Name] // as the last roster says; "" if nobody could do it
	return slices.Contains(p.Can, d.Name) && d.Fits(p.Version) &&
		(d.Prefer != group.Newest || newest == "" || group.CompareVersions(newest, p.Version) == 0)
}

// resumeCron sets the cursor of a cron whose pause ends. There is none if nobody has had it.
func (f *office) resumeCron(ctx context.Context, d group.Duty, clockWrong bool) error {
	at := znode.Cursor(f.m.root, f.m.Generation, d.Name)
	body, stat, err := f.m.session.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	cursor, err := znode.Decode[znode.TickCursor](body)
	if err != nil {
		return nil // the holder treats it as that of an edited schedule
	}
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	if err != nil {
		return err
	}
	now := f.now()
	if clockWrong { // the duty runs by the clock of its holder
		now = f.m.clock()
	}
	state := ticks.Cron{Schedule: sched}.Resume(ticks.State{Cursor: ticks.Cursor(cursor)}, now)
	if body, err = znode.Encode(znode.TickCursor(state.Cursor)); err != nil {
		return err
	}
	f.also = append(f.also, zkconn.SetOp(at, body, stat.Version))
	return nil
}
