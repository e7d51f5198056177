package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The lists on which processes wait. Each holds at most one token.
const (
	WakeExecutor = "wake:e"
	WakeWatcher  = "wake:w"
)

// waiter is a BLPOP on a connection of its own. One at a time is under way.
type waiter struct {
	wake chan struct{} // Wake was called

	mu    sync.Mutex
	conn  *redis.Conn
	id    int64         // of the connection
	ended chan struct{} // closed when the BLPOP under way has ended; nil: none is
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
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	ended := p.block(key, atMost)
	select {
	case <-ended:
		return
	case <-p.waiter.wake:
	case <-timer.C:
	case <-ctx.Done():
	case <-p.ctx.Done():
		return // the end of the membership ends it
	}
	p.unblock(ended)
}

// block starts a BLPOP, unless one is under way. The channel is closed at its end.
func (p *Process) block(key string, atMost time.Duration) <-chan struct{} {
	w := &p.waiter
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return w.ended
	}
	ended := make(chan struct{})
	w.ended = ended
	begun := p.background(func() {
		defer close(ended)
		conn, err := p.waitConn()
		if err == nil { // the shortest timeout that the library sends is a second
			err = conn.BLPop(p.ctx, max(atMost, time.Second), p.key(key)).Err()
		}
		if err != nil && !errors.Is(err, redis.Nil) { // the next call may be answered, and this never be
			_ = Rest(p.ctx, 2)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = nil
		if err != nil && !errors.Is(err, redis.Nil) && w.conn != nil {
			_ = w.conn.Close()
			w.conn = nil
		}
	})
	if !begun {
		close(ended)
	}
	return ended
}

// waitConn is the connection for BLPOP.
func (p *Process) waitConn() (*redis.Conn, error) {
	w := &p.waiter
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn = p.client.Conn()
	id, err := conn.ClientID(p.ctx).Result()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.id = conn, id
	return conn, nil
}

// unblock ends a BLPOP, so that it takes no token from a process which has nothing to do.
func (p *Process) unblock(ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(p.ctx, unblockLimit)
	defer cancel()
	for tries := 0; ; tries++ {
		p.waiter.mu.Lock()
		conn, id := p.waiter.conn, p.waiter.id
		p.waiter.mu.Unlock()
		if conn != nil {
			_ = p.client.ClientUnblock(ctx, id).Err() // the BLPOP may not have come yet: again
		}
		timer := time.NewTimer(10 * time.Millisecond << min(tries, 5))
		select {
		case <-ended:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// key is a key of the queue.
func (p *Process) key(name string) string { return keyPrefix(p.Generation) + name }
