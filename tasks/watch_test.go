package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/dev/fault"
	"muster/dev/redisserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/tasks/store/lua"
	"muster/zkstate/znode"
)

// executeAll executes all tasks that wait, as p. result says how an attempt ends; nil is done, with the payload as the
// result.
func (f *fixture) executeAll(p *Process, result func(index int64) (store.Outcome, []byte)) {
	f.t.Helper()
	finishAll(func(results []store.Result) []store.Grant {
		var got store.Turned
		err := p.Call(f.t.Context(), func(ctx context.Context, seq int64) (err error) {
			got, err = p.store.Turn(ctx, p.Seat, seq, store.Turn{
				Results: results, Idle: 100, Room: time.Hour, Backoff: time.Millisecond, MaxBytes: 1 << 30,
			})
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
		return got.Granted
	}, func(index int64, payload []byte) (store.Outcome, []byte) {
		if result != nil {
			return result(index)
		}
		return echo(payload)
	})
}

// completed submits a batch of n tasks and executes them.
func (f *fixture) completed(executor *Process, id string, n int) {
	f.t.Helper()
	f.submit(id, numbered(n))
	f.executeAll(executor, nil)
}

// watching runs Watch as p until the test ends, or stop is called; stop returns why it ended.
func (f *fixture) watching(p *Process, do func(ctx context.Context, b *Completed) error) (stop func() error) {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, p, do) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	f.t.Cleanup(func() { stop() })
	return stop
}

// endOf waits until a batch has ended, and returns how. Redis has none of it then.
func (f *fixture) endOf(id string) *znode.BatchEnd {
	f.t.Helper()
	var end *znode.BatchEnd
	rig.Await(f.t, "the end of batch "+id, func() bool {
		var err error
		if end, err = f.ledger().Ended(f.t.Context(), id); err != nil {
			f.t.Fatal(err)
		}
		_, err = f.store().Batch(f.t.Context(), id)
		return end != nil && errors.Is(err, store.ErrNoBatch)
	})
	if _, err := f.ledger().Manifest(f.t.Context(), id); !errors.Is(err, ErrNoBatch) {
		f.t.Errorf("the manifest of %s: %v", id, err)
	}
	return end
}

// TestWatchCollects: a watcher gets every result once, also of dead tasks and in any bytes, and the batch ends.
func TestWatchCollects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	exit := 65
	f.submit("b", numbered(1500))
	f.executeAll(f.join("e", queue.Executor), func(index int64) (store.Outcome, []byte) {
		switch index {
		case 3:
			return store.Done, Answer{Body: []byte{0xff, 0}, Host: "here"}.Encode()
		case 7:
			return store.Never, Answer{Body: []byte("hopeless"), Exit: &exit}.Encode()
		}
		return store.Done, Answer{Body: fmt.Append(nil, index*index)}.Encode()
	})
	seen := map[int64]Record{}
	f.watching(f.join("w", queue.Watcher), func(ctx context.Context, b *Completed) error {
		if b.ID != "b" || b.Done != 1499 || b.Dead != 1 || b.Try != 1 || b.Manifest.Tasks != 1500 {
			t.Errorf("completed: %+v", b)
		}
		for r, err := range b.Records(ctx) {
			if err != nil {
				return err
			}
			if _, twice := seen[r.Index]; twice {
				t.Errorf("task %d twice", r.Index)
			}
			seen[r.Index] = r
		}
		return nil
	})
	end := f.endOf("b")
	if end.How != znode.EndCollected || end.Done != 1499 || end.Dead != 1 || end.EndedBy != "w" {
		t.Errorf("end: %+v", end)
	}
	if len(seen) != 1500 || string(seen[42].Result) != "1764" {
		t.Errorf("%d records; task 42: %+v", len(seen), seen[42])
	}
	line, err := seen[3].MarshalJSON()
	if err != nil || string(line) != `{"index":3,"attempt":1,"ms":1,"host":"here","base64":"/wA="}` {
		t.Errorf("task 3: %s, %v", line, err)
	}
	if dead := seen[7]; !dead.Dead || dead.Error != "hopeless" || *dead.Exit != 65 || string(dead.Task) != "7" {
		t.Errorf("task 7: %+v", dead)
	}
}

