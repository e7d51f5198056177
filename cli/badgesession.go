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
func (b *badge) join(ctx context.Context) (m *worker.Member, err error) {
	for {
		err = b.patiently(ctx, func() error {
			m, err = b.attempt(ctx)
			return err
		})
		if !errors.Is(err, zkconn.ErrSessionLost) || ctx.Err() != nil {
			return m, err
		}
		b.p.log.Warn("the session is lost; joining again", "job", job.Join(b.config.Root, b.config.Job), "reason", err)
	}
}

// retryPause is between two attempts to find a server. Those that open a session have a patience of their own.
const retryPause = time.Second

// patiently calls f until a server can be reached, for as long as a worker waits for its job.
func (b *badge) patiently(ctx context.Context, f func() error) error {
	limit := cmp.Or(b.patience, time.Duration(job.DefaultJoinTimeout))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for told := false; ; told = true {
		err := f()
		if !errors.Is(err, zkconn.ErrUnreachable) || ctx.Err() != nil {
			return err
		}
		if !told {
			b.waiting(fmt.Sprintf("ZooKeeper (%s at most): %v", job.Duration(limit), err))
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
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
