package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// join joins, anew if the session is lost on the way.
func (b *badge) join(ctx context.Context) (*worker.Member, error) {
	var limit time.Time // to find a server again
	for {
		m, err := b.attempt(ctx)
		lost := errors.Is(err, zkconn.ErrSessionLost)
		if !lost && !(errors.Is(err, zkconn.ErrUnreachable) && time.Now().Before(limit)) || ctx.Err() != nil {
			return m, err
		}
		if lost {
			limit = time.Now().Add(cmp.Or(b.patience, time.Duration(job.DefaultJoinTimeout)))
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

// connect opens the session of a worker: a crashed one is gone after the time that the job says.
func (b *badge) connect(ctx context.Context) (*zkconn.Session, error) {
	s, err := b.p.connect(ctx, b.target)
	if err != nil {
		return nil, err
	}
	timeout, err := b.sessionTimeout(ctx, s)
	if err == nil && timeout == b.target.timeout {
		return s, nil
	}
	if err := s.Close(); err != nil {
		b.p.log.Warn("the session that read the record", "error", err)
	}
	if err != nil {
		return nil, err
	}
	b.target.timeout = timeout
	return b.p.connect(ctx, b.target)
}

// sessionTimeout is what the Record says. Where there is none that can be read it stays: worker.Join waits for one, or says what is
// wrong with it.
func (b *badge) sessionTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	body, _, err := s.Get(ctx, znode.Record(b.config.Root, b.config.Job))
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return 0, err
	}
	rec, unreadable := znode.DecodeRecordAt(job.Join(b.config.Root, b.config.Job), body)
	if err != nil || unreadable != nil {
		return b.target.timeout, nil
	}
	return time.Duration(cmp.Or(rec.Job.Timeouts.Session, job.DefaultSessionTimeout)), nil
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
