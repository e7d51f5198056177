// Package ticks decides what the holder of a cron duty does: which ticks it claims as runs, which it records as missed
// or skipped, what waits, and when to look again. It is pure: it reads no clock, starts nothing and writes nothing.
//
// The cursor is the last tick that has a fate. Every decision moves it to the last tick that is due, and gives each
// tick that it passes exactly one fate: a run of its own, missed, or skipped. The caller writes a decision as one
// transaction that sets the cursor, if it moves, at the version read, and only then keeps its State and starts its run.
// So a tick has one fate whatever dies when.
//
// Ticks that fall due while a run goes on or waits are overlapped: one may wait, the others are skipped. All other
// ticks that are due at once are judged together, whether nobody held the duty or the holder came late: the newest ones
// run, as many as the policy says, one after another, and the older ones are missed. The newest runs in any case if it
// is not older than the start deadline.
//
// The ticks that one decision misses or skips are one Range each, however many there are. The work of a decision does
// not depend on their number: it looks for the newest, and counts to 1,000.
//
// A run that begins again has an attempt of a higher number. While it waits for that, it is not over: nothing else of
// the duty runs. Only a run of which an attempt goes on can be lost. Failures use up the retries. A lost attempt has a
// number too, but is repeated even if no retry is left.
//
// It refuses to move the cursor back: neither a wrong clock nor an edit can claim a tick again.
package ticks

import (
	"cmp"
	"slices"
	"time"

	"muster/resource/group/schedule"
)

const (
	// MaxWaiting is how many runs wait at most. The ticks of missed = "all" that are older are missed.
	MaxWaiting = 100

	// quiet is how often a holder looks while all that a tick could be is skipped.
	quiet = time.Minute

	// maxCount is how far a Range counts.
	maxCount = 1000
)

// Policy is what the declaration of a cron says beside its schedule.
type Policy struct {
	StartDeadline time.Duration // with Missed 0: a tick that is older when the holder looks is missed
	Missed        int           // so many missed ticks run: 0 for "skip", 1 for "latest", MaxWaiting for "all"
	Wait          bool          // overlap = "wait": one tick waits while a run goes on; else it is skipped
	Rerun         bool          // lost = "rerun": a lost attempt is repeated; else the run is over
	Retries       int           // a failed run begins again, until it has had so many attempts more than one
}

// Cron is a cron duty as its holder knows it.
type Cron struct {
	Schedule schedule.Schedule
	Policy   Policy
	Leaving  bool // it starts nothing, and releases the duty when nothing runs
}

// State is what ZooKeeper holds about a cron duty, without the runs that are over.
type State struct {
	Cursor Cursor
	Runs   []Run // in any order
}

// Cursor is the last tick that has a fate. It is a time in UTC; right after an edit it need not be a tick.
type Cursor struct {
	Tick   time.Time
	Digest string // of the schedule; another one: it was edited, or there is no cursor yet
}

// Run is a run that is claimed and not over. Tick and Asked identify it.
type Run struct {
	Tick  time.Time // zero: an operator asked for it
	Asked int64     // the number of that request, from 1; 0: it is a tick

	Attempt int       // the number of attempts that have begun
	Running bool      // the last one goes on, or its holder is lost
	Since   time.Time // when the last attempt began; if the run waits after a failure, when it ended
}

// Outcome is what the record of a run says.
type Outcome string

// A run that waits has the number of its attempts. The other three are final.
const (
	Running Outcome = "running"
	Waiting Outcome = "waiting"
	Done    Outcome = "done"
	Failed  Outcome = "failed"
	Lost    Outcome = "lost"
)

// Record is a record of a run to write.
type Record struct {
	Run     Run
	Outcome Outcome
	New     bool // to be created: this claims its tick
}

// Range is a number of ticks that follow each other and have one fate. Count is zero if there are none. One record
// holds them, under the name of the last: the cursor passes it only once, so no other record has that name.
type Range struct {
	First, Last time.Time
	Count       int
	More        bool // there are more than Count
}

// Decision is what to do. If Write is set, the caller writes, in one transaction: the cursor, the Records and the two
// Ranges. It does the rest once that is written. If it could not be written, the decision never was; if that is
// unknown, the caller reads what is there.
type Decision struct {
	State   State
	Write   bool
	Records []Record
	Missed  Range // nobody looked in time
	Skipped Range // a run went on, or waited

	Start   *Run      // to be started now
	Resign  bool      // this member cannot run it; Release is set too
	Release bool      // to be written in the same transaction: the duty is not held any more
	Again   time.Time // look again then; zero: when something ends or changes
}

// Result is how an attempt ended.
type Result int

// The ends of an attempt.
const (
	Succeeded    Result = iota // exit 0
	Unsuccessful               // another exit code, or the timeout
	CannotRun                  // exit 126 or 127: it failed, and the holder resigns, because another may do better
	NotStarted                 // the operating system refused to start it: the same, but it was no attempt
	Interrupted                // by the holder itself, which leaves: it counts as lost
)

// ResultOf says what the exit code of a command means. 126 and 127 are what shells return for a command that cannot be
// executed or is not found; a script that came to its end may return them too, so the attempt counts.
func ResultOf(exit int) Result {
	switch exit {
	case 0:
		return Succeeded
	case 126, 127:
		return CannotRun
	}
	return Unsuccessful
}

// Resume returns the cursor of a duty whose pause ends, or whose schedule was edited: what is due is forgotten. It
// never goes back. Whoever ends a pause writes the cursor in the same transaction, because to a later holder those
// ticks would be missed. An edit needs no such call.
func (c Cron) Resume(was Cursor, now time.Time) Cursor {
	at := now.UTC().Round(0).Truncate(time.Second)
	if was.Tick.After(at) {
		at = was.Tick
	}
	return Cursor{Tick: at, Digest: c.Schedule.Digest()}
}

// begun reports whether the run has had an attempt: it goes on, or it waits for the next one.
func (r Run) begun() bool { return r.Attempt > 0 || r.Running }

// Is reports whether both are the same run.
func (r Run) Is(other Run) bool { return r.Asked == other.Asked && r.Tick.Equal(other.Tick) }

// sorted returns the runs in the order in which they run: what has begun, what an operator asked for, then ticks by
// time.
func sorted(runs []Run) []Run {
	rank := func(r Run) (n int) {
		if !r.begun() {
			n += 2
		}
		if r.Asked == 0 {
			n++
		}
		return n
	}
	return slices.SortedStableFunc(slices.Values(runs), func(a, b Run) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Asked, b.Asked), a.Tick.Compare(b.Tick))
	})
}

// Delay is how long a run, or anything else that failed, waits after an attempt of this number: a second, doubled each
// time, at most five minutes.
func Delay(attempt int) time.Duration {
	const longest = 5 * time.Minute
	if attempt > 9 { // 2^9 seconds are more
		return longest
	}
	return min(time.Second<<(attempt-1), longest)
}

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
