package tasks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/sim/rig"
	"muster/zkstate/znode"
)

// TestFairByTime: two batches of one weight get the same time, although the tasks of one take fifty times as long.
// Counted are the tasks that executors began, at each begin.
func TestFairByTime(t *testing.T) {
	const short, long, slots = time.Millisecond, 50 * time.Millisecond, 4
	f := newFixture(t)
	f.submit("short", numbered(20_000))
	f.submit("long", numbered(400))
	var mu sync.Mutex
	served := map[string]time.Duration{}
	var worst time.Duration
	end := make(chan struct{})
	c := f.start(2, slots/2, func(ctx context.Context, t *Task) ([]byte, error) {
		takes := short
		if t.Batch == "long" {
			takes = long
		}
		begun := time.Now()
		takeTime(takes)
		mu.Lock()
		defer mu.Unlock()
		served[t.Batch] += time.Since(begun) // what the executor will report, about
		if served["short"] > 0 && served["long"] > 0 {
			worst = max(worst, (served["short"] - served["long"]).Abs())
		}
		if served["short"]+served["long"] > 8*time.Second {
			select {
			case <-end:
			default:
				close(end)
			}
		}
		return square(ctx, t)
	})
	<-end
	mu.Lock()
	defer mu.Unlock()
	// One hand of each executor, on both sides, and what is under way.
	limit := 2*slots*(minLookahead+long) + time.Second
	if worst > limit {
		t.Errorf("served time differed by up to %s, more than %s: %v", worst, limit, served)
	}
	go c.drain()
}

// TestSmallBesideLarge: a batch of ten tasks that comes while a large one is worked on is done within two hands.
func TestSmallBesideLarge(t *testing.T) {
	f := newFixture(t)
	f.submit("large", numbered(100_000))
	var after atomic.Int64 // tasks of the large one that began after the small one came
	var come atomic.Bool
	c := f.start(2, 2, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Batch == "large" && come.Load() {
			after.Add(1)
		}
		takeTime(time.Millisecond)
		return square(ctx, t)
	})
	rig.Await(t, "work", func() bool { return f.inRedis("large").Done > 1000 })
	f.submit("small", numbered(10))
	come.Store(true)
	rig.Await(t, "the small batch", func() bool { return f.inRedis("small").Done == 10 })
	var hand int64 // of both executors, as they are now
	for _, e := range c.all {
		e.mu.Lock()
		hand += int64(e.full() / time.Millisecond)
		e.mu.Unlock()
	}
	if n := after.Load(); n > 3*hand { // the hand in which it came, and two
		t.Errorf("%d tasks of the large batch came before the ten of the small one; a hand is %d", n, hand)
	}
	go c.drain()
}

// TestExecutorsComeAndGo: who comes gets a share, and what is done by whom is left goes on.
func TestExecutorsComeAndGo(t *testing.T) {
	f := newFixture(t)
	f.submit("b", numbered(100_000))
	work := func(ctx context.Context, t *Task) ([]byte, error) {
		takeTime(5 * time.Millisecond)
		return square(ctx, t)
	}
	c := f.start(1, 2, work)
	rig.Await(t, "work", func() bool { return c.counts().Done > 200 })
	for i := range 3 {
		c.add(f.executor(fmt.Sprint("more", i), 2), work)
	}
	before := c.dones()
	rig.Await(t, "an eighth of 400 tasks in a row for each", func() bool {
		now, all, least := c.dones(), int64(0), int64(math.MaxInt64)
		for i := range now {
			all += now[i] - before[i]
			least = min(least, now[i]-before[i])
		}
		if all >= 400 && 8*least < all {
			before = now
		}
		return all >= 400 && 8*least >= all
	})
	for _, e := range c.all[1:] {
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	before = c.dones()
	rig.Await(t, "the first one to go on", func() bool { return c.dones()[0] > before[0]+200 })
	if now := c.dones(); !slices.Equal(now[1:], before[1:]) {
		t.Errorf("who has left has done %v, and later %v", before[1:], now[1:])
	}
	c.drain()
	if b := f.inRedis("b"); b.State != string(znode.BatchOpen) || b.Out != 0 || b.Done != c.counts().Done {
		t.Errorf("books %+v, executors %+v", b, c.counts())
	}
}
