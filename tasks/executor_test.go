package tasks

import (
	"context"
	"fmt"
	"testing"

	"muster/queue"
)

// executor joins an executor with so many slots.
func (f *fixture) executor(identity string, parallel int) *Process {
	f.t.Helper()
	c := f.config(identity, queue.Executor)
	c.Parallel = parallel
	p, err := Join(f.t.Context(), dial(f.t), c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.Leave() })
	return p
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