// TestWatchersShare: each batch is one watcher's, which gets the counts of that batch.
func TestWatchersShare(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const batches = 30
	var mu sync.Mutex
	by, sizes := map[string][]string{}, map[string]int64{}
	for i := range batches {
		sizes[fmt.Sprint("b", i)] = int64(1 + i*i)
	}
	for _, name := range []string{"w1", "w2"} {
		p := f.join(name, queue.Watcher)
		f.watching(p, func(_ context.Context, b *Completed) error {
			mu.Lock()
			defer mu.Unlock()
			by[b.ID] = append(by[b.ID], name)
			if n := sizes[b.ID]; b.Done != n || b.Manifest.Tasks != n {
				t.Errorf("%s has %d tasks, of which %d are done, not %d", b.ID, b.Manifest.Tasks, b.Done, n)
			}
			return nil
		})
	}
	executor := f.join("e", queue.Executor)
	for id, n := range sizes {
		f.completed(executor, id, int(n))
	}
	for id := range sizes {
		end := f.endOf(id)
		mu.Lock()
		if len(by[id]) != 1 || by[id][0] != end.EndedBy {
			t.Errorf("%s was done by %v and ended by %s", id, by[id], end.EndedBy)
		}
		mu.Unlock()
	}
	if b := f.books(); b.Batches != 0 || b.Bytes != 0 || b.Complete != 0 {
		t.Errorf("left in redis: %+v", b)
	}
}

