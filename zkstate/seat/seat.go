package seat

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"

	"muster/resource"
	"muster/zkstate/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The errors with which a membership ends.
var (
	// ErrSessionLost means that the session has ended. Stop all commands, and join again.
	ErrSessionLost = zkconn.ErrSessionLost
	// ErrRemoved means that somebody deleted the seat, the live znode or another part of the resource by hand, or that
	// the resource was deleted. Stop all commands. Join again, if it still exists.
	ErrRemoved = errors.New("this process is no longer a member")
)

// Seat is a process's seat, until its Context ends.
type Seat struct {
	Config
	Session    *zkconn.Session
	Generation string
	Path       string       // of its znode
	ACL        []zkconn.ACL // of what it creates

	ctx context.Context // ends with the membership
	end context.CancelCauseFunc

	starting sync.Mutex     // held while Go begins something
	tasks    sync.WaitGroup // what Go has begun

	mu      sync.Mutex
	stop    bool          // the members were asked to stop
	changed chan struct{} // closed when that changes
}

// Context ends when the membership does. Its cause is ErrSessionLost, ErrRemoved, context.Canceled after Leave, or an
// error of zkconn, such as ErrNoAuth, if ZooKeeper refuses what a member needs.
func (s *Seat) Context() context.Context { return s.ctx }

// End ends the membership, unless it has ended. The session stays open until Leave.
func (s *Seat) End(why error) { s.end(why) }

// Gate is the znode that stands while the generation does.
func (s *Seat) Gate() string { return znode.Gate(s.Root, s.Generation) }

// Name is the name of the seat among all.
func (s *Seat) Name() string { return path.Base(s.Path) }

// InOrder returns the seats among names, the first one first. It leaves out names that are none.
func InOrder(names []string) []string { return election.Queue{Prefix: "s-"}.InOrder(names) }

// Watch watches until the membership ends, which it does when a znode of the process, or the Record, is gone or not its
// own any more. An error of live or own ends it too; they get the bodies of the live znode and of the seat. record gets
// each Record that can be read: what the one before said holds until somebody mends it.
func (s *Seat) Watch(live, own func([]byte, zkconn.Stat) error, record func(resource.Record, zkconn.Stat)) {
	s.follow(s.Live(), s.Session.ID(), live)
	s.follow(s.Path, s.Session.ID(), own)
	s.follow(s.RecordPath(), 0, func(body []byte, stat zkconn.Stat) error { return s.readRecord(body, stat, record) })
	// Who holds something must stop before its session can expire, counted from its last answered request.
	s.Go(func() { s.Session.Probe(s.ctx, s.Live()) })
}

// follow reads a znode, of this owner unless 0, now and after each of its events.
func (s *Seat) follow(at string, owner int64, read func([]byte, zkconn.Stat) error) {
	s.Go(func() {
		s.end(s.Session.Follow(s.ctx, at, func(body []byte, stat zkconn.Stat, there bool) error {
			switch {
			case !there:
				return fmt.Errorf("%w: %s is gone", ErrRemoved, at)
			case owner != 0 && stat.EphemeralOwner != owner:
				return fmt.Errorf("%w: %s is another process's", ErrRemoved, at)
			}
			return read(body, stat)
		}))
	})
}

// readRecord reads what is declared. A Record of another generation ends the membership.
func (s *Seat) readRecord(body []byte, stat zkconn.Stat, tell func(resource.Record, zkconn.Stat)) error {
	rec, err := znode.DecodeRecordAt(s.kind(), resource.Join(s.Root, s.Config.Name), body)
	switch {
	case err != nil:
		return nil
	case rec.Generation != s.Generation:
		return fmt.Errorf("%w: the %s was made anew", ErrRemoved, s.kind().Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = rec.State == resource.StateTerminating
	close(s.changed)
	s.changed = make(chan struct{})
	tell(rec, stat)
	return nil
}

// Removed ends the membership if err says that a part of the resource is gone, and returns why; else it returns err.
func (s *Seat) Removed(err error) error {
	if errors.Is(err, zkconn.ErrNoNode) {
		err = fmt.Errorf("%w: somebody deleted a part of the %s: %w", ErrRemoved, s.kind().Name, err)
		s.end(err)
	}
	return err
}

// StopRequested waits until the members are asked to stop, by terminate. It returns nil then: stop all commands and
// leave.
func (s *Seat) StopRequested(ctx context.Context) error {
	for {
		s.mu.Lock()
		stop, changed := s.stop, s.changed
		s.mu.Unlock()
		if stop {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// Go runs f in a goroutine, whose end Leave waits for. Once the membership has ended it runs nothing, and reports
// false.
func (s *Seat) Go(f func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.tasks.Go(f)
	return true
}

// Leave ends the membership: it closes the session, so that all ephemeral znodes go in one transaction.
func (s *Seat) Leave() error {
	s.starting.Lock()
	s.end(context.Canceled) // Go begins nothing from here on
	s.starting.Unlock()
	s.tasks.Wait()
	return s.Session.Close()
}
