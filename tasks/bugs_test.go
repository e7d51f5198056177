package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
)

// Each test here is named after a bug of the old system for sharing tasks over Redis, which would fail it:
//
//	 1  two executors had a task, and its successor was lost    TestB1ExecutorsComeAndGo
//	 2  who had a batch followed from an unsorted list          TestB2NobodyOwnsABatch
//	 3  one batch was counted by the numbers of another         TestB3EachBatchIsCountedByItself
//	 4  a batch without results was finished                    TestB4ALostBatchIsNotFinished
//	 5  an end of several steps could stop after each           TestB5AnEndIsOneStep
//	 6  a lock that another held was never waited for           TestB6AWatcherTakesOver
//	 7  a lost session left a process that had a share          TestB7ALostSessionIsNoZombie
//	 8  each change made all watchers begin again               TestB8AWatcherIsNotDisturbed
//	 9  an error of Redis ended a thread, not the process       TestB9RedisGoesAndComes
//	10  a submit of two steps left half of itself, or double    TestB10ASubmitIsRepeated
//	11  a watcher that was cut off finished a batch too         TestB11ACutOffWatcherEndsNothing
//	12  shares were counted in tasks, whatever these took       TestB12SharesAreTime
//
// Package tasks/faults has all of them at once, with real processes: TestQueueSoak.

// bugQueue is a queue of a test in this file.
type bugQueue struct{ *fixture }

func newBugQueue(t *testing.T, edits ...func(*queue.Queue)) bugQueue {
	t.Helper()
	return bugQueue{newFixture(t, edits...)}
}

// submitNumbers submits a batch of numbers.
func (f bugQueue) submitNumbers(id string, n int, edit ...func(*SubmitConfig)) Submitted {
	f.t.Helper()
	c := SubmitConfig{Root: f.queue.Root, Queue: f.queue.Name, ID: id, By: "me@here", Redis: Access{Getenv: noEnvironment}}
	for _, e := range edit {
		e(&c)
	}
	out, err := Submit(f.t.Context(), f.s, c, Payloads(numbersOf(id, n)...))
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

func numbersOf(id string, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Appendf(nil, "%s:%d", id, i)
	}
	return all
}

func keptLong(c *SubmitConfig) { c.Results = "keep:24h" }

// echo answers with the task itself.
func echoTask(_ context.Context, t *Task) ([]byte, error) { return t.Payload, nil }

// execute executes tasks in a session of its own until stop is called.
func (f bugQueue) execute(identity string, do func(ctx context.Context, t *Task) ([]byte, error)) (stop func()) {
	f.t.Helper()
	p := f.join(identity, queue.Executor)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Execute(ctx, p, ExecutorConfig{Parallel: 2}, do) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrSessionLost) {
			f.t.Errorf("%s: %v", identity, err)
		}
		p.Leave()
	})
	f.t.Cleanup(stop)
	return stop
}

