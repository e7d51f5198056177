package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// executor joins an executor with so many slots.
func (f *fixture) executor(identity string, parallel int) *Process {
	f.t.Helper()
	return f.join(identity, queue.Executor, func(c *Config) { c.Parallel = parallel })
}

// results are the results of a batch by index, and the dead tasks as "dead: reason". Each index must come once.
func (f *fixture) results(id string) map[int64]string {
	f.t.Helper()
	out := map[int64]string{}
	for r, err := range Records(f.t.Context(), f.store(), id, nil) {
		if err != nil {
			f.t.Fatal(err)
		}
		if old, twice := out[r.Index]; twice {
			f.t.Errorf("task %d of %s has two results: %q and %q", r.Index, id, old, r.Result)
		}
		out[r.Index] = string(r.Result)
		if r.Dead {
			out[r.Index] = "dead: " + r.Error
		}
	}
	return out
}

// square is the work of these tests.
func square(_ context.Context, t *Task) ([]byte, error) {
	var n int64
	if _, err := fmt.Sscan(string(t.Payload), &n); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNever, err)
	}
	return fmt.Append(nil, n*n), nil
}

// checkSquares checks that each task of a batch has its result once.
func (f *fixture) checkSquares(id string, n int) {
	f.t.Helper()
	results := f.results(id)
	if len(results) != n {
		f.t.Errorf("%s has %d results, not %d", id, len(results), n)
	}
	for i := range int64(n) {
		if want := fmt.Sprint(i * i); results[i] != want {
			f.t.Fatalf("task %d of %s: %q, not %q", i, id, results[i], want)
		}
	}
	b := f.inRedis(id)
	if b.Done != int64(n) || b.Out != 0 || b.Waiting+b.Returned+b.Late != 0 {
		f.t.Errorf("%s: books %+v", id, b)
	}
}

func TestExecuteUntilEmpty(t *testing.T) {
	t.Parallel()
	for _, executors := range []int{1, 8} {
		t.Run(fmt.Sprint(executors), func(t *testing.T) {
			f := newFixture(t)
			f.submit("b", numbered(5000))
			errs := make(chan error)
			for i := range executors {
				p := f.executor(fmt.Sprint("e", i), 4)
				go func() { errs <- Execute(t.Context(), p, ExecutorConfig{Parallel: 4, UntilEmpty: true}, square) }()
			}
			for range executors {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			f.checkSquares("b", 5000)
		})
	}
}

// TestUntilEmptyAfterADeath: what a dead executor held comes back a moment after another one has joined. That one waits
// for it: otherwise each that is started to empty the queue would end at once.
func TestUntilEmptyAfterADeath(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(10))
	first := f.executor("first", 4)
	if task, err := StartExecutor(first, ExecutorConfig{Parallel: 4}).Take(t.Context()); err != nil {
		t.Fatal(task, err)
	}
	if err := first.session.Close(); err != nil {
		t.Fatal(err)
	}
	err := Execute(t.Context(), f.executor("next", 4), ExecutorConfig{Parallel: 4, UntilEmpty: true}, square)
	if err != nil {
		t.Fatal(err)
	}
	f.checkSquares("b", 10)
}

// TestUntilEmptyWhileADeadOneStands: an executor was killed, and its session has not ended yet. One that is started to
// empty the queue waits for what the dead one held, and ends though a live one holds a task for longer.
func TestUntilEmptyWhileADeadOneStands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(10))
	proxy := rig.Proxy(t, servers.Addrs()[0])
	join := func(identity string, addrs ...string) *Process {
		return f.joinIn(dialTimeout(t, 4*time.Second, addrs...), identity, queue.Executor)
	}
	for _, holder := range []*Process{join("dead", proxy.Addr()), join("live")} {
		c := ExecutorConfig{Parallel: 1, MaxTasks: 1}
		if task, err := StartExecutor(holder, c).Take(t.Context()); err != nil {
			t.Fatal(task, err)
		}
	}
	proxy.Hang(true) // no heartbeat arrives from here on, and the session stands
	if err := Execute(t.Context(), join("next"), ExecutorConfig{Parallel: 4, UntilEmpty: true}, square); err != nil {
		t.Fatal(err)
	}
	if b := f.inRedis("b"); b.Done < 9 {
		t.Errorf("only what the live one holds may be left: %+v", b)
	}
}

// crew is executors that run in the background.
type crew struct {
	f    *fixture
	all  []*Executor
	done sync.WaitGroup
}

