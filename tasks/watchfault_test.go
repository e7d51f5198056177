package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// lossy loses the reply to, or with before the request of, the first call whose arguments match.
type lossy struct {
	match  func(args string) bool
	before bool
	every  bool
	lost   atomic.Int32
}

func (l *lossy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l *lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var words []string
		for _, arg := range cmd.Args() {
			words = append(words, fmt.Sprint(arg))
		}
		if !strings.HasPrefix(words[0], "eval") || !l.match(strings.Join(words[3:], " ")) {
			return next(ctx, cmd)
		}
		lose := l.every
		if !lose {
			lose = l.lost.Load() == 0
		}
		if lose && l.before {
			l.lost.Add(1)
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		err := next(ctx, cmd)
		if lose && err == nil {
			l.lost.Add(1)
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// TestWatchLostReplies: whatever is lost, each batch is done once for each try, each try is charged once, and the batch
// ends.
func TestWatchLostReplies(t *testing.T) {
	claims := func(seat string) func(string) bool {
		return func(args string) bool {
			words := strings.Fields(args)
			return len(words) == 3 && words[1] == seat
		}
	}
	unclaims := func(string) func(string) bool {
		return func(args string) bool { return strings.HasSuffix(args, "not yet") }
	}
	removes := func(string) func(string) bool {
		return func(args string) bool { words := strings.Fields(args); return len(words) == 3 && words[1] == "b" }
	}
	for name, match := range map[string]func(seat string) func(string) bool{
		"claim": claims, "unclaim": unclaims, "remove": removes,
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " before ", before), func(t *testing.T) {
				f := newFixture(t, func(q *queue.Queue) { q.Backoff = resource.Duration(time.Millisecond) })
				f.completed(f.join("e", queue.Executor), "b", 2)
				w := f.join("w", queue.Watcher)
				faulty := &lossy{match: match(w.Seat), before: before}
				w.client.AddHook(faulty)
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
				if faulty.lost.Load() != 1 {
					t.Errorf("%d replies were lost", faulty.lost.Load())
				}
			})
		}
	}
}

// TestWatchDiedAfterTheEnd: a watcher dies after its batch has ended in ZooKeeper and before it is removed from Redis.
// The next one does not do it again, and removes it.
func TestWatchDiedAfterTheEnd(t *testing.T) {
	f := newFixture(t)
	f.completed(f.join("e", queue.Executor), "b", 2)
	w := f.join("w", queue.Watcher)
	faulty := &lossy{before: true, every: true, match: func(args string) bool {
		words := strings.Fields(args)
		return len(words) == 3 && words[1] == "b"
	}}
	w.client.AddHook(faulty)
	f.watching(w, func(context.Context, *Completed) error { return nil })
	eventually(t, "the removal fails", func() bool { return faulty.lost.Load() > 0 })
	if err := w.session.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.store().Evict(t.Context(), store.Died, w.Seat); err != nil {
		t.Fatal(err)
	}
	f.watching(f.join("w2", queue.Watcher), func(context.Context, *Completed) error {
		t.Error("done again")
		return nil
	})
	if end := f.endOf("b"); end.EndedBy != "w" {
		t.Errorf("ended by %s", end.EndedBy)
	}
}

// TestWatchRedisAway: a watcher waits for a Redis that was killed, also while it reads results and ends a batch.
func TestWatchRedisAway(t *testing.T) {
	own, err := redisserver.Start(t.Context(), redisserver.Options{Fsync: "always"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Stop() })
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
	f := newFixture(t)
	f.completed(f.join("e", queue.Executor), "b", 2)
	w, c := f.join("w", queue.Watcher), f.client()
	key := func(name string) string { return keyPrefix(f.generation()) + name }
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
