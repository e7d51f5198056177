package wrap

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
)

// membership is this process's place in a job over all its sessions: one Member after the other, until the last one has
// left or completed, or the place is lost for good. Everything but join needs a first Member.
type membership struct {
	c        Config // join completes its Worker
	sessions sessions

	mu          sync.Mutex
	member      *worker.Member // the newest; nil before the join
	sessionLost bool           // and not joined again yet
	lost        error          // why there will be no other Member
	rejoins     int
	changed     chan struct{} // closed when any of these changes
}

func newMembership(c Config) *membership {
	return &membership{
		c: c,
		sessions: sessions{
			connect: c.Connect, timeout: c.SessionTimeout, waiting: c.Worker.Waiting, log: c.Log,
			limit: cmp.Or(c.JoinTimeout, time.Duration(job.DefaultJoinTimeout)), // as for a job that is missing
		},
		changed: make(chan struct{}),
	}
}

// keep joins again whenever the session is lost. It returns nil when the Member has left or completed, or ctx ends;
// otherwise it returns why the membership is lost for good.
func (ms *membership) keep(ctx context.Context) error {
	for {
		m, _, _ := ms.now()
		select {
		case <-m.Context().Done():
		case <-ctx.Done():
			return nil
		}
		cause := context.Cause(m.Context())
		if cause == context.Canceled { //nolint:errorlint // itself: it left or completed
			return nil
		}
		ms.set(func() { ms.sessionLost = true })
		next, err := ms.next(ctx, m, cause)
		if ctx.Err() != nil {
			return nil
		}
		ms.set(func() {
			if ms.lost = err; err == nil {
				ms.member, ms.sessionLost = next, false
				ms.rejoins++
			}
		})
		if err != nil {
			return err
		}
		ms.c.Log.Warn("joined again after a lost session", "job", m.Job.Path(), "id", m.ID)
	}
}

// next is the Member after m, which ended with cause. The error is final.
func (ms *membership) next(ctx context.Context, m *worker.Member, cause error) (*worker.Member, error) {
	if ms.c.OnLoss != LossRejoin || !errors.Is(cause, worker.ErrSessionLost) {
		return nil, cause
	}
	ms.c.Log.Warn("the session is lost; joining again", "job", m.Job.Path(), "id", m.ID, "reason", cause)
	for {
		next, err := ms.rejoin(ctx, m)
		if err == nil || errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) {
			return next, err
		}
		ms.c.Log.Warn("joining again", "job", m.Job.Path(), "id", m.ID, "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// rejoin makes m a Member again, in another session.
func (ms *membership) rejoin(ctx context.Context, m *worker.Member) (next *worker.Member, err error) {
	err = ms.sessions.replace(ctx, time.Duration(m.Job.Timeouts.Session), func(s *zkconn.Session) (err error) {
		next, err = m.Rejoin(ctx, s)
		return err
	})
	return next, err
}

// now is the newest Member, a channel that is closed when that changes, and why there will be no other.
func (ms *membership) now() (*worker.Member, <-chan struct{}, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.member, ms.changed, ms.lost
}

func (ms *membership) set(change func()) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	change()
	close(ms.changed)
	ms.changed = make(chan struct{})
}

// state is what health and metrics show. It is a member while its session is not lost.
func (ms *membership) state() (m *worker.Member, isMember bool, rejoins int) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.member, !ms.sessionLost, ms.rejoins
}

// lostBecause reports whether cause is why the membership was lost for good.
func (ms *membership) lostBecause(cause error) bool {
	_, _, lost := ms.now()
	return lost != nil && lost == cause //nolint:errorlint // this error, not one like it
}

// do calls f as the Member, and again as the next one whenever the session is lost on the way: f must bear to be
// repeated.
func (ms *membership) do(ctx context.Context, f func(context.Context, *worker.Member) error) error {
	for {
		m, changed, lost := ms.now()
		if lost != nil {
			return lost
		}
		err := f(ctx, m)
		if err == nil || m.Context().Err() == nil || ctx.Err() != nil {
			return err
		}
		//nolint:errorlint // itself: it left or completed, and what failed came after that
		if context.Cause(m.Context()) == context.Canceled {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