// crew is one without executors. The end of the test waits for all of them when all have left.
func (f *fixture) crew() *crew {
	c := &crew{f: f}
	f.t.Cleanup(c.done.Wait)
	return c
}

// start starts executors with so many slots each.
func (f *fixture) start(executors, parallel int, do func(ctx context.Context, t *Task) ([]byte, error)) *crew {
	f.t.Helper()
	c := f.crew()
	for i := range executors {
		c.add(f.executor(fmt.Sprint("e", i), parallel), do)
	}
	return c
}

// add starts one.
func (c *crew) add(p *Process, do func(ctx context.Context, t *Task) ([]byte, error)) *Executor {
	c.f.t.Helper()
	e := StartExecutor(p, ExecutorConfig{Parallel: p.config.Parallel})
	c.all = append(c.all, e)
	for range p.config.Parallel {
		c.done.Go(func() { e.consume(context.Background(), "here", do) })
	}
	c.f.t.Cleanup(func() { p.Leave() })
	return e
}

// drain ends all.
func (c *crew) drain() {
	c.f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, e := range c.all {
		if err := e.Drain(ctx); err != nil && e.p.ctx.Err() == nil {
			c.f.t.Error(err)
		}
	}
	c.done.Wait()
}

// dones are how many tasks each has done.
func (c *crew) dones() (each []int64) {
	for _, e := range c.all {
		each = append(each, e.Counts().Done)
	}
	return each
}

// counts are the sums.
func (c *crew) counts() (sum Counts) {
	for _, e := range c.all {
		n := e.Counts()
		sum.InHand += n.InHand
		sum.Done += n.Done
		sum.Retried += n.Retried
		sum.Never += n.Never
		sum.Refused += n.Refused
		sum.Recovered += n.Recovered
	}
	return sum
}

// complete waits until a batch is.
func (f *fixture) complete(id string) {
	f.t.Helper()
	rig.Await(f.t, "the end of "+id, func() bool {
		b, err := f.store().Batch(f.t.Context(), id)
		return err == nil && b.Tasks > 0 && b.Done+b.Dead == b.Tasks
	})
}

func TestExecuteMaxTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(3000))
	for i, most := range []int64{7, 1500} {
		var begun atomic.Int64
		err := Execute(t.Context(), f.executor(fmt.Sprint("e", i), 3), ExecutorConfig{Parallel: 3, MaxTasks: most},
			func(ctx context.Context, t *Task) ([]byte, error) {
				begun.Add(1)
				return square(ctx, t)
			})
		if err != nil || begun.Load() != most {
			t.Errorf("%d tasks begun, not %d: %v", begun.Load(), most, err)
		}
	}
	if b := f.inRedis("b"); b.Done != 1507 || b.Out != 0 {
		t.Errorf("books %+v", b)
	}
}

// TestExecuteErrors: what a task returns decides whether it is tried again, and when.
func TestExecuteErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(q *queue.Queue) {
		q.Attempts, q.Backoff, q.MaxTask = 3, resource.Duration(50*time.Millisecond), 1024
	})
	tasks := Payloads([]byte("never"), []byte("always fails"), []byte("second time"), []byte("large"), []byte("fits"),
		[]byte("slow"))
	c := f.submitConfig("b")
	c.TaskTimeout = 300 * time.Millisecond
	if _, err := Submit(t.Context(), f.s, c, tasks); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	begun := map[string][]time.Time{}
	do := func(ctx context.Context, t *Task) ([]byte, error) {
		mu.Lock()
		begun[string(t.Payload)] = append(begun[string(t.Payload)], time.Now())
		n := len(begun[string(t.Payload)])
		mu.Unlock()
		switch string(t.Payload) {
		case "never":
			return nil, fmt.Errorf("%w: no such thing", ErrNever)
		case "always fails":
			return nil, fmt.Errorf("failed %d times", t.Attempt)
		case "second time":
			if n == 1 {
				return nil, errors.New("not yet")
			}
		case "large":
			return make([]byte, 1025), nil
		case "fits":
			return make([]byte, 1024), nil
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []byte("ok"), nil
	}
	if err := Execute(t.Context(), f.executor("e", 2), ExecutorConfig{Parallel: 2, UntilEmpty: true}, do); err != nil {
		t.Fatal(err)
	}
	want := map[int64]string{
		0: "dead: " + ErrNever.Error() + ": no such thing", 1: "dead: failed 3 times", 2: "ok",
		3: "dead: its result of 1025 bytes is larger than max_task, 1024 bytes", 4: string(make([]byte, 1024)),
		5: "dead: the task took too long: more than 300ms: context deadline exceeded",
	}
	if d := cmp.Diff(want, f.results("b")); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
	times := map[string]int{"never": 1, "always fails": 3, "second time": 2, "large": 1, "fits": 1, "slow": 3}
	for task, n := range times {
		if len(begun[task]) != n {
			t.Errorf("%q was begun %d times, not %d", task, len(begun[task]), n)
		}
	}
	if at := begun["always fails"]; at[1].Sub(at[0]) < 50*time.Millisecond || at[2].Sub(at[1]) < 100*time.Millisecond {
		t.Errorf("too early: %v", at)
	}
}

