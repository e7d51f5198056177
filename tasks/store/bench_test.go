package store

import (
	"context"
	"fmt"
	"muster/resource/queue"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	benchBatch = 20_000
	benchHand  = 100
	benchBytes = 64 // of a task and of a result
)

// BenchmarkTurn measures one executor without work of its own: each turn finishes 100 tasks and takes 100. Beside it is
// the floor, in turns on the same server: for the same bytes one LMOVE and one HSET a task, pipelined by hundreds.
func BenchmarkTurn(b *testing.B) {
	c := dial(b)
	var turns, floor time.Duration
	for i := range b.N {
		turns += benchTurns(b, c, fmt.Sprint("turn", i))
		floor += benchFloor(b, c, fmt.Sprint("floor", i))
	}
	tasks := float64(b.N * benchBatch)
	b.ReportMetric(tasks/turns.Seconds(), "tasks/s")
	b.ReportMetric(tasks/floor.Seconds(), "floor-tasks/s")
	b.ReportMetric(floor.Seconds()/turns.Seconds(), "of-floor")
	b.ReportMetric(0, "ns/op")
}

func benchTasks() [][]byte {
	tasks := make([][]byte, benchBatch)
	for i := range tasks {
		tasks[i] = fmt.Appendf(nil, "%0*d", benchBytes, i)
	}
	return tasks
}

func benchTurns(b testing.TB, c *redis.Client, name string) time.Duration {
	b.Helper()
	q := &testQueue{Queue: New(c, b.Name()+name, "q"), t: b, c: c}
	q.submit("b", 1, 3, benchTasks()...)
	ctx := context.Background()
	must(q.Hello(ctx, "e", queue.Executor, benchHand))(b)
	begin, done := time.Now(), 0
	var results []Result
	for seq := int64(1); done < benchBatch; seq++ {
		t := Turn{Results: results, Idle: benchHand, MaxBytes: manyBytes}
		out := must(q.Turn(ctx, "e", seq, t))(b)
		done += len(results)
		results = results[:0]
		for _, g := range out.Granted {
			for i, p := range g.Payloads {
				results = append(results, Result{Task{g.Batch, g.Index + int64(i)}, g.Attempt, Done, time.Microsecond, p})
			}
		}
	}
	took := time.Since(begin)
	succeeds(b, q.Remove(ctx, "b", "life-b"))
	q.evict(Left, "e")
	return took
}

func benchFloor(b testing.TB, c *redis.Client, name string) time.Duration {
	b.Helper()
	ctx := context.Background()
	wait, hand, results := name+":w", name+":h", name+":r"
	tasks := benchTasks()
	for i := 0; i < len(tasks); i += benchHand {
		var some []any
		for _, p := range tasks[i : i+benchHand] {
			some = append(some, p)
		}
		must(c.RPush(ctx, wait, some...).Result())(b)
	}
	begin := time.Now()
	for i := 0; i < len(tasks); i += benchHand {
		must(c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for j := range benchHand {
				p.LMove(ctx, wait, hand, "LEFT", "RIGHT")
				p.HSet(ctx, results, i+j, tasks[i+j])
			}
			return nil
		}))(b)
	}
	took := time.Since(begin)
	must(c.Unlink(ctx, wait, hand, results).Result())(b)
	return took
}
