package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
)

// maxUnasked is how long a connection is used before the sentinels are asked again, which the next one does. A primary
// that becomes a replica closes its connections, so that matters only for one that the sentinels cannot reach.
const maxUnasked = 30 * time.Second

// askTimeout is how long one sentinel may take.
const askTimeout = 2 * time.Second

// sentinels finds the primary that sentinels name. The client library has that too, but what a sentinel says could end
// the process there.
type sentinels struct {
	c    Config
	at   queue.Redis
	next atomic.Int64 // which of them is asked first
}

// dial connects to the primary that the first sentinel names which answers.
func (s *sentinels) dial(ctx context.Context) (net.Conn, error) {
	var why []error
	for range s.at.Hosts {
		at := s.next.Load()
		sentinel := s.at.Hosts[int(at)%len(s.at.Hosts)]
		addr, err := s.ask(ctx, sentinel)
		if err == nil {
			return s.c.dial(ctx, s.at, addr)
		}
		s.next.CompareAndSwap(at, at+1)
		why = append(why, fmt.Errorf("sentinel %s: %w", sentinel, err))
	}
	return nil, errors.Join(why...)
}

// ask asks a sentinel for the address of the primary.
func (s *sentinels) ask(ctx context.Context, sentinel string) (string, error) {
	o := s.c.options(s.at)
	o.Addr, o.Password = sentinel, s.c.SentinelPassword
	client := redis.NewClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := client.Do(ctx, "sentinel", "get-master-addr-by-name", s.at.Master).Result()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("it does not know %s", s.at.Master)
	}
	if err != nil {
		return "", strange(err)
	}
	var is shape
	l := is.list(reply, 2, 2)
	addr := net.JoinHostPort(is.text(l[0], maxText), is.text(l[1], maxText))
	return addr, is.err
}