// watch watches in a session of its own until stop is called.
func (f bugQueue) watch(p *Process, do func(ctx context.Context, b *Completed) error) (stop func() error) {
	f.t.Helper()
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

// inRedis is a batch as it is in Redis; nil if there is none of this name.
func (f bugQueue) inRedis(st *store.Queue, id string) *store.Batch {
	f.t.Helper()
	b, err := st.Batch(f.t.Context(), id)
	if errors.Is(err, store.ErrNoBatch) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return &b
}

// finished waits until all tasks of a batch are done or dead.
func (f bugQueue) finished(st *store.Queue, id string) {
	f.t.Helper()
	eventually(f.t, "batch "+id+" to be complete", func() bool {
		b := f.inRedis(st, id)
		return b != nil && b.Tasks > 0 && b.Done+b.Dead == b.Tasks
	})
}

// once checks that the results of a batch hold each task once, with its own result.
func (f bugQueue) once(records func(yield func(Record, error) bool), id string, n int) {
	f.t.Helper()
	seen := map[int64]bool{}
	for r, err := range records {
		if err != nil {
			f.t.Error(err)
			return
		}
		if want := fmt.Sprintf("%s:%d", id, r.Index); seen[r.Index] || string(r.Result) != want {
			f.t.Errorf("task %d of %s: again: %t, result %q", r.Index, id, seen[r.Index], r.Result)
		}
		seen[r.Index] = true
	}
	if len(seen) != n {
		f.t.Errorf("%d of %d tasks of %s have results", len(seen), n, id)
	}
}

// TestB1ExecutorsComeAndGo: two executors read one task, each removed the first of the list, and one task was lost.
// Here executors join, leave and die while a batch is executed.
func TestB1ExecutorsComeAndGo(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	const n = 5000
	f.submitNumbers("b", n, keptLong)
	st := f.store()
	for i := range 8 {
		var stop func()
		if i%2 == 0 {
			stop = f.execute(fmt.Sprint("e", i), echoTask)
		} else { // its session ends, and with it all that it is
			s := dial(t)
			p := f.joinIn(s, fmt.Sprint("e", i), queue.Executor)
			go Execute(t.Context(), p, ExecutorConfig{Parallel: 2}, echoTask)
			stop = func() { s.Close() }
		}
		eventually(t, "more tasks to be done", func() bool { return f.inRedis(st, "b").Done > int64(500*i) })
		if i < 7 {
			defer stop()
		}
		if i >= 2 && i < 7 {
			stop()
		}
	}
	f.finished(st, "b")
	f.once(Records(t.Context(), st, "b", nil), "b", n)
}

// TestB2NobodyOwnsABatch: each executor found out by itself which batches were its own, from lists that servers could
// sort differently: some batches had nobody. Here two of three executors take nothing.
func TestB2NobodyOwnsABatch(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	f.join("idle1", queue.Executor)
	f.join("idle2", queue.Executor)
	f.execute("e", echoTask)
	st := f.store()
	for i := range 20 {
		f.submitNumbers(fmt.Sprint("b", i), 5, keptLong)
	}
	for i := range 20 {
		id := fmt.Sprint("b", i)
		f.finished(st, id)
		f.once(Records(t.Context(), st, id, nil), id, 5)
	}
}

// TestB3EachBatchIsCountedByItself: a loop over all batches counted one with a variable of another. Here watchers get
// batches of many sizes, which are executed at the same time, with the right counts.
func TestB3EachBatchIsCountedByItself(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	sizes := map[string]int{"one": 1, "three": 3, "ten": 10, "many": 700}
	for id, n := range sizes {
		f.submitNumbers(id, n)
	}
	var mu sync.Mutex
	got := map[string]int64{}
	for i := range 2 {
		f.watch(f.join(fmt.Sprint("w", i), queue.Watcher), func(ctx context.Context, b *Completed) error {
			mu.Lock()
			defer mu.Unlock()
			got[b.ID] += b.Done
			f.once(b.Records(ctx), b.ID, sizes[b.ID])
			return nil
		})
	}
	f.execute("e1", echoTask)
	f.execute("e2", echoTask)
	eventually(t, "all batches to be watched", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == len(sizes)
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range sizes {
		if got[id] != int64(n) {
			t.Errorf("%s: %d done, not %d", id, got[id], n)
		}
	}
}

// receiveIn waits for what a channel holds.
func receiveIn[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(limit):
		t.Fatalf("waited %s for %s", limit, what)
	}
	return v
}

// TestB9RedisGoesAndComes: an error of Redis ended the thread that had it; the process stayed, without a part of
// itself, and its share was not executed. Here Redis goes away several times, in the middle of everything.
func TestB9RedisGoesAndComes(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, rediss.Addr())
	f := newBugQueue(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	watched := make(chan string, 1)
	f.watch(f.join("w", queue.Watcher), func(ctx context.Context, b *Completed) error {
		f.once(b.Records(ctx), "b", 3000)
		watched <- b.ID
		return nil
	})
	p := f.join("e", queue.Executor)
	var n atomic.Int32
	executed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		executed <- Execute(ctx, p, ExecutorConfig{Parallel: 2}, func(_ context.Context, k *Task) ([]byte, error) {
			switch n.Add(1) % 700 {
			case 0:
				proxy.Cut()
			case 100: // what is sent now is executed, and nobody hears of it
				proxy.Mute(true)
				time.AfterFunc(100*time.Millisecond, func() { proxy.Cut(); proxy.Mute(false) })
			case 200:
				proxy.Refuse(true)
				proxy.Cut()
				time.AfterFunc(time.Second, func() { proxy.Refuse(false) })
			}
			return k.Payload, nil
		})
	}()
	f.submitNumbers("b", 3000)
	receiveIn(t, watched, "the batch")
	if p.Context().Err() != nil {
		t.Error("the executor has ended")
	}
	cancel()
	receiveIn(t, executed, "the end")
}

