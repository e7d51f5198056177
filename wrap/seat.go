package wrap

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"muster/worker"
)

// rejoinPause is between two attempts to join again. Opening a session has a patience of its own.
const rejoinPause = time.Second

// seat is the membership of this process over all the sessions that it takes: one Member after the other, until it has
// parted or another process sits there.
type seat struct {
	rejoin    func(context.Context, *worker.Member) (*worker.Member, error) // nil: the first loss is the last
	connected func() bool
	log       *slog.Logger

	mu      sync.Mutex
	member  *worker.Member // the newest
	absent  bool           // its session is lost
	lost    error          // for good
	rejoins int
	changed chan struct{} // closed when any of these changes
}

func newSeat(m *worker.Member, c Config) *seat {
	s := &seat{member: m, connected: c.Connected, log: c.Log, changed: make(chan struct{})}
	if c.OnLoss == LossRejoin {
		s.rejoin = c.Rejoin
	}
	return s
}

// keep joins again whenever the session is lost. It returns nil when the member has parted or ctx ends, and otherwise why the
// membership is lost for good.
func (s *seat) keep(ctx context.Context) error {
	for {
		m, _, _ := s.now()
		select {
		case <-m.Context().Done():
		case <-ctx.Done():
			return nil
		}
		cause := context.Cause(m.Context())
		if cause == context.Canceled { // parted
			return nil
		}
		s.set(func() { s.absent = true })
		next, err := s.again(ctx, m, cause)
		if ctx.Err() != nil {
			return nil
		}
		s.set(func() {
			if s.lost = err; err == nil {
				s.member, s.absent = next, false
				s.rejoins++
			}
		})
		if err != nil {
			return err
		}
		s.log.Warn("joined again after a lost session", "job", m.Job.Path(), "id", m.ID)
	}
}

// again is the next Member after m. Its error is final.
func (s *seat) again(ctx context.Context, m *worker.Member, cause error) (*worker.Member, error) {
	if s.rejoin == nil || !errors.Is(cause, worker.ErrSessionLost) {
		return nil, cause
	}
	s.log.Warn("the session is lost; joining again", "job", m.Job.Path(), "id", m.ID, "reason", cause)
	for {
		next, err := s.rejoin(ctx, m)
		if err == nil || errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) {
			return next, err
		}
		s.log.Warn("joining again", "job", m.Job.Path(), "id", m.ID, "error", err)
		select {
		case <-time.After(rejoinPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// now is the newest Member, a channel that is closed when that changes, and why there will be no other.
func (s *seat) now() (*worker.Member, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member, s.changed, s.lost
}

func (s *seat) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// state is what health and metrics show.
func (s *seat) state() (m *worker.Member, member bool, rejoins int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member, !s.absent, s.rejoins
}

// isLost reports whether cause is why the membership was lost for good.
func (s *seat) isLost(cause error) bool {
	_, _, lost := s.now()
	return lost != nil && lost == cause
}

// do calls f as the member, and again whenever the session is lost on the way: f must bear to be repeated.
func (s *seat) do(ctx context.Context, f func(context.Context, *worker.Member) error) error {
	for {
		m, changed, lost := s.now()
		if lost != nil {
			return lost
		}
		err := f(ctx, m)
		if err == nil || m.Context().Err() == nil || ctx.Err() != nil {
			return err
		}
		if context.Cause(m.Context()) == context.Canceled { // it left or completed: what failed came after
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
