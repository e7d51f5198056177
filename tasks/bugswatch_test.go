package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource/queue"
	"muster/zkstate/znode"
)

// The bugs of the old system, see bugs_test.go, in which watchers or lost sessions had a part.

// TestB4ALostBatchIsNotFinished: a batch of which nothing was there was taken for finished. Here Redis loses one: no
// watcher gets it, it stays, and the health of the queue names it. Submitted again it is executed.
func TestB4ALostBatchIsNotFinished(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	f.submitNumbers("lost", 10)
	st := f.store()
	if _, err := st.Remove(t.Context(), "lost", f.inRedis(st, "lost").Life); err != nil {
		t.Fatal(err)
	}
	watched := make(chan string, 10)
	f.watch(f.join("w", queue.Watcher), func(ctx context.Context, b *Completed) error {
		f.once(b.Records(ctx), b.ID, 10)
		watched <- b.ID
		return nil
	})
	f.execute("e", echoTask)
	f.submitNumbers("other", 10)
	if id := receiveIn(t, watched, "a batch"); id != "other" {
		t.Errorf("a watcher got %s", id)
	}
	eventually(t, "the lost batch to be named", func() bool {
		body, _, err := f.s.Get(t.Context(), znode.QueueHealth(f.queue.Root, f.generation()))
		h, bad := znode.DecodeAny[znode.Health](body)
		return err == nil && bad == nil && h != nil && slices.Contains(h.Lost, "lost")
	})
	f.submitNumbers("lost", 10)
	if id := receiveIn(t, watched, "the lost batch"); id != "lost" {
		t.Errorf("a watcher got %s", id)
	}
}

