package wrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// retryPause is between two attempts to reach a server, or to join again. An attempt to open a session takes its own
// time in addition.
const retryPause = time.Second

// sessions are the ZooKeeper sessions of this process, one after the other. They know nothing of what the process is a
// member of.
type sessions struct {
	connect func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error)
	timeout time.Duration     // of the next session
	limit   time.Duration     // for waiting until a server can be reached
	waiting func(what string) // unless nil, called when no server can be reached
	log     *slog.Logger

	newest atomic.Pointer[zkconn.Session]
}

// waitForServer calls f until a server can be reached, or the limit has passed.
func (s *sessions) waitForServer(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	for first := true; ; first = false {
		err := f()
		if !errors.Is(err, zkconn.ErrUnreachable) || ctx.Err() != nil {
			return err
		}
		if first && s.waiting != nil {
			s.waiting(fmt.Sprintf("ZooKeeper (%s at most): %v", resource.Duration(s.limit), err))
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
	}
}

// open waits for ZooKeeper and opens a session with the timeout that recorded reads in ZooKeeper. It closes the session
// before, of which nothing may go on any more: after an outage the servers would keep that for its timeout.
func (s *sessions) open(
	ctx context.Context, recorded func(context.Context, *zkconn.Session) (time.Duration, error),
) (opened *zkconn.Session, err error) {
	err = s.waitForServer(ctx, func() (err error) {
		opened, err = s.openOnce(ctx, recorded)
		return err
	})
	if err != nil {
		return nil, unanswered(err)
	}
	if lost := s.newest.Swap(opened); lost != nil {
		if err := opened.CloseLost(ctx, lost); err != nil {
			s.log.Info("the end of the session before", "error", err)
		}
	}
	return opened, nil
}

// openOnce opens a second session if the first, which read the timeout, has another one: a session keeps its timeout.
func (s *sessions) openOnce(
	ctx context.Context, recorded func(context.Context, *zkconn.Session) (time.Duration, error),
) (*zkconn.Session, error) {
	first, err := s.connect(ctx, s.timeout)
	if err != nil {
		return nil, err
	}
	timeout, err := recorded(ctx, first)
	if err == nil && timeout == s.timeout {
		return first, nil
	}
	s.end(first)
	if err != nil {
		return nil, err
	}
	s.timeout = timeout
	return s.connect(ctx, timeout)
}

// errOtherTimeout means that the Record said another session timeout when the process had joined.
var errOtherTimeout = errors.New("the session timeout has changed")

// join calls once, and again in another session if one is lost on the way, or the answer to a join is. It calls before
// each repetition what must be different then.
func (s *sessions) join(ctx context.Context, once func(context.Context) error, before func()) error {
	for {
		err := once(ctx)
		again := errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnknown) ||
			errors.Is(err, errOtherTimeout)
		if err == nil || !again || ctx.Err() != nil {
			return err
		}
		s.log.Warn("joining again in another session", "reason", err)
		before()
	}
}

// inTime is join with a limit, if that is not 0. ErrLate means that it was reached.
func inTime(limit time.Duration, join func(context.Context) error) func(context.Context) error {
	if limit == 0 {
		return join
	}
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := join(limited)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrLate, err)
		}
		return err
	}
}

// replace opens another session. If move succeeds in moving there what the process holds, the old session is closed,
// and otherwise the new one.
func (s *sessions) replace(ctx context.Context, timeout time.Duration, move func(*zkconn.Session) error) error {
	s.timeout = timeout
	next, err := s.connect(ctx, timeout)
	if err != nil {
		return err
	}
	if err := move(next); err != nil {
		_ = next.Close() // what the process holds in it ends in any case
		return err
	}
	s.close()
	s.newest.Store(next)
	return nil
}

// connected reports whether the newest session has a connection to a server.
func (s *sessions) connected() bool {
	newest := s.newest.Load()
	return newest != nil && newest.Connected()
}

// close ends the newest session. It may be called again.
func (s *sessions) close() {
	if newest := s.newest.Load(); newest != nil {
		s.end(newest)
	}
}

func (s *sessions) end(session *zkconn.Session) {
	if err := session.Close(); err != nil {
		s.log.Info("the end of the session", "error", err) // nothing depends on it any more
	}
}

// unanswered adds zkconn.ErrUnreachable to the error of a request that got no answer in time.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zkconn.ErrUnreachable) {
		return fmt.Errorf("%w: %w", zkconn.ErrUnreachable, err)
	}
	return err
}
