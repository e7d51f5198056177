package wrap

import (
	"context"
	"errors"
	"net"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// join makes this process a member, in another session if one is lost on the way.
func (ms *membership) join(ctx context.Context) error {
	if err := ms.chooseAddress(ctx); err != nil {
		return err
	}
	for {
		m, err := ms.joinOnce(ctx)
		if err == nil {
			ms.set(func() { ms.member = m })
			return nil
		}
		if !errors.Is(err, zkconn.ErrSessionLost) || ctx.Err() != nil {
			return err
		}
		path := resource.Join(ms.c.Worker.Root, ms.c.Worker.Job)
		ms.c.Log.Warn("the session is lost; joining again", "job", path, "reason", err)
		ms.c.Worker.Takeover = worker.TakeoverWait // the process that holds the identity may be this one
	}
}

// chooseAddress takes this machine's address and a free port if the configuration has no address, and the address as
// the identity if it has none.
func (ms *membership) chooseAddress(ctx context.Context) error {
	w := &ms.c.Worker
	if w.Info.IP == "" {
		var ip net.IP
		err := ms.sessions.waitForServer(ctx, func() (err error) {
			ip, err = ms.c.LocalIP(ctx)
			return err
		})
		if err != nil {
			return err
		}
		free, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
		if err != nil {
			return err
		}
		defer free.Close()
		w.Info = znode.Worker{IP: ip.String(), Port: free.Addr().(*net.TCPAddr).Port}
	}
	if w.Identity == "" {
		w.Identity = w.Info.Address()
		if ms.c.Unstable != nil {
			ms.c.Unstable(w.Identity)
		}
	}
	return nil
}

// joinOnce opens a session, creates the job if that is asked for, and joins. If it fails it leaves no session behind.
func (ms *membership) joinOnce(ctx context.Context) (m *worker.Member, err error) {
	s, err := ms.sessions.open(ctx, ms.recordedTimeout)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ms.sessions.close()
		}
	}()
	if ms.c.Create != nil {
		if err := ms.c.Create(ctx, s); err != nil {
			return nil, unanswered(err)
		}
	}
	if m, err = worker.Join(ctx, s, ms.c.Worker); err != nil {
		return nil, err
	}
	if time.Duration(m.Job.Timeouts.Session) != ms.sessions.timeout { // the Record has changed while it waited
		first := m
		err = ms.sessions.waitForServer(ctx, func() (err error) {
			m, err = ms.rejoin(ctx, first)
			return err
		})
	}
	if err == nil && ms.c.Joined != nil {
		ms.c.Joined(m)
	}
	return m, err
}

// recordedTimeout is the session timeout that the Record says. Without a Record that can be read the timeout stays as
// it is: worker.Join waits for the Record, or says what is wrong with it.
func (ms *membership) recordedTimeout(ctx context.Context, s *zkconn.Session) (time.Duration, error) {
	rec, err := readableRecord(ctx, s, job.Kind(), ms.c.Worker.Root, ms.c.Worker.Job)
	if err != nil || rec == nil {
		return ms.sessions.timeout, err
	}
	return time.Duration(job.Of(rec).Timeouts.Session), nil
}
