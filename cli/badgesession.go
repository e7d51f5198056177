package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"muster/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// join joins, anew if the session is lost on the way.
func (b *badge) join(ctx context.Context) (*worker.Member, error) {
	if err := b.introduce(ctx); err != nil {
		return nil, err
	}
	for {
		m, err := b.attempt(ctx)
		if !errors.Is(err, zkconn.ErrSessionLost) || ctx.Err() != nil {
			return m, err
		}
		b.p.log.Warn("the session is lost; joining again", "job", job.Join(b.config.Root, b.config.Job), "reason", err)
		b.config.Takeover = worker.TakeoverWait // who holds the identity may be this process
	}
}

// introduce takes the address of this machine that faces the ensemble and a free port, if nobody says where peers reach this worker, and that
// as its identity, if nothing else is one.
func (b *badge) introduce(ctx context.Context) error {
	if b.config.Info.IP == "" {
		var ip net.IP
		err := b.patiently(ctx, func() (err error) {
			ip, err = zkconn.LocalIP(ctx, b.target.servers)
			return err
		})
		if err != nil {
			return undialled(err)
		}
		free, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
		if err != nil {
			return err
		}
		defer free.Close()
		b.config.Info = znode.Worker{IP: ip.String(), Port: free.Addr().(*net.TCPAddr).Port}
	}
	if b.config.Identity == "" {
		b.config.Identity = b.config.Info.Address()
		if !b.p.flags.quiet {
			fmt.Fprintf(b.p.err, "the identity is %s, which a restart may change: give --identity\n", b.config.Identity)
		}
	}
	return nil
}

// retryPause is between two attempts to find a server. Those that open a session have a patience of their own.
const retryPause = time.Second

// patiently calls f until a server can be reached, for as long as a worker waits for its job to be created.
func (b *badge) patiently(ctx context.Context, f func() error) error {
	limit := cmp.Or(b.joinTimeout, time.Duration(job.DefaultJoinTimeout))
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

// attempt opens a session, creates the job if it is declared and missing, and joins. If it fails it leaves no session behind.
func (b *badge) attempt(ctx context.Context) (m *worker.Member, err error) {
	var s *zkconn.Session
	if err := b.patiently(ctx, func() (err error) { s, err = b.connect(ctx); return err }); err != nil {
		return nil, unanswered(err)
	}
	b.session.Store(s)
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.cfg != nil {
		if err := b.create(ctx); err != nil {
			return nil, unanswered(err)
		}
	}
	m, err = worker.Join(ctx, s, b.config)
	if err == nil && time.Duration(m.Job.Timeouts.Session) != b.target.timeout { // it waited, and joined another generation
		first := m
		err = b.patiently(ctx, func() (err error) { m, err = b.rejoin(ctx, first); return err })
	}
	if err == nil && !b.quiet {
		fmt.Fprintln(b.p.err, joinedAs(m))
	}
	return m, err
}

// unanswered says of a request whose time was over that no server has answered it.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zkconn.ErrUnreachable) {
		return fmt.Errorf("%w: %w", zkconn.ErrUnreachable, err)
	}
	return err
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
