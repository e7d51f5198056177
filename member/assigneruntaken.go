package member

import (
	"context"
	"fmt"
	"time"

	"muster/group"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// A member that is live and does not take what it was given would keep everybody from it. So the assigner looks at held
// twice in a session timeout: if it is missing at two looks in a row, the member has given the duty up and is to blame.
// Who is only slow loses nothing by that but this duty: a take checks the seat, which the assigner sets. While somebody
// holds the duty, such as its last holder, nothing counts against the next one. Then the assigner watches held, so that
// it asks nothing, until it is deleted.

// post is what the assigner knows of a duty that it gave.
type post struct {
	seat string
	held <-chan struct{} // what happens to held; nil: it was missing at the last look, or there was none
	free bool            // it was missing at the last look
	look time.Time       // when the next one is due, if it is not watched
}

// findUntaken finds the duties that nobody has taken, and returns errAgain if there are any. next is when it must look
// again though nothing happens; 0 is never.
func (f *office) findUntaken(ctx context.Context, g group.Group) (next time.Duration, err error) {
	half := time.Duration(g.Timeouts.Session) / 2
	now, posts, due := time.Now(), map[string]post{}, []string(nil)
	for seat, s := range f.seats {
		for _, d := range s.seat.Duties {
			if _, declared := g.Duty(d); !declared {
				continue
			}
			p := f.posts[d]
			if p.seat != seat || p.held != nil && happened(p.held) {
				p = post{seat: seat, look: now.Add(half)}
			}
			if p.held == nil && !p.look.After(now) {
				due = append(due, d)
			}
			posts[d] = p
		}
	}
	f.posts, f.untaken = posts, map[string]string{}
	if err := f.lookForHolders(ctx, due, half); err != nil {
		return 0, err
	}
	for _, p := range posts {
		if wait := max(p.look.Sub(now), 1); p.held == nil && (next == 0 || wait < next) {
			next = wait
		}
	}
	if len(f.untaken) > 0 {
		return 0, errAgain
	}
	return next, nil
}

// lookForHolders looks whether somebody holds these duties.
func (f *office) lookForHolders(ctx context.Context, duties []string, half time.Duration) error {
	events, err := zkstate.ForEach(ctx, duties, func(ctx context.Context, d string) (<-chan struct{}, error) {
		_, there, event, err := f.m.session.ExistsW(ctx, znode.Held(f.m.root, f.m.Generation, d))
		if !there {
			event = nil
		}
		return event, err
	})
	if err != nil {
		return err
	}
	for i, d := range duties {
		p := f.posts[d]
		switch {
		case events[i] != nil:
			f.wakeAt(ctx, events[i], half) // not at once: the next holder has the duty in no time
		case p.free:
			f.untaken[d] = p.seat
		}
		f.posts[d] = post{seat: p.seat, held: events[i], free: events[i] == nil, look: time.Now().Add(half)}
	}
	return nil
}

func notTaken(g group.Group) string {
	return fmt.Sprintf("it was given the duty and has not taken it within %s", g.Timeouts.Session)
}

// tellUntaken tells of duties that were taken away.
func (f *office) tellUntaken(g group.Group, untaken map[string]string) {
	for d, seat := range untaken {
		if s := f.seats[seat]; s != nil {
			f.m.emit(Event{Kind: EventNotTaken, Duty: d, Text: s.seat.Identity + ": " + notTaken(g)})
		}
	}
}