// TestWatchFails: a batch that fails goes back with the reason. After its last try nobody gets it, before a retry.
func TestWatchFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(q *queue.Queue) { q.Attempts, q.Backoff = 2, resource.Duration(time.Millisecond) })
	f.joinKeeper("k", quick())
	f.completed(f.join("e", queue.Executor), "b", 1)
	var mended atomic.Bool
	var tries atomic.Int32
	f.watching(f.join("w", queue.Watcher), func(_ context.Context, b *Completed) error {
		if tries.Add(1); mended.Load() {
			if b.Try != 1 {
				t.Errorf("after a retry: try %d", b.Try)
			}
			return nil
		}
		return fmt.Errorf("no room, try %d", b.Try)
	})
	rig.Await(t, "two tries", func() bool { return f.inRedis("b").Tries == 2 })
	b := f.inRedis("b")
	if b.Because != "no room, try 2" || b.Holder != "" {
		t.Errorf("in redis: %+v", b)
	}
	named := func(ids ...string) func() bool {
		return func() bool { h := f.health(); return h != nil && slices.Equal(h.Failed, ids) && h.Completed == 0 }
	}
	rig.Await(t, "the health of the queue names it", named("b"))
	if status := f.look().Status(); status != queue.Degraded {
		t.Errorf("the queue is %s", status)
	}
	other := f.join("w2", queue.Watcher)
	if err := other.Call(t.Context(), func(ctx context.Context, seq int64) error {
		got, next, err := other.store.Claim(ctx, other.Seat, seq)
		if got != nil || next >= 0 {
			t.Errorf("claimed %+v, next %s", got, next)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	mended.Store(true)
	if _, err := f.store().Retry(t.Context(), "b", "b", b.Life, 0, 100, time.Now()); err != nil {
		t.Fatal(err)
	}
	if f.endOf("b"); tries.Load() != 3 {
		t.Errorf("%d tries, want 3", tries.Load())
	}
	rig.Await(t, "the health of the queue names it no more", named())
}

// TestWatchOtherLife: a batch of the same name is another batch.
func TestWatchOtherLife(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.completed(f.join("e", queue.Executor), "b", 2)
	m := f.batch("b")
	at := znode.Batch(f.queue.Root, f.generation(), "b")
	if err := f.s.Delete(t.Context(), at, m.Version); err != nil {
		t.Fatal(err)
	}
	again := f.batchAgain(at, m.BatchManifest)
	f.watching(f.join("w", queue.Watcher), func(context.Context, *Completed) error {
		t.Error("done, though it is of another life")
		return nil
	})
	rig.Await(t, "the old life is removed", func() bool {
		_, err := f.store().Batch(t.Context(), "b")
		return errors.Is(err, store.ErrNoBatch)
	})
	if f.batch("b").Life != again.Life {
		t.Error("the manifest of the new life was touched")
	}
}

// batchAgain writes a manifest.
func (f *fixture) batchAgain(at string, b znode.BatchManifest) Manifest {
	f.t.Helper()
	body, err := znode.Encode(b)
	if err == nil {
		acl, _, aclErr := f.s.ACL(f.t.Context(), znode.Batches(f.queue.Root, f.generation()))
		if err = aclErr; err == nil {
			_, err = f.s.Create(f.t.Context(), at, body, 0, acl)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return f.batch("b")
}

// TestWatchCancelled: the watcher of a batch that is cancelled is told, and the batch ends as cancelled.
func TestWatchCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.completed(f.join("e", queue.Executor), "b", 2)
	begun, cause := make(chan struct{}), make(chan error, 1)
	f.watching(f.join("w", queue.Watcher), func(ctx context.Context, _ *Completed) error {
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})
	<-begun
	f.edit("b", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
	if err := <-cause; !errors.Is(err, ErrBatchOver) {
		t.Errorf("told %v", err)
	}
	if end := f.endOf("b"); end.How != znode.EndCancelled {
		t.Errorf("ended as %s", end.How)
	}
}

// TestWatchLost: whoever loses its membership is told, and another watcher gets the batch. Whoever leaves is not
// charged.
func TestWatchLost(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprint("leaves ", leaves), func(t *testing.T) {
			f := newFixture(t)
			f.completed(f.join("e", queue.Executor), "b", 2)
			w := f.join("w", queue.Watcher)
			begun, cause := make(chan struct{}), make(chan error, 1)
			stop := f.watching(w, func(ctx context.Context, _ *Completed) error {
				close(begun)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				if leaves {
					return errors.New("interrupted")
				}
				return nil // it thinks that it has done its work, which does not end the batch
			})
			<-begun
			want := context.Canceled
			if leaves {
				stop()
				if err := w.Leave(); err != nil {
					t.Fatal(err)
				}
			} else {
				want = ErrSessionLost
				w.session.Close()
				if _, _, err := f.store().Evict(t.Context(), store.Died, w.Seat); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-cause; !errors.Is(err, want) {
				t.Errorf("told %v", err)
			}
			f.watching(f.join("w2", queue.Watcher), func(_ context.Context, b *Completed) error {
				if b.Try != 1 {
					t.Errorf("try %d: the first one was charged", b.Try)
				}
				return nil
			})
			if end := f.endOf("b"); end.EndedBy != "w2" {
				t.Errorf("ended by %s", end.EndedBy)
			}
		})
	}
}

// TestWatchLostReplies: whatever is lost, each batch is done once for each try, each try is charged once, and the batch
// ends.
func TestWatchLostReplies(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claim", "unclaim", "remove"} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " before ", before), func(t *testing.T) {
				f := newFixture(t, func(q *queue.Queue) { q.Backoff = resource.Duration(time.Millisecond) })
				f.completed(f.join("e", queue.Executor), "b", 2)
				w := f.join("w", queue.Watcher)
				text := lua.Scripts(lua.Clock())[name]
				hash := redis.NewScript(text).Hash()
				var losses atomic.Int32
				w.client.AddHook(hook(func(cmd redis.Cmder, send func() error) error {
					if which := cmd.Args()[1]; losses.Load() > 0 || which != hash && which != text {
						return send()
					}
					if !before {
						if err := send(); err != nil { // such as that Redis does not know the script yet
							return err
						}
					}
					losses.Add(1)
					return lost(cmd)
				}))
				var tries []int
				f.watching(w, func(_ context.Context, b *Completed) error {
					if tries = append(tries, b.Try); len(tries) < 2 {
						return errors.New("not yet")
					}
					return nil
				})
				end := f.endOf("b")
				if d := cmp.Diff([]int{1, 2}, tries); d != "" || end.How != znode.EndCollected {
					t.Errorf("ended as %s, tries (-want +got):\n%s", end.How, d)
				}
				if losses.Load() != 1 {
					t.Errorf("%d replies were lost", losses.Load())
				}
			})
		}
	}
}

