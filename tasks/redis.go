package tasks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/text"
	"muster/zkstate/zkconn"
)

// Access says how a process reaches the Redis of a queue. Programs use the zero value.
type Access struct {
	// Getenv reads the credentials, see store.FromEnvironment; nil is os.Getenv.
	Getenv func(string) string
	// Dial connects to an address; nil is TCP. A simulation connects to a model in memory.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// connect connects to the Redis of q. The caller closes the client.
func (a Access) connect(ctx context.Context, q queue.Queue) (*redis.Client, error) {
	c, err := a.config(q)
	if err != nil {
		return nil, err
	}
	return store.Connect(ctx, c)
}

// config says where the Redis of q is, and who this process is there.
func (a Access) config(q queue.Queue) (store.Config, error) {
	if a.Getenv == nil {
		a.Getenv = os.Getenv
	}
	c, err := store.FromEnvironment(q.Redis, a.Getenv)
	c.Dial = a.Dial
	return c, err
}

// open is the life of q in Redis that belongs to a generation.
func open(client *redis.Client, q queue.Queue, generation string) *store.Queue {
	return store.New(client, generation, q.Path())
}

// hopeless reports whether waiting does not cure an error of Redis.
func hopeless(err error) bool { return Denied(err) || Unfit(err) || errors.Is(err, store.ErrHost) }

// Unfit reports whether an error says that a Redis, or its address, is not one that the queue can use.
func Unfit(err error) bool {
	return err != nil && strings.Contains(err.Error(), "DB index is out of range") ||
		isAny(err, store.ErrServer, store.ErrURL, store.ErrOtherQueue, store.ErrFormat)
}

// Denied reports whether Redis refused the user or the password, or what that user wants to do. Redis 7.0, and newer
// ones, have texts of their own for a script that does what its user may not.
func Denied(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err) || isReply(err) &&
		(strings.Contains(err.Error(), "The user executing the script can't") ||
			strings.Contains(err.Error(), "ACL failure in script"))
}

// refused reports whether a script refused a call: then it changed nothing.
func refused(err error) bool { return errors.As(err, new(*store.Refusal)) }

func isReply(err error) bool { return errors.As(err, new(redis.Error)) }

func isAny(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
}