// TestCancelInHand: a cancelled batch ends the contexts of its tasks, and what was not begun is dropped.
func TestCancelInHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(50))
	begun, ended := make(chan *Task, 50), make(chan error, 50)
	c := f.start(1, 2, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Batch == "other" {
			return nil, nil
		}
		begun <- t
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	<-begun
	<-begun
	f.edit("b", func(m *znode.BatchManifest) { m.State = znode.BatchCancelled })
	for range 2 {
		if err := <-ended; !errors.Is(err, ErrBatchOver) {
			t.Error(err)
		}
	}
	f.submit("other", numbered(20))
	f.complete("other")
	c.drain()
	if len(begun) > 0 || c.counts().Done != 20 {
		t.Errorf("%d more were begun: %+v", len(begun), c.counts())
	}
	b, err := f.store().Batch(t.Context(), "b")
	if errors.Is(err, store.ErrNoBatch) { // the keeper was quick
		var end *znode.BatchEnd
		end, err = f.ledger().Ended(t.Context(), "b")
		if end != nil {
			b.Dead, b.State = end.Dead, string(end.How)
		}
	}
	if err != nil || b.Out != 0 || b.Dead != 0 || b.State != "cancelled" {
		t.Errorf("books %+v: %v", b, err)
	}
}

// TestPausedInHand: what was taken of a paused batch and not begun goes back, and runs when it is resumed. Redis learns
// of the pause although who paused has died before telling it.
func TestPausedInHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(2000))
	var begun atomic.Int64
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	c := f.start(2, 2, func(ctx context.Context, t *Task) ([]byte, error) {
		if begun.Add(1) > 1000 {
			<-hold
		}
		return square(ctx, t)
	})
	rig.Await(t, "four tasks that wait", func() bool { return begun.Load() == 1004 })
	f.edit("b", func(m *znode.BatchManifest) { m.State = znode.BatchPaused })
	rig.Await(t, "the rest of the hands to go back", func() bool { return c.counts().InHand == 4 })
	release()
	rig.Await(t, "nothing in hand, and the pause in Redis", func() bool {
		b := f.inRedis("b")
		return b.Out == 0 && b.Done == 1004 && b.State == "paused"
	})
	m := f.edit("b", func(m *znode.BatchManifest) { m.State = znode.BatchOpen })
	if err := m.tell(t.Context(), f.store(), "b"); err != nil {
		t.Fatal(err)
	}
	f.complete("b")
	c.drain()
	f.checkSquares("b", 2000)
	if begun.Load() != 2000 {
		t.Errorf("%d tasks were begun", begun.Load())
	}
}

// TestOpenInRedisFirst: a submitter opens a batch in Redis before it says so in ZooKeeper. Executors that take tasks in
// between work on them, also if the manifest was written again while it was being submitted.
func TestOpenInRedisFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.half("b", "open")
	f.start(1, 2, square)
	f.complete("b")
	f.checkSquares("b", 3)
	if b := f.inRedis("b"); b.State != string(znode.BatchOpen) {
		t.Errorf("its state in Redis: %s", b.State)
	}
}

// TestStalledHandGoesBack: what waits behind a long task goes to another executor, although it was thought to be short.
func TestStalledHandGoesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("short", numbered(1000))
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	c := f.start(1, 1, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Batch == "b" {
			<-hold
		}
		return square(ctx, t)
	})
	f.complete("short")
	f.submit("b", numbered(300))
	rig.Await(t, "a task that is long", func() bool { return c.counts().InHand > 0 })
	c.add(f.executor("other", 1), square)
	rig.Await(t, "the rest of the hand to go to the other one", func() bool { return f.inRedis("b").Done == 299 })
	release()
	f.complete("b")
	c.drain()
	f.checkSquares("b", 300)
}

