package tasks

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// take takes n tasks, and does nothing with them.
func (f *fixture) take(p *Process, n int) int {
	f.t.Helper()
	took := 0
	err := p.Call(f.t.Context(), func(ctx context.Context, seq int64) error {
		got, err := p.Store().Turn(ctx, p.Seat, seq, store.Turn{Idle: n, MaxBytes: 1 << 30})
		for _, g := range got.Granted {
			took += len(g.Payloads)
		}
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return took
}

// crash ends the session of a process as its death does, without a word to Redis.
func crash(t testing.TB, p *Process) {
	t.Helper()
	if err := p.session.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestADeadExecutorGivesBack: the keeper evicts it, and its tasks are there for another one.
func TestADeadExecutorGivesBack(t *testing.T) {
	f := newFixture(t)
	f.joinKeeper("k", defaultLong())
	a, b := f.join("a", queue.Executor), f.join("b", queue.Executor)
	f.submit("b1", numbered(10))
	if n := f.take(a, 10); n == 0 {
		t.Fatal("nothing taken")
	}
	crash(t, a)
	eventually(t, "the eviction", func() bool { return len(f.books().Seats) == 2 })
	f.executeAll(b, always(store.Done))
	if got := f.inRedis("b1"); got.Done != 10 {
		t.Errorf("done: %d", got.Done)
	}
}

// defaultLong never looks by itself: only the seats wake it.
func defaultLong() *keepLimits {
	l := defaultKeepLimits()
	l.period, l.abandoned = time.Hour, time.Hour
	return &l
}

// TestTheKeeperDies: the next seat is the keeper, and evicts the one before.
func TestTheKeeperDies(t *testing.T) {
	f := newFixture(t)
	k := f.joinKeeper("k", defaultLong())
	f.joinKeeper("l", defaultLong())
	f.joinKeeper("m", defaultLong())
	if n := len(f.books().Seats); n != 3 {
		t.Fatalf("%d seats", n)
	}
	crash(t, k)
	eventually(t, "the eviction", func() bool { return len(f.books().Seats) == 2 })
}

// idleKeeper makes a seat before all others, whose process does nothing. The queue has its folders, and nobody in it.
func (f *fixture) idleKeeper() {
	f.t.Helper()
	body, err := znode.Encode(znode.QueueSeat{Identity: "idle", Nonce: "n", Role: queue.Watcher})
	if err == nil {
		at := znode.NewSeat(f.queue.Root, f.generation())
		_, err = f.s.Create(f.t.Context(), at, body, zkconn.PersistentSequential, zkconn.World(zkconn.PermAll))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestAKeeperThatDoesNothing: any other process evicts what it leaves.
func TestAKeeperThatDoesNothing(t *testing.T) {
	f := newFixture(t)
	f.submit("b1", numbered(1))
	f.idleKeeper()
	st := f.store()
	for _, seat := range []string{"dead1", "dead2"} {
		if _, err := st.Hello(t.Context(), seat, store.Executor, 1); err != nil {
			t.Fatal(err)
		}
	}
	l := defaultLong()
	f.joinKeeper("patient", l)
	if n := len(f.books().Seats); n != 3 {
		t.Fatalf("%d seats", n)
	}
	l.abandoned = 10 * time.Millisecond
	f.joinKeeper("p", l)
	eventually(t, "the evictions", func() bool { return len(f.books().Seats) == 2 })
}

// TestDeathsAreChargedToFailures: a task on which executors die again and again is dead in the end. An outage of most
// seats charges nobody.
func TestDeathsAreChargedToFailures(t *testing.T) {
	const deaths = 6
	kill := func(t *testing.T, f *fixture, together int) {
		var all []*Process
		for i := range together {
			all = append(all, f.join(fmt.Sprint("e", i), queue.Executor))
		}
		for _, e := range all {
			f.take(e, 1)
		}
		before := len(f.books().Seats)
		for _, e := range all { // their deaths are seen in one look
			crash(t, e)
		}
		k := f.join("one", queue.Watcher)
		defer k.Leave()
		look := &keeper{p: k, limits: k.limits}
		look.limits.settle = 0
		if err := look.evictGone(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.books().Seats); n != before-together+1 {
			t.Fatalf("%d seats are left of %d", n, before)
		}
	}
	t.Run("poison", func(t *testing.T) {
		f := newFixture(t)
		f.submit("b1", numbered(1))
		f.idleKeeper()
		for i := 0; i < deaths && f.inRedis("b1").Dead == 0; i++ {
			kill(t, f, 1)
		}
		if b := f.inRedis("b1"); b.Dead != 1 {
			t.Errorf("after %d deaths: %+v", deaths, b)
		}
	})
	t.Run("outage", func(t *testing.T) {
		f := newFixture(t)
		f.submit("b1", numbered(2))
		f.idleKeeper()
		for range deaths {
			kill(t, f, 2)
		}
		if b := f.inRedis("b1"); b.Dead != 0 || b.Returned != 2 {
			t.Errorf("after %d outages: %+v", deaths, b)
		}
	})
}

// TestAFrozenKeeper: what it read of Redis is old when it looks at ZooKeeper, and what it decided is old when it acts.
// It evicts nobody who is there.
func TestAFrozenKeeper(t *testing.T) {
	f := newFixture(t)
	proxy := newProxy(t, servers.Addrs()[0])
	c := f.config("frozen", queue.Watcher)
	c.keep = quick()
	frozen, err := Join(t.Context(), dialTimeout(t, 20*time.Second, proxy.Addr()), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { frozen.Leave() })
	e := f.join("e1", queue.Executor)
	f.submit("b1", numbered(4))
	proxy.Hang(true)
	f.take(e, 2)
	late := f.join("e2", queue.Executor)
	f.take(late, 1)
	f.submit("b2", numbered(4))
	crash(t, e)
	proxy.Hang(false)
	eventually(t, "the dead seat to go", func() bool { return len(f.books().Seats) == 2 })
	if b := f.inRedis("b1"); b.Out+f.inRedis("b2").Out != 1 {
		t.Errorf("in hand: %d", b.Out)
	}
	f.executeAll(late, always(store.Done))
}

// refusing is a hook of a client of Redis whose calls fail at once, and are counted.
type refusing struct{ calls atomic.Int64 }

func (r *refusing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (r *refusing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		r.calls.Add(1)
		cmd.SetErr(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
}

// TestSeatsChangeWhileRedisIsAway: the keeper does not look again and again.
func TestSeatsChangeWhileRedisIsAway(t *testing.T) {
	f := newFixture(t)
	p := f.joinKeeper("keeper", defaultLong())
	if _, err := p.store.Hello(t.Context(), "dead", store.Executor, 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a keeper", func() bool { return len(f.books().Seats) == 1 })
	away := &refusing{}
	p.client.AddHook(away)
	f.join("another", queue.Watcher)
	eventually(t, "a look", func() bool { return away.calls.Load() > 0 })
	<-time.After(time.Second)
	if n := away.calls.Load(); n > 50 {
		t.Errorf("redis was asked %d times in a second", n)
	}
}