// Look connects to what Redis holds of the queue that has this Record, for who only looks at it. It needs no session,
// and does not wait: an error of Redis is returned. Call done at the end.
func Look(ctx context.Context, rec *resource.Record, a Access) (st *store.Queue, done func(), err error) {
	q := queue.Of(rec)
	client, err := a.connect(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	return open(client, q, rec.Generation), func() { _ = client.Close() }, nil
}

// The lists on which processes wait. Each holds at most one token.
const (
	WakeExecutor = "wake:e"
	WakeWatcher  = "wake:w"
)

// waiter is a BLPOP on a connection of its own. One at a time is under way, for one caller of Wait.
type waiter struct {
	wake  chan struct{} // Wake was called
	ended chan struct{} // closed when the last BLPOP has ended; nil: there was none
	conn  *redis.Conn   // which the BLPOP has; nil: there is none
	id    atomic.Int64  // of conn; 0: there is none
}

// unblockLimit is how long Wait waits for the end of a BLPOP that it has ended early.
const unblockLimit = time.Second

// Wake makes a Wait return that is under way, or else the next one.
func (p *Process) Wake() {
	select {
	case p.waiter.wake <- struct{}{}:
	default:
	}
}

// Wait blocks until there is a token on a list of the queue, until Wake, or for at most a while. It also returns when
// Redis does not answer: the next call tells.
func (p *Process) Wait(ctx context.Context, key string, atMost time.Duration) {
	ended := p.block(key, atMost)
	select {
	case <-ended:
		return
	case <-p.waiter.wake:
	case <-time.After(atMost):
	case <-ctx.Done():
	case <-p.ctx.Done():
		return // the end of the membership ends it
	}
	p.unblock(ended)
}

// block starts a BLPOP, unless one is under way. The channel is closed at its end.
func (p *Process) block(key string, atMost time.Duration) <-chan struct{} {
	w := &p.waiter
	if w.ended != nil && !zkconn.Closed(w.ended) {
		return w.ended
	}
	ended := make(chan struct{})
	w.ended = ended
	begun := p.seat.Go(func() {
		defer close(ended)
		err := p.pop(key, atMost)
		if err == nil || errors.Is(err, redis.Nil) {
			return
		}
		_ = Rest(p.ctx, 2) // the next call may be answered, and this never be
		if w.conn != nil {
			w.id.Store(0)
			_ = w.conn.Close()
			w.conn = nil
		}
	})
	if !begun {
		close(ended)
	}
	return ended
}

func (p *Process) pop(key string, atMost time.Duration) error {
	w := &p.waiter
	if w.conn == nil {
		conn := p.client.Conn()
		id, err := conn.ClientID(p.ctx).Result()
		if err != nil {
			_ = conn.Close()
			return err
		}
		w.conn = conn
		w.id.Store(id)
	}
	// The shortest timeout that the library sends is a second.
	return w.conn.BLPop(p.ctx, max(atMost, time.Second), store.Prefix(p.Generation)+key).Err()
}

// unblock ends a BLPOP, so that it takes no token from a process which has nothing to do.
func (p *Process) unblock(ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(p.ctx, unblockLimit)
	defer cancel()
	for tries := 0; ; tries++ {
		if id := p.waiter.id.Load(); id != 0 {
			_ = p.client.ClientUnblock(ctx, id).Err() // the BLPOP may not have come yet: again
		}
		if pause(ctx, 10*time.Millisecond<<min(tries, 5), ended) || ctx.Err() != nil {
			return
		}
	}
}

// unlinkPage is how many places for keys are looked at, or keys deleted, at once; unlinkPages is how often. A Redis
// with more keys than that is too large to be searched, or is none.
const (
	unlinkPage  = 1000
	unlinkPages = 100_000
)

// Unlink deletes everything that a generation of a queue has in Redis: all keys that begin with its prefix. rec is the
// copy of its Record. Nobody may work in that generation any more. It may be called again after any error, and ends
// with ctx.
//
// Those who worked in the generation may have written that copy. So Unlink connects only to hosts, as host:port, or to
// those that MUSTER_REDIS_HOSTS names, and deletes nothing if Redis says that the keys are of another queue.
func Unlink(ctx context.Context, rec *resource.Record, access Access, hosts []string) error {
	q := queue.Of(rec)
	c, err := access.config(q)
	if err != nil {
		return err
	}
	at, err := queue.ParseRedis(q.Redis)
	if err != nil {
		return err
	}
	for _, host := range at.Hosts {
		if !slices.Contains(hosts, host) && !c.Hosts.Include(host) {
			return fmt.Errorf("no queue that is declared uses the redis at %s; if keys may be deleted there, add it to %s "+
				"and apply again", host, queue.EnvHosts)
		}
	}
	client, err := store.Connect(ctx, c)
	if err == nil {
		defer client.Close()
		defer context.AfterFunc(ctx, func() { _ = client.Close() })() // a read does not end with ctx
		err = unlinkAll(ctx, client, q, store.Prefix(rec.Generation))
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("redis at %s: %w", strings.Join(at.Hosts, ","), text.Plain(context.Cause(ctx)))
	}
	return err
}

// unlinkAll deletes the keys that begin with prefix, if they are those of q.
func unlinkAll(ctx context.Context, client *redis.Client, q queue.Queue, prefix string) error {
	id, err := client.HGet(ctx, prefix+"q", "id").Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil): // nil: it is deleted already, others may not be
		return fmt.Errorf("redis: %w", err)
	case err == nil && id != q.Path():
		return store.ErrOtherQueue
	}
	glob := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(prefix) + "*"
	var cursor uint64
	for range unlinkPages {
		var page []string
		if page, cursor, err = client.Scan(ctx, cursor, glob, unlinkPage).Result(); err != nil {
			return fmt.Errorf("redis: scan: %w", err)
		}
		page = slices.DeleteFunc(page, func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if len(page) > 0 {
			if err := client.Unlink(ctx, page...).Err(); err != nil {
				return fmt.Errorf("redis: unlink: %w", err)
			}
		}
		if cursor == 0 {
			return nil
		}
	}
	return fmt.Errorf("redis: %d pages of keys, and there are more", unlinkPages)
}