// TestB10ASubmitIsRepeated: a submit wrote the list, and then the znode: a crash in between left a list for ever, and a
// repeat after a lost answer doubled the tasks. Here each answer of both servers is lost once, and the submit is
// repeated until it succeeds.
func TestB10ASubmitIsRepeated(t *testing.T) {
	t.Parallel()
	redisProxy, zk := newProxy(t, rediss.Addr()), newProxy(t, servers.Addrs()[0])
	f := newBugQueue(t, func(q *queue.Queue) { q.Redis = "redis://" + redisProxy.Addr() })
	const n = 2500 // three calls of append
	aside := f.queue
	aside.Redis = "redis://" + rediss.Addr() // past the proxy
	client, err := Access{Getenv: noEnvironment}.connect(t.Context(), aside)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	st := open(client, aside, f.generation())
	for round := range 12 {
		id := fmt.Sprint("b", round)
		zk.DropReply(func(op int32, req []byte) bool {
			return round%3 == 0 && (op == zkserver.OpMulti || op == zkserver.OpSetData) && bytes.Contains(req, []byte(id))
		})
		for try := 0; ; try++ {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if try == 0 {
				cut := time.AfterFunc(time.Duration(round)*2*time.Millisecond, func() {
					redisProxy.Mute(true)
					time.AfterFunc(20*time.Millisecond, func() { redisProxy.Cut(); redisProxy.Mute(false) })
				})
				defer cut.Stop()
			}
			if try == 0 && round%4 == 0 { // it dies in the middle
				time.AfterFunc(time.Duration(10+3*round)*time.Millisecond, cancel)
			}
			s := dial(t, zk.Addr())
			c := SubmitConfig{
				Root: f.queue.Root, Queue: f.queue.Name, ID: id, Results: "keep:24h", By: "me@here",
				Redis: Access{Getenv: noEnvironment},
			}
			_, err := Submit(ctx, s, c, Payloads(numbersOf(id, n)...))
			cancel()
			s.Close()
			if err == nil {
				break
			}
			if try > 30 {
				t.Fatal(err)
			}
		}
		if b := f.inRedis(st, id); b == nil || b.Tasks != n || b.State != "open" {
			t.Errorf("%s: %+v", id, b)
		}
	}
	f.execute("e", echoTask)
	for round := range 12 {
		id := fmt.Sprint("b", round)
		f.finished(st, id)
		f.once(Records(t.Context(), st, id, nil), id, n)
	}
}

// TestB12SharesAreTime: batches were watched and executed by their number, so one of 5,000 tasks and one of 5 had equal
// shares by luck. Here a batch of tasks that take 20 times as long as those of another with the same weight is executed
// for about as long. The proportions are tested in package store, by a clock that stands still:
// TestBacklogsAreServedByTime.
func TestB12SharesAreTime(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t, func(q *queue.Queue) { q.Backoff = resource.Duration(time.Second) })
	f.submitNumbers("long", 5000, keptLong)
	f.submitNumbers("short", 5000, keptLong)
	var mu sync.Mutex
	spent := map[string]time.Duration{}
	enough := make(chan struct{})
	stop := f.execute("e", func(_ context.Context, k *Task) ([]byte, error) {
		d := time.Millisecond
		if k.Batch == "long" {
			d = 20 * time.Millisecond
		}
		begun := time.Now()
		pause(d) // the work
		mu.Lock()
		defer mu.Unlock()
		if spent[k.Batch] += time.Since(begun); spent["long"]+spent["short"] > 8*time.Second {
			closeOnce(enough)
		}
		return k.Payload, nil
	})
	receiveIn(t, enough, "8 s of work")
	stop()
	mu.Lock()
	defer mu.Unlock()
	if long, short := spent["long"], spent["short"]; long > 2*short || short > 2*long {
		t.Errorf("%s for the long tasks, %s for the short ones", long, short)
	}
}