// TestWatchRedisAway: a watcher waits for a Redis that was killed, also while it reads results and ends a batch.
func TestWatchRedisAway(t *testing.T) {
	t.Parallel()
	own := rig.StartRedis(t, redisserver.Options{Fsync: "always"})
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + own.Addr() + "/0" })
	f.completed(f.join("e", queue.Executor), "b", 20)
	away, back := make(chan struct{}), make(chan struct{})
	var seen []int64
	stop := f.watching(f.join("w", queue.Watcher), func(ctx context.Context, b *Completed) error {
		close(away)
		for r, err := range b.Records(ctx) {
			if err != nil {
				return err
			}
			seen = append(seen, r.Index)
		}
		<-back
		return nil
	})
	<-away
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	close(back)
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.endOf("b")
	slices.Sort(seen)
	if len(seen) != 20 || len(slices.Compact(seen)) != 20 {
		t.Errorf("read %v", seen)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

// TestRedisLosesAClaim: who reads the results of a batch, while Redis goes back to before the claim, is told so, and
// gets the batch again.
func TestRedisLosesAClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.completed(f.join("e", queue.Executor), "b", 2)
	w, c := f.join("w", queue.Watcher), f.client()
	key := func(name string) string { return store.Prefix(f.generation()) + name }
	var ends []error
	f.watching(w, func(ctx context.Context, b *Completed) (err error) {
		for r, wrong := range b.Records(ctx) {
			if err = wrong; len(ends) == 0 && r.Index == 1 {
				_, lost := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.HSet(ctx, key("b:b"), "holder", "")
					p.HDel(ctx, key("h:"+w.Seat), "b:watch")
					p.ZAdd(ctx, key("full"), redis.Z{Member: "b"})
					return nil
				})
				if lost != nil {
					t.Error(lost)
				}
			}
		}
		ends = append(ends, err)
		return err
	})
	end := f.endOf("b")
	if len(ends) != 2 || !errors.Is(ends[0], ErrIncomplete) || ends[1] != nil || end.How != znode.EndCollected {
		t.Errorf("read with %v, ended as %s", ends, end.How)
	}
}

// TestAWatcherIsNotDisturbed by processes that come and go, nor by new batches: it keeps its batch, and sends ZooKeeper
// nothing about others.
func TestAWatcherIsNotDisturbed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.join("first", queue.Executor) // it looks after the queue
	proxy := rig.Proxy(t, servers.Addrs()[0])
	has, end := make(chan string, 10), make(chan struct{})
	var runs atomic.Int32
	f.watching(f.joinIn(dial(t, proxy.Addr()), "w1", queue.Watcher), func(ctx context.Context, b *Completed) error {
		runs.Add(1)
		has <- b.ID
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	executor := f.join("e", queue.Executor)
	f.completed(executor, "b", 10)
	<-has
	before := requestsOf(proxy)
	const others = 20
	for i := range others {
		f.submit(fmt.Sprint("other", i), numbered(5))
		f.join(fmt.Sprint("w2-", i), queue.Watcher).Leave()
	}
	executor.Leave()
	if n := requestsOf(proxy) - before; n >= others { // it also asks now and then whether it is a member
		t.Errorf("the watcher sent %d requests about %d others", n, others)
	}
	close(end)
	f.endOf("b")
	if n := runs.Load(); n != 1 {
		t.Errorf("it had the batch %d times", n)
	}
}

// requestsOf counts those that are not only signs of life.
func requestsOf(p *fault.Proxy) (n int) {
	for op, count := range p.Requests() {
		if op != fault.OpPing && op != fault.OpExists {
			n += count
		}
	}
	return n
}
