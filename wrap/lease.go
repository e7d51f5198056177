package wrap

import (
	"context"
	"fmt"
	"time"

	"muster/member"
	"muster/zkstate/zkconn"
)

// lease says how long what a member holds may go on without an answer of ZooKeeper: its commands are asked to end at
// half of the session timeout, and killed at two thirds, counted from the send of the last request that was answered.
// At the whole of it somebody else may have its duties.
type lease struct {
	session *zkconn.Session
	killed  <-chan struct{} // closed when all commands are to be killed at once
	// whole lets commands go on to the end of the session, and then kills them. It is for a queue, which does not count
	// what a command does later.
	whole bool
}

// every is how often guards are told the deadlines.
func (l *lease) every() time.Duration { return max(l.session.Timeout()/20, time.Millisecond) }

// term and kill are the times left until the commands are asked to end, and until they are killed.
func (l *lease) term() time.Duration { return l.left(1, 2) }
func (l *lease) kill() time.Duration { return l.left(2, 3) }

// left is the time left until a part of the session timeout is over.
func (l *lease) left(part, of int) time.Duration {
	if l.whole {
		part = of
	}
	return l.session.Timeout()*time.Duration(part)/time.Duration(of) - time.Since(l.session.Answered())
}

// order is the order that tells a guard the deadlines.
func (l *lease) order() order {
	now := clock()
	return order{Term: max(now+l.term(), 1), Kill: max(now+l.kill(), 1)}
}

// limit is how long the servers may be silent. Once they were, the lease is over, even if they have answered since: the
// guards have asked the commands to end.
func (l *lease) limit() time.Duration { return l.session.Timeout() / 2 }

// check returns an error if the lease is over. Whoever is about to start something calls it, since a process that was
// frozen may come to that before watch does.
func (l *lease) check() error {
	if l.session.Silence() < l.limit() {
		return nil
	}
	return fmt.Errorf("%w: no server has answered for %s, half of the session timeout",
		member.ErrSessionLost, l.limit())
}

// watch returns an error when the commands are asked to end, or nil when ctx ends.
func (l *lease) watch(ctx context.Context) error {
	for {
		if err := l.check(); err != nil {
			return err
		}
		select {
		case <-time.After(l.term()):
		case <-ctx.Done():
			return nil
		}
	}
}
