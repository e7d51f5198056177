package member

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Event is something that happened to a member.
type Event struct {
	Time  time.Time // by the clock of this machine
	Kind  EventKind
	Duty  string // "" if it is about no duty
	Epoch int64  // of the hold; 0 if there is none
	Text  string // for people; may be empty
	Run   *Ended // of a run that has ended; nil: of none, or its holder was lost
}

// EventKind says what happened.
type EventKind string

// The kinds of events. EventLost is the end of a hold that nobody in this process asked for. EventMissed stands for
// events that a slow reader did not get: Text says how many.
const (
	EventGiven         EventKind = "given"
	EventTaken         EventKind = "taken"
	EventHandOver      EventKind = "hand-over"
	EventReleased      EventKind = "released"
	EventResigned      EventKind = "resigned"
	EventLost          EventKind = "lost"
	EventRunStarted    EventKind = "run-started"
	EventRunEnded      EventKind = "run-ended"   // with success
	EventRunFailed     EventKind = "run-failed"  // or it was interrupted, or lost with the holder before
	EventNotTaken      EventKind = "not-taken"   // of another member: this one is the assigner
	EventPassedOver    EventKind = "passed-over" // another member: this one is the assigner instead
	EventAssigner      EventKind = "assigner"
	EventAssignerEnded EventKind = "assigner-ended"
	EventMissed        EventKind = "missed"
)

// maxEvents is how many events wait for readers.
const maxEvents = 1000

// Events yields what happens to this member from the call on, in order, until ctx or the membership ends. Every duty
// that is held when the membership ends has one more event then.
//
// A reader never delays the member. If 1,000 events wait for it, the oldest are dropped for the next ones, and the
// reader gets one event of the kind EventMissed in their place. The sequence can be read once.
func (m *Member) Events(ctx context.Context) iter.Seq[Event] {
	next := m.events.count()
	return func(yield func(Event) bool) {
		for ctx.Err() == nil {
			all, missed, more := m.events.after(next)
			if next += missed + len(all); missed > 0 {
				text := fmt.Sprintf("%d events", missed)
				all = slices.Insert(all, 0, Event{Time: all[0].Time, Kind: EventMissed, Text: text})
			}
			for _, e := range all {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
			if more == nil {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

// emit tells the readers of Events.
func (m *Member) emit(e Event) {
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	m.events.add(e)
}

// events keeps the newest events for its readers. The zero value is ready to use.
type events struct {
	mu       sync.Mutex
	newest   []Event          // at most maxEvents
	dropped  int              // how many came before these
	more     chan struct{}    // closed at the next event, and at the end; nil: nobody waits for that
	held     map[string]int64 // epochs of the duties that were taken, and not given back or lost
	assigner bool
	closed   bool
}

func (l *events) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped + len(l.newest)
}

// after returns the events that came after the first n, but for those that are missed. more is closed when there are
// others; it is nil if there will be nothing else.
func (l *events) after(n int) (all []Event, missed int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed = max(0, l.dropped-n)
	all = slices.Clone(l.newest[n+missed-l.dropped:])
	if l.closed {
		return all, missed, nil
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return all, missed, l.more
}

// wake tells those who wait for more. l is locked.
func (l *events) wake() {
	if l.more != nil {
		close(l.more)
	}
	l.more = nil
}

// add passes an event on. l is locked.
func (l *events) add(e Event) {
	if l.closed {
		return
	}
	e.Time = time.Now()
	switch e.Kind {
	case EventTaken:
		if l.held == nil {
			l.held = map[string]int64{}
		}
		l.held[e.Duty] = e.Epoch
	case EventReleased, EventResigned, EventLost:
		if l.held[e.Duty] != e.Epoch {
			return // it was told already
		}
		delete(l.held, e.Duty)
	case EventAssigner, EventAssignerEnded:
		if is := e.Kind == EventAssigner; l.assigner == is {
			return
		}
		l.assigner = !l.assigner
	}
	if len(l.newest) == maxEvents {
		l.newest = l.newest[1:]
		l.dropped++
	}
	l.newest = append(l.newest, e)
	l.wake()
}

// close ends the events of a membership that ended with cause.
func (l *events) close(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := EventLost
	if errors.Is(cause, context.Canceled) {
		kind = EventReleased
	}
	for _, duty := range slices.Sorted(maps.Keys(l.held)) {
		l.add(Event{Kind: kind, Duty: duty, Epoch: l.held[duty], Text: cause.Error()})
	}
	l.add(Event{Kind: EventAssignerEnded, Text: cause.Error()})
	l.closed = true
	l.wake()
}

// Leader is who holds a duty, as followers see it. The zero Leader is nobody.
type Leader struct {
	Identity string    `json:"identity"`
	Address  string    `json:"address,omitempty"`
	Version  string    `json:"version"`
	Epoch    int64     `json:"epoch"` // see Hold
	Since    time.Time `json:"since"` // by ZooKeeper's clock
}

// Follow yields who holds a duty now, and again whenever that has changed; nobody between two holders. Changes that
// follow each other closely may come as one. It writes nothing and needs no membership. It ends when the loop does, or
// with an error: ctx's, why the session ended, ErrNoGroup, or at the beginning ErrNoDuty. A duty that is taken out of
// the group later has nobody. What it has read stays watched until the session ends.
func Follow(ctx context.Context, s *zkconn.Session, root, name, duty string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		mirror := zkstate.NewMirror(s) // reads again only what has changed
		look := mirror.Look()
		defer func() { look.Close() }()
		first, last := true, Leader{}
		for {
			l, err := readLeader(ctx, look, root, name, duty)
			if s.Context().Err() != nil {
				err = context.Cause(s.Context())
			}
			if err != nil && (first || !errors.Is(err, ErrNoDuty)) {
				yield(Leader{}, err)
				return
			}
			if (first || l != last) && !yield(l, nil) {
				return
			}
			first, last = false, l
			select {
			case <-look.Changed(): // also when the session ends
			case <-ctx.Done():
				yield(Leader{}, context.Cause(ctx))
				return
			}
			next := mirror.Look()
			look.Close()
			look = next
		}
	}
}

// readLeader returns who holds a duty. ErrNoDuty means that nobody does, and that it is not declared.
func readLeader(ctx context.Context, s zkstate.Source, root, name, duty string) (Leader, error) {
	rec, _, err := zkstate.ReadRecord(ctx, s, group.Kind(), resource.Join(root, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return Leader{}, ErrNoGroup
	}
	if err != nil {
		return Leader{}, err
	}
	text, stat, err := s.Get(ctx, znode.Held(root, rec.Generation, duty))
	if errors.Is(err, zkconn.ErrNoNode) {
		if _, declared := group.Of(&rec).Duty(duty); !declared {
			return Leader{}, ErrNoDuty
		}
		return Leader{}, nil
	}
	if err != nil {
		return Leader{}, err
	}
	holder, err := znode.Decode[znode.Holder](text)
	// held was made in the transaction that set the duty, whose zxid is the epoch.
	return Leader{holder.Identity, holder.Address, holder.Version, stat.Czxid, stat.Ctime}, err
}
