package tasks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	benchTasks = 100_000
	benchBytes = 64 // of a task and of a result
)

// BenchmarkExecute measures executors whose tasks do nothing, end to end: they take a batch of 64-byte tasks and report
// 64-byte results. Beside it is the floor, on the same server in turns: for the same bytes one LMOVE and one HSET a
// task, pipelined by hundreds, from as many connections.
func BenchmarkExecute(b *testing.B) {
	for _, executors := range []int{1, 8} {
		b.Run(fmt.Sprint(executors), func(b *testing.B) {
			var execute, floor time.Duration
			for i := range b.N {
				floor += benchFloor(b, fmt.Sprint("floor", i), executors)
				execute += benchExecute(b, executors)
			}
			tasks := float64(b.N * benchTasks)
			b.ReportMetric(tasks/execute.Seconds(), "tasks/s")
			b.ReportMetric(tasks/floor.Seconds(), "floor-tasks/s")
			b.ReportMetric(floor.Seconds()/execute.Seconds(), "of-floor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchPayloads() [][]byte {
	all := make([][]byte, benchTasks)
	for i := range all {
		all[i] = fmt.Appendf(nil, "%0*d", benchBytes, i)
	}
	return all
}

// benchExecute is how long executors take for a batch.
func benchExecute(b *testing.B, executors int) time.Duration {
	b.Helper()
	f := newFixture(b)
	f.submit("b", Payloads(benchPayloads()...))
	all := make([]*Process, executors)
	for i := range all {
		all[i] = f.executor(fmt.Sprint("e", i), 1)
	}
	begun := time.Now()
	var done sync.WaitGroup
	for _, p := range all {
		done.Go(func() {
			err := Execute(context.Background(), p, ExecutorConfig{Parallel: 1, UntilEmpty: true},
				func(_ context.Context, t *Task) ([]byte, error) { return t.Payload, nil })
			if err != nil {
				b.Error(err)
			}
		})
	}
	done.Wait()
	took := time.Since(begun)
	if got := f.inRedis("b"); got.Done != benchTasks {
		b.Fatalf("books %+v", got)
	}
	for _, p := range all {
		p.Leave()
	}
	if _, err := f.store().Remove(b.Context(), "b", ""); err != nil {
		b.Fatal(err)
	}
	return took
}

// benchFloor is how long the least takes that a queue does.
func benchFloor(b *testing.B, name string, connections int) time.Duration {
	b.Helper()
	const page = 100
	c := redis.NewClient(&redis.Options{Addr: rediss.Addr(), MaxRetries: -1, Protocol: 2})
	defer c.Close()
	ctx, tasks := b.Context(), benchPayloads()
	for i := 0; i < len(tasks); i += page {
		some := make([]any, page)
		for j := range some {
			some[j] = tasks[i+j]
		}
		if err := c.RPush(ctx, name+":w", some...).Err(); err != nil {
			b.Fatal(err)
		}
	}
	begun := time.Now()
	var done sync.WaitGroup
	for n := range connections {
		done.Go(func() {
			for i := n * page; i < len(tasks); i += connections * page {
				_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					for j := range page {
						p.LMove(ctx, name+":w", name+":h", "LEFT", "RIGHT")
						p.HSet(ctx, name+":r", i+j, tasks[i+j])
					}
					return nil
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	done.Wait()
	took := time.Since(begun)
	if err := c.Unlink(ctx, name+":w", name+":h", name+":r").Err(); err != nil {
		b.Fatal(err)
	}
	return took
}