// milliSquare is square that takes about a millisecond.
func milliSquare(ctx context.Context, t *Task) ([]byte, error) {
	takeTime(time.Millisecond)
	return square(ctx, t)
}

// takeTime is work.
func takeTime(d time.Duration) { <-time.After(d) }

// until calls fault again and again, with random pauses, until a batch is complete.
func (f *fixture) until(id string, fault func()) {
	f.t.Helper()
	end := make(chan struct{})
	go func() {
		defer close(end)
		f.complete(id)
	}()
	for {
		select {
		case <-end:
			return
		case <-time.After(20*time.Millisecond + rand.N(50*time.Millisecond)):
			fault()
		}
	}
}

// TestExecuteLostReplies: Redis does what it is asked, and again and again nobody hears of it.
func TestExecuteLostReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store() // makes the observer's connection, which is not through the proxy
	proxy := rig.Proxy(t, rediss.Addr())
	f.change(func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() + "/0" })
	c := f.start(8, 4, milliSquare)
	batches := 0
	for ; c.counts().Recovered < 5; batches++ { // where little of the time is spent on Redis, few replies are lost
		id := fmt.Sprint("b", batches)
		f.submit(id, numbered(3000))
		f.until(id, func() {
			proxy.Mute(true)
			takeTime(rand.N(10 * time.Millisecond))
			proxy.Cut()
			proxy.Mute(false)
		})
		f.checkSquares(id, 3000)
	}
	c.drain()
	if n := c.counts(); n.Done < int64(batches)*3000 {
		t.Errorf("counts %+v after %d batches", n, batches)
	}
}

// TestExecuteSessionsLost: executors lose their sessions one after the other, and others come. Their commands are told,
// their results are refused, and their tasks are done elsewhere.
func TestExecuteSessionsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(4000))
	c := f.start(1, 2, milliSquare) // it looks after the queue
	var told atomic.Int64
	for i := range 4 {
		proxy := rig.Proxy(t, servers.Addrs()[0])
		s := dialTimeout(t, 500*time.Millisecond, proxy.Addr())
		p := f.joinIn(s, fmt.Sprint("lost", i), queue.Executor)
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
		rig.Await(t, "tasks in hand", func() bool { return e.Counts().InHand > 0 || f.inRedis("b").Done == 4000 })
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
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(3000))
	proxy := rig.Proxy(t, servers.Addrs()[0])
	p := f.joinIn(dialTimeout(t, 8*time.Second, proxy.Addr()), "e", queue.Executor)
	c, silent := f.crew(), make(chan struct{})
	e := c.add(p, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Index >= 500 {
			<-silent
		}
		return square(ctx, t)
	})
	rig.Await(t, "results", func() bool { return f.inRedis("b").Done > 0 && e.Counts().InHand > 0 })
	proxy.Hang(true)
	rig.Await(t, "silence", func() bool { return !p.Connected() })
	close(silent)
	rig.Await(t, "an empty hand, and all results in Redis", func() bool {
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

// TestASuspectIsAlone: an executor that has one takes nothing else, although commands are idle and tasks wait, and does
// not ask all the time.
func TestASuspectIsAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b", numbered(1))
	for _, name := range []string{"d1", "d2"} {
		p := f.join(name, queue.Executor)
		f.take(p, 1)
		if _, _, err := f.store().Evict(t.Context(), store.Died, p.Seat); err != nil {
			t.Fatal(err)
		}
	}
	begun, hold := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	c := f.start(1, 2, func(ctx context.Context, t *Task) ([]byte, error) {
		if t.Batch == "b" {
			close(begun)
			<-hold
		}
		return square(ctx, t)
	})
	<-begun
	f.submit("c", numbered(4))
	at, turns := time.Now(), c.all[0].Counts().Turns
	rig.Await(t, "more turns", func() bool { return c.all[0].Counts().Turns >= turns+4 })
	if passed, n := time.Since(at), c.counts().InHand; passed < 2*restTime || n != 1 {
		t.Errorf("4 turns in %s; %d tasks are in hand", passed, n)
	}
	release()
	f.complete("b")
	f.complete("c")
	c.drain()
	f.checkSquares("c", 4)
}
