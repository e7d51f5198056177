package ticks

import "time"

// maxOffset is how far the clock of a holder may be from ZooKeeper's.
const maxOffset = 30 * time.Second

// Offset is between which bounds one's own clock is ahead of ZooKeeper's; negative is behind.
type Offset struct{ Least, Most time.Duration }

// OffsetOf compares one's own clock before and after a write of one's own with the time that ZooKeeper gave to that
// write, its Mtime. The leader of the ensemble takes it while it handles the write, and cuts it to milliseconds.
func OffsetOf(before, mtime, after time.Time) Offset {
	// A monotonic clock would hide that the clock was set meanwhile.
	before, after = before.Round(0), after.Round(0)
	if after.Before(before) {
		before, after = after, before
	}
	return Offset{Least: before.Sub(mtime) - time.Millisecond, Most: after.Sub(mtime)}
}

// Wrong reports whether the two clocks differ by more than 30 seconds for certain. Then the holder runs nothing,
// because its ticks would come at the wrong time, and it would take those of others.
func (o Offset) Wrong() bool { return o.Least > maxOffset || o.Most < -maxOffset }

// Unclear reports whether the write took so long that the clocks may be right or wrong. Compare again.
func (o Offset) Unclear() bool { return !o.Wrong() && (o.Most > maxOffset || o.Least < -maxOffset) }
