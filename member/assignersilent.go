package member

import (
	"context"
	"errors"
	"slices"
	"time"
)

// An assigner sets its memory after every change of the Record, of the seats and of the inboxes, also if nothing
// follows from it. So everybody sees whether it has decided. If it has not for a session timeout, the member with the
// next seat passes it over: it takes the office in a transaction that names that seat in the memory, at the version at
// which it saw the silence. From then on the other one counts as the last of all, so it does not take the office back:
// it gets it again only when nobody is left who was not passed over, or was silent after it. An assigner that wakes up
// writes nothing: the memory has another version, so it looks for its place again, and finds its seat there.

// maxPassed is how many seats that were passed over the assigner remembers: each takes a silence of its own.
const maxPassed = 100

// errPassed means that this member may not be the assigner any more, or not yet.
var errPassed = errors.New("somebody else has written as the assigner")

// silence is what is known of an assigner that does not decide.
type silence struct {
	seat    string
	version int32 // of the assigner's memory
}

// awaitSilence waits until the assigner with this seat has not decided for a session timeout. It returns nil when ctx
// ends.
func (m *Member) awaitSilence(ctx context.Context, seat string) *silence {
	f, noted := m.newOffice(), int64(0)
	for ctx.Err() == nil {
		o := m.orders()
		_, err := f.readFolders(ctx)
		switch {
		case err != nil: // nobody can tell
			noted = 0
		case o.stop || !f.undecided(o):
			noted = 0
			if f.await(ctx, o, 0) != nil {
				return nil
			}
		case noted > f.stat.Mzxid:
			return &silence{seat, f.stat.Version}
		default:
			noted = f.changed(o)
		}
		<-after(ctx, time.Duration(o.group.Timeouts.Session))
	}
	return nil
}

// changed is the zxid of the last change that an assigner has to look at.
func (f *office) changed(o orders) int64 {
	return max(o.edited, f.folders[0].changed, f.folders[1].changed, f.folders[2].changed)
}

// undecided reports whether no assigner has written since the last change.
func (f *office) undecided(o orders) bool { return f.changed(o) > f.stat.Mzxid }

// takeOffice notes in the memory who was passed over for this member.
func (f *office) takeOffice() {
	own := func(seat string) bool { return seat == f.m.seatName() }
	f.memory.Passed = slices.DeleteFunc(slices.Clone(f.memory.Passed), own)
	if f.over != nil {
		f.memory.Passed = append(f.memory.Passed, f.over.seat)
		slices.Sort(f.memory.Passed)
	}
	f.memory.Passed = f.memory.Passed[max(0, len(f.memory.Passed)-maxPassed):]
}

// tookOffice is called when the memory was written.
func (f *office) tookOffice() {
	if f.over != nil {
		text := f.over.seat
		if s := f.seats[f.over.seat]; s != nil {
			text = s.seat.Identity
		}
		f.m.emit(Event{Kind: EventPassedOver, Text: text + " had decided nothing for a session timeout"})
	}
	f.over = nil
}