// TestB5AnEndIsOneStep: a watcher released its lock, deleted the results, and then the batch: another could begin in
// between, and a crash left a batch that was finished without results. Here a batch ends with the transaction in
// ZooKeeper. The watcher dies just after that: nobody gets the batch again, and what is left of it in Redis is removed.
func TestB5AnEndIsOneStep(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	f.submitNumbers("b", 10)
	st := f.store()
	at := znode.Batch(f.queue.Root, f.generation(), "b")
	s := dial(t)
	ended := make(chan error, 1)
	f.watch(f.joinIn(s, "w1", queue.Watcher), func(ctx context.Context, b *Completed) error {
		f.once(b.Records(ctx), "b", 10)
		ended <- f.s.Delete(t.Context(), at, b.Manifest.Version) // the first step of EndBatch; it ends ctx
		s.Close()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	f.execute("e", echoTask)
	if err := receiveIn(t, ended, "the end"); err != nil {
		t.Fatal(err)
	}
	f.watch(f.join("w2", queue.Watcher), func(_ context.Context, b *Completed) error {
		t.Errorf("%s has ended, and is watched again", b.ID)
		return nil
	})
	eventually(t, "nothing to be left of the batch", func() bool { return f.inRedis(st, "b") == nil })
}

// TestB6AWatcherTakesOver: who waited for the lock of another was never woken, so the batch of a watcher that died
// stayed until something else changed. Here the other watcher gets it when the session of the first one is over.
func TestB6AWatcherTakesOver(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	s := dialTimeout(t, 4*time.Second)
	has := make(chan string, 2)
	f.watch(f.joinIn(s, "w1", queue.Watcher), func(ctx context.Context, _ *Completed) error {
		has <- "w1"
		<-ctx.Done()
		return context.Cause(ctx)
	})
	f.submitNumbers("b", 10)
	f.execute("e", echoTask)
	receiveIn(t, has, "the first watcher")
	f.watch(f.join("w2", queue.Watcher), func(ctx context.Context, b *Completed) error {
		f.once(b.Records(ctx), "b", 10)
		has <- "w2"
		return nil
	})
	begun := time.Now()
	s.Close()
	if who := receiveIn(t, has, "the second watcher"); who != "w2" {
		t.Errorf("%s has it", who)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestB7ALostSessionIsNoZombie: a process whose session had ended lived on without a znode, and what was its share had
// nobody. Here it is told, its tasks are executed by another one, its late results do not count, and it joins again.
func TestB7ALostSessionIsNoZombie(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	proxy := newProxy(t, servers.Addrs()[0])
	lost := f.joinIn(dialTimeout(t, 4*time.Second, proxy.Addr()), "e1", queue.Executor)
	f.submitNumbers("b", 4, keptLong)
	held, end := make(chan int64, 4), make(chan struct{})
	executed := make(chan error, 1)
	go func() {
		executed <- Execute(t.Context(), lost, ExecutorConfig{Parallel: 2}, func(_ context.Context, k *Task) ([]byte, error) {
			held <- k.Index
			<-end // it does not obey its context
			return []byte("late"), nil
		})
	}()
	receiveIn(t, held, "a task")
	f.execute("e2", echoTask)
	proxy.Refuse(true)
	proxy.Cut()
	st := f.store()
	f.finished(st, "b")
	close(end)
	if err := receiveIn(t, executed, "the end"); !errors.Is(err, ErrSessionLost) {
		t.Errorf("it ended with %v", err)
	}
	f.once(Records(t.Context(), st, "b", nil), "b", 4)
	lost.Leave()
	proxy.Refuse(false)
	if again := f.joinIn(dial(t, proxy.Addr()), "e1", queue.Executor); again.Seat == lost.Seat {
		t.Error("it has the seat of before")
	}
}

// TestB8AWatcherIsNotDisturbed: with each process that came or went, and each new batch, all watchers gave up what they
// had and shared anew. Here a watcher keeps its batch, and sends ZooKeeper nothing about others.
func TestB8AWatcherIsNotDisturbed(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	f.join("first", queue.Executor) // it looks after the queue
	proxy := newProxy(t, servers.Addrs()[0])
	has, end := make(chan string, 10), make(chan struct{})
	var runs atomic.Int32
	f.watch(f.joinIn(dial(t, proxy.Addr()), "w1", queue.Watcher), func(ctx context.Context, b *Completed) error {
		runs.Add(1)
		has <- b.ID
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	stop := f.execute("e", echoTask)
	f.submitNumbers("b", 10)
	receiveIn(t, has, "the batch")
	before := requestsOf(proxy)
	const others = 20
	for i := range others {
		f.submitNumbers(fmt.Sprint("kept", i), 5, keptLong)
		p := f.join(fmt.Sprint("w2-", i), queue.Watcher)
		p.Leave()
	}
	stop()
	if n := requestsOf(proxy) - before; n >= others { // it also asks now and then whether it is a member
		t.Errorf("the watcher sent %d requests about %d others", n, others)
	}
	close(end)
	eventually(t, "the batch to end", func() bool {
		_, there, err := f.s.Exists(t.Context(), znode.Batch(f.queue.Root, f.generation(), "b"))
		return err == nil && !there
	})
	if n := runs.Load(); n != 1 {
		t.Errorf("it had the batch %d times", n)
	}
}

// requests counts those that are not only signs of life.
func requestsOf(p *zkserver.Proxy) (n int) {
	for op, count := range p.Requests() {
		if op != zkserver.OpPing && op != zkserver.OpExists {
			n += count
		}
	}
	return n
}

// TestB11ACutOffWatcherEndsNothing: a watcher that was suspended went on, beside its successor. Here its context ends,
// and what it then says about the batch does not count.
func TestB11ACutOffWatcherEndsNothing(t *testing.T) {
	t.Parallel()
	f := newBugQueue(t)
	f.submitNumbers("b", 10)
	f.execute("e", echoTask)
	proxy := newProxy(t, servers.Addrs()[0])
	cutOff := f.joinIn(dialTimeout(t, 4*time.Second, proxy.Addr()), "w1", queue.Watcher)
	has, ended := make(chan string, 2), make(chan struct{})
	stop := f.watch(cutOff, func(ctx context.Context, _ *Completed) error {
		has <- "w1"
		<-ctx.Done()
		close(ended)
		return nil // it thinks that it has done its work
	})
	receiveIn(t, has, "the first watcher")
	proxy.Refuse(true)
	proxy.Cut()
	receiveIn(t, ended, "the end of its context")
	failed := make(chan struct{})
	f.watch(f.join("w2", queue.Watcher), func(ctx context.Context, b *Completed) error {
		has <- "w2"
		f.once(b.Records(ctx), "b", 10)
		<-failed
		return nil
	})
	if who := receiveIn(t, has, "the second watcher"); who != "w2" {
		t.Errorf("%s has it", who)
	}
	if err := stop(); !errors.Is(err, ErrSessionLost) {
		t.Errorf("the first one ended with %v", err)
	}
	if _, there, err := f.s.Exists(t.Context(), znode.Batch(f.queue.Root, f.generation(), "b")); err != nil || !there {
		t.Errorf("the batch was ended by who was cut off: %v", err)
	}
	close(failed)
	eventually(t, "the batch to end", func() bool {
		_, there, err := f.s.Exists(t.Context(), znode.Batch(f.queue.Root, f.generation(), "b"))
		return err == nil && !there
	})
}
