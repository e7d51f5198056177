package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/seat"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Joining connects to the Redis of the Record, takes a seat, see package seat, while that is the Record, and says hello
// to Redis with it.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = seat.ErrAgain

// Join makes the process behind s an executor or a watcher of a queue.
//
// While the queue does not exist, or another process holds the identity, or Redis does not answer, Join waits: until
// ctx's deadline, or without one for the queue's join timeout. The error then wraps the reason and
// context.DeadlineExceeded. It does not wait for what waiting does not cure, such as a wrong password. After any error
// close the session.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Process, error) {
	if err := znode.CheckIdentity(c.Identity); err != nil {
		return nil, err
	}
	j := newJoin(s, c)
	for {
		p, err := j.attempt(ctx)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errAgain):
			continue
		}
		j.disconnect()
		return nil, fmt.Errorf("join %s as %s: %w", resource.Join(c.Root, c.Queue), c.Identity, err)
	}
}

// join is a Join under way.
type join struct {
	seat.Join
	c      Config
	queue  queue.Queue   // as declared
	client *redis.Client // of url; nil: not connected
	url    string
	tries  int // to connect
}

func newJoin(s *zkconn.Session, c Config) *join {
	return &join{c: c, Join: seat.Join{Session: s, Begun: time.Now(), Config: seat.Config{
		Default: queue.Default(), Root: c.Root, Name: c.Queue, Identity: c.Identity, Folders: znode.QueueFolders(),
		NoRecord: ErrNoQueue, Waiting: c.Waiting,
	}}}
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Process, error) {
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	if err := j.connect(ctx); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people only
	nonce := zkstate.NewID()
	live, err := znode.Encode(znode.QueueProcess{Nonce: nonce, Role: j.c.Role, Host: host, Parallel: j.c.Parallel})
	if err != nil {
		return nil, err
	}
	own, err := znode.Encode(znode.QueueSeat{Identity: j.c.Identity, Nonce: nonce, Role: j.c.Role})
	if err != nil {
		return nil, err
	}
	taken, err := j.Take(ctx, live, own, j.asRead())
	if err != nil {
		return nil, err
	}
	stat, there, err := j.Session.Exists(ctx, taken.Path)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: %s is gone", ErrRemoved, taken.Path)
	}
	p := newProcess(j, taken, stat)
	if err := j.hello(ctx, p); err != nil {
		return nil, err
	}
	j.client = nil // it is the process's now
	return p.start(), nil
}

// read reads the Record, and waits while there is none, or while it is not open.
func (j *join) read(ctx context.Context) error {
	err := j.Read(ctx)
	j.queue = queue.Of(&j.Record)
	return err
}

// asRead checks that the Record is the one that was read.
func (j *join) asRead() zkconn.Op { return zkconn.CheckOp(j.RecordPath(), j.Stat.Version) }

// connect connects to the Redis of the Record.
func (j *join) connect(ctx context.Context) error {
	if j.client != nil && j.url == j.queue.Redis {
		return nil
	}
	j.disconnect()
	return j.untilRedis(ctx, func() error {
		client, err := j.c.Redis.connect(ctx, j.queue)
		if err == nil {
			j.client, j.url = client, j.queue.Redis
		}
		return err
	})
}

func (j *join) disconnect() {
	if j.client != nil {
		_ = j.client.Close()
		j.client = nil
	}
}

// hello tells Redis that the seat's znode stands.
func (j *join) hello(ctx context.Context, p *Process) error {
	j.Changed = nil // the process has joined: a Record that was written again is read later, and would not let it wait
	return j.untilRedis(ctx, func() error { return p.hello(ctx) })
}

// untilRedis calls f until Redis answers. errAgain: the Record has changed.
func (j *join) untilRedis(ctx context.Context, f func() error) error {
	return until(func(err error) error {
		if refused(err) {
			return err
		}
		if err := j.awaitRedis(ctx, err); !errors.Is(err, errAgain) {
			return err
		}
		select {
		case <-j.Changed:
			return errAgain
		default:
			return nil
		}
	}, f)
}

// awaitRedis waits a while after an error of Redis, unless waiting does not cure it.
func (j *join) awaitRedis(ctx context.Context, err error) error {
	r, bad := queue.ParseRedis(j.queue.Redis)
	moving := bad == nil && r.Master != "" && errors.Is(err, store.ErrServer) // the sentinels name another one soon
	switch {
	case hopeless(err) && !moving:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrRedis, err)
	}
	again := time.After(backoff(j.tries))
	j.tries++
	return j.Await(ctx, fmt.Errorf("%w: %w", ErrRedis, err), "Redis: "+err.Error(), j.Changed, again)
}

// backoff is how long to wait after so many failures in a row: up to 5 s, and a random part of it less, so that many
// processes do not come at once.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures, 10), 5*time.Second)
	return d/2 + rand.N(d/2)
}
