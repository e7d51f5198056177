package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/resource/queue"
)

// milliSquare is square that takes about a millisecond.
func milliSquare(ctx context.Context, t *Task) ([]byte, error) {
	pause(time.Millisecond)
	return square(ctx, t)
}

// pause is work that takes its time.
func pause(d time.Duration) { <-time.After(d) }

// until calls fault again and again, with random pauses, until a batch is complete.
func (f *fixture) until(id string, fault func(n int)) {
	f.t.Helper()
	end := make(chan struct{})
	go func() {
		defer close(end)
		f.complete(id)
	}()
	for n := 0; ; n++ {
		select {
		case <-end:
			return
		case <-time.After(20*time.Millisecond + rand.N(50*time.Millisecond)):
			fault(n)
		}
	}
}

// TestExecuteLostReplies: Redis does what it is asked, and again and again nobody hears of it.
func TestExecuteLostReplies(t *testing.T) {
	for _, executors := range []int{1, 8} {
		t.Run(fmt.Sprint(executors), func(t *testing.T) {
			f := newFixture(t)
			f.store() // makes the observer's connection, which is not through the proxy
			proxy := newProxy(t, rediss.Addr())
			f.change(func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() + "/0" })
			c := f.start(executors, 4, milliSquare)
			batches := 0
			for ; c.counts().Recovered < 5; batches++ { // where little of the time is spent on Redis, few replies are lost
				id := fmt.Sprint("b", batches)
				f.submit(id, numbered(3000))
				f.until(id, func(int) {
					proxy.Mute(true)
					pause(rand.N(10 * time.Millisecond))
					proxy.Cut()
					proxy.Mute(false)
				})
				f.checkSquares(id, 3000)
			}
			c.drain()
			if n := c.counts(); n.Done < int64(batches)*3000 {
				t.Errorf("counts %+v after %d batches", n, batches)
			}
		})
	}
}

// TestExecuteRedisKilled: Redis is killed and comes back with its data.
func TestExecuteRedisKilled(t *testing.T) {
	server, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() + "/0" })
	f.submit("b", numbered(5000))
	f.store() // connects before Redis is killed
	c := f.start(4, 4, milliSquare)
	kills := 0
	f.until("b", func(n int) {
		if n%5 == 0 && kills < 4 {
			kills++
			if err := server.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	c.drain()
	f.checkSquares("b", 5000)
	if n := c.counts(); n.Recovered == 0 {
		t.Errorf("counts %+v: the test lost no replies", n)
	}
}

// TestExecuteSessionsLost: executors lose their sessions one after the other, and others come. Their commands are told,
// their results are refused, and their tasks are done elsewhere.
func TestExecuteSessionsLost(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(4000))
	c := f.start(1, 2, milliSquare) // it looks after the queue
	var told atomic.Int64
	for i := range 4 {
		proxy := newProxy(t, servers.Addrs()[0])
		config := f.config(fmt.Sprint("lost", i), queue.Executor)
		p, err := Join(t.Context(), dialTimeout(t, 500*time.Millisecond, proxy.Addr()), config)
		if err != nil {
			t.Fatal(err)
		}
		e := c.add(p, func(ctx context.Context, t *Task) ([]byte, error) {
			if t.Index%50 != 0 {
				return milliSquare(ctx, t)
			}
			<-ctx.Done() // until its session is lost
			if errors.Is(context.Cause(ctx), ErrSessionLost) {
				told.Add(1)
			}
			return square(ctx, t)
		})
		eventually(t, "tasks in hand", func() bool { return e.Counts().InHand > 0 || f.inRedis("b").Done == 4000 })
		proxy.Refuse(true)
		proxy.Cut()
		<-p.Context().Done()
		if _, err := e.Take(t.Context()); !errors.Is(err, ErrSessionLost) {
			t.Errorf("take after the loss: %v", err)
		}
	}
	f.complete("b")
	c.drain()
	f.checkSquares("b", 4000)
	if told.Load() == 0 {
		t.Error("no task was told of the loss of its session")
	}
}

// TestZooKeeperSilent: while ZooKeeper does not answer, an executor works on what it has and reports it, and takes
// nothing.
func TestZooKeeperSilent(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(3000))
	proxy := newProxy(t, servers.Addrs()[0])
	p, err := Join(t.Context(), dialTimeout(t, 8*time.Second, proxy.Addr()), f.config("e", queue.Executor))
	if err != nil {
		t.Fatal(err)
	}
	c, silent := &crew{f: f}, make(chan struct{})
	e := c.add(p, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Index >= 500 {
			<-silent
		}
		return square(ctx, t)
	})
	eventually(t, "results", func() bool { return f.inRedis("b").Done > 0 && e.Counts().InHand > 0 })
	proxy.Hang(true)
	eventually(t, "silence", func() bool { return !p.Connected() })
	close(silent)
	eventually(t, "an empty hand, and all results in Redis", func() bool {
		b := f.inRedis("b")
		return e.Counts().InHand == 0 && b.Out == 0
	})
	if b := f.inRedis("b"); b.Done < 500 || b.Waiting < 1000 {
		t.Errorf("it did not work on its hand, or took more: %+v", b)
	}
	proxy.Hang(false)
	f.complete("b")
	c.drain()
	f.checkSquares("b", 3000)
}
