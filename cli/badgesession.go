package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// join joins, anew if the session is lost on the way. It then has as much time to find a server again as the job has to be
// created.
func (b *badge) join(ctx context.Context) (*worker.Member, error) {
	var limit time.Time
	for {
		m, err := b.attempt(ctx)
		lost := errors.Is(err, zkconn.ErrSessionLost)
		if !lost && !(errors.Is(err, zkconn.ErrUnreachable) && time.Now().Before(limit)) || ctx.Err() != nil {
			return m, err
		}
		if lost {
			limit = time.Now().Add(b.limit())
		}
		b.p.log.Warn("the session is lost; joining again", "job", job.Join(b.config.Root, b.config.Job), "reason", err)
	}
}

// attempt opens a session, creates the job if it is declared and missing, and joins.
func (b *badge) attempt(ctx context.Context) (*worker.Member, error) {
	s, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	b.session.Store(s)
	if b.cfg != nil {
		if err := b.create(ctx); err != nil {
			return nil, err
		}
	}
	m, err := worker.Join(ctx, s, b.config)
	if err == nil && time.Duration(m.Job.Timeouts.Session) != b.target.timeout { // it waited, and joined another generation
		m, err = b.rejoin(ctx, m)
	}
	if err == nil && !b.quiet {
		fmt.Fprintln(b.p.err, joinedAs(m))
	}
	return m, err
}

// limit is for how long a worker waits for a job that is not there.
func (b *badge) limit() time.Duration {
	return cmp.Or(b.patience, time.Duration(job.DefaultJoinTimeout))
}

// connect opens the session of a worker: a crashed one is gone after the time that the job says.
func (b *badge) connect(ctx context.Context) (*zkconn.Session, error) {
	s, err := b.p.connect(ctx, b.target)
	if err != nil {
		return nil, err
	}
	b.target.timeout, err = b.sessionTimeout(ctx, s)
	if err == nil && b.target.timeout == s.Timeout() {
		return s, nil
	}
	if err := s.Close(); err != nil {
		b.p.log.Warn("the session that read the record", "error", err)
	}
	if err != nil {
		return nil, err
	}
	return b.p.connect(ctx, b.target)
}

// sessionTimeout is what the job says. Unless this worker is to create the job, it waits for its record.
func (b *badge) sessionTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	for {
		_, exists, created, err := s.ExistsW(ctx, znode.Record(b.config.Root, b.config.Job))
		if err != nil {
			return 0, err
		}
		if !exists {
			if b.cfg != nil {
				return time.Duration(b.job.Timeouts.Session), nil
			}
			if err := b.await(ctx, s, created); err != nil {
				return 0, err
			}
			continue
		}
		o, err := zkstate.NewReader(s, "").Look(ctx, job.Join(b.config.Root, b.config.Job))
		switch {
		case err != nil:
			return 0, err
		case o != nil && o.Record != nil:
			return time.Duration(cmp.Or(o.Record.Job.Timeouts.Session, job.DefaultSessionTimeout)), nil
		case o != nil:
			return s.Timeout(), nil // Join says what is wrong
		}
	}
}

// await waits until somebody creates the job, or says what to do if nobody does.
func (b *badge) await(ctx context.Context, s *zkconn.Session, created <-chan struct{}) error {
	path, limit := job.Join(b.config.Root, b.config.Job), b.limit()
	if !b.told {
		b.told = true
		b.config.Waiting(fmt.Sprintf("the job to be created: %s (--root %s), for %s at most", path, b.config.Root, job.Duration(limit)))
	}
	var timeUp <-chan time.Time
	if b.patience == 0 { // else ctx ends then
		timeUp = time.After(time.Until(b.begun.Add(limit)))
	}
	select {
	case <-created:
		return nil
	case <-timeUp:
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return context.Cause(ctx)
		}
	case <-s.Context().Done():
		return context.Cause(s.Context())
	}
	return &problem{nil, fmt.Errorf("%w: waited %s for %s to be created", worker.ErrNoJob, job.Duration(limit), path),
		"muster status --root " + b.config.Root + " lists the jobs there; if this one is missing, declare it, then: muster apply"}
}

// rejoin joins again in a new session.
func (b *badge) rejoin(ctx context.Context, m *worker.Member) (*worker.Member, error) {
	b.target.timeout = time.Duration(m.Job.Timeouts.Session)
	s, err := b.p.connect(ctx, b.target)
	if err != nil {
		return nil, err
	}
	next, err := m.Rejoin(ctx, s)
	if err != nil {
		_ = s.Close() // what it held goes with it
		return nil, err
	}
	b.close()
	b.session.Store(s)
	return next, nil
}

// connected reports whether a server can be asked.
func (b *badge) connected() bool {
	s := b.session.Load()
	return s != nil && s.Connected()
}

// close ends the session.
func (b *badge) close() {
	s := b.session.Load()
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		b.p.log.Warn("the end of the session", "error", err)
	}
}
