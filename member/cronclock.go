package member

import (
	"fmt"
	"time"

	"muster/member/ticks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The holder of a cron compares its clock with ZooKeeper's when it takes the duty, and whenever its clock was set: by a
// write that changes nothing, whose time ZooKeeper tells. A holder whose clock is wrong starts nothing, and resigns. So
// the assigner remembers why. ZooKeeper's clock is believed: if it is the wrong one, no cron runs.

const (
	maxJump    = 5 * time.Second // the clock was set if it moved by this more or less than time passed
	maxMeasure = 5               // how often a comparison is repeated that took too long to be clear
)

// clockCheck is what is known about the clock of this process.
type clockCheck struct {
	wall  time.Time     // by that clock, when it was last compared
	real  time.Time     // with Go's monotonic clock: the same moment
	ahead time.Duration // of ZooKeeper's clock, if wrong
	wrong bool
}

// jumped reports whether the clock was set since it was compared.
func (k clockCheck) jumped(now time.Time) bool {
	return (now.Round(0).Sub(k.wall) - time.Since(k.real)).Abs() > maxJump
}

// now is the time by which ticks fall due. If the own clock is wrong it is ZooKeeper's.
func (c *cron) now() time.Time { return c.m.clock().Add(-c.clock.ahead) }

// compareClock compares the clocks.
func (c *cron) compareClock() error {
	folder := znode.Ticks(c.m.root, c.m.Generation, c.h.Duty)
	var offset ticks.Offset
	var k clockCheck
	for range maxMeasure {
		before := c.m.clock()
		results, err := c.h.repeat(c.h.ctx, zkconn.SetOp(folder, nil, -1))
		if refusedAt(err, folder, zkconn.ErrNoNode) {
			if err := c.makeFolders(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		k.wall, k.real = c.m.clock().Round(0), time.Now()
		if offset = ticks.OffsetOf(before, results[0].Stat.Mtime, k.wall); !offset.Unclear() {
			break
		}
	}
	c.clock.wall, c.clock.real = k.wall, k.real
	if offset.Wrong() {
		c.clock.wrong, c.clock.ahead = true, offset.Least+(offset.Most-offset.Least)/2
	}
	return nil
}

// wrongClock is why a holder whose clock is wrong resigns.
func (c *cron) wrongClock() string {
	d, where := c.clock.ahead, "ahead of"
	if d < 0 {
		d, where = -d, "behind"
	}
	return fmt.Sprintf("its clock is %s %s ZooKeeper's: set it right", d.Round(time.Second), where)
}

// makeFolders creates what the records of a cron duty lie in.
func (c *cron) makeFolders() error {
	root, g := c.m.root, c.m.Generation
	if err := c.h.make(c.h.ctx, znode.Ticks(root, g, c.h.Duty), nil); err != nil {
		return err
	}
	return c.h.make(c.h.ctx, znode.Nows(root, g, c.h.Duty), nil)
}
