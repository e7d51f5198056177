package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/queue"
	"muster/resource"
	"muster/soak"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkserver"
)

// submitLines submits lines as a batch, whose results are kept.
func (w *world) submitLines(id string, lines []string) {
	w.t.Helper()
	var payloads [][]byte
	for _, l := range lines {
		payloads = append(payloads, []byte(l))
	}
	_, err := tasks.Submit(w.t.Context(), w.session(), tasks.SubmitConfig{
		Root: w.queue.Root, Queue: w.queue.Name, ID: id, Results: "keep:24h", By: "me@here",
	}, tasks.Payloads(payloads...))
	if err != nil {
		w.t.Fatal(err)
	}
}

// inRedis is the only batch in Redis, as it is there.
func (w *world) inRedis() (store.Batch, error) {
	_, q := w.books()
	all, err := q.Batches(w.t.Context(), 0, 2)
	if err != nil || len(all) != 1 {
		return store.Batch{}, fmt.Errorf("%d batches, %w", len(all), err)
	}
	return all[0], nil
}

// finished waits until so many tasks of the only batch are done or dead.
func (w *world) finished(limit time.Duration, n int64) {
	w.t.Helper()
	soak.Await(w.t, limit, fmt.Sprint(n, " finished tasks"), func() string {
		if b, err := w.inRedis(); err != nil || b.Done+b.Dead < n {
			return fmt.Sprintf("%+v, %v", b, err)
		}
		return ""
	})
}

// TestPoisonTask: a task among 1,000 kills each executor that takes it. It dies, and nothing else does or is charged an
// attempt; the others do not wait for it.
func TestPoisonTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, nil)
	var lines []string
	for i := range 1000 {
		kind := ordinary
		if i == 500 {
			kind = deadly
		}
		lines = append(lines, fmt.Sprintf("b %d %s 1000 x", i, kind))
	}
	w.submitLines("b", lines)
	begun := time.Now()
	const seats = 3
	done := make(chan int, seats)
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range seats {
		argv := w.executor("--lines", "--", self, "act-lines", w.dir)
		if i == 0 {
			argv = w.executor("--parallel", "2", "--", self, "act-one", w.dir)
		}
		p := w.add(fmt.Sprint("e-", i), false, argv...)
		all.Go(func() { // a supervisor
			deaths := 0
			defer func() { done <- deaths }()
			for {
				select {
				case <-p.run.Done:
					deaths++
					if err := p.start(); err != nil {
						t.Error(err)
						return
					}
				case <-over:
					return
				}
			}
		})
	}
	w.finished(3*time.Minute, 999)
	others := time.Since(begun)
	w.finished(3*time.Minute, 1000)
	t.Logf("the others were done after %s, all after %s", others.Round(time.Second),
		time.Since(begun).Round(time.Second))
	close(over)
	all.Wait()
	deaths := 0
	for range seats {
		deaths += <-done
	}
	b, err := w.inRedis()
	if err != nil || b.Done != 999 || b.Dead != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	_, q := w.books()
	dead, err := q.DeadTasks(t.Context(), "b", 0)
	if err != nil || len(dead) != 1 || dead[0].Index != 500 || !strings.Contains(dead[0].Reason, "executor died") {
		t.Errorf("dead: %+v, %v", dead, err)
	}
	w.firstAttempts(q)
	// Two accidents, and three attempts. Each death is noticed after a session timeout.
	if deaths != 5 {
		t.Errorf("%d executors died", deaths)
	}
}

// firstAttempts checks that each task with a result had one attempt.
func (w *world) firstAttempts(q *store.Queue) {
	w.t.Helper()
	n := int64(0)
	for {
		page, err := q.Results(w.t.Context(), "b", n)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range page {
			if r.Attempt != 1 {
				w.t.Errorf("task %d was charged: attempt %d", r.Index, r.Attempt)
			}
		}
		if n += int64(len(page)); len(page) == 0 {
			return
		}
	}
}

// TestOutages: 100 executors die at once, again and again, and nobody is charged: with a process that survives and one
// that comes later.
func TestOutages(t *testing.T) {
	for name, survivor := range map[string]bool{"with_a_survivor": true, "of_all": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) { q.Attempts = 1 })
			if survivor {
				w.add("w", false, muster(), "watcher", w.queue.Name, "--", "true")
			}
			var lines []string
			for i := range 800 {
				lines = append(lines, fmt.Sprintf("b %d %s 3600000000 x", i, ordinary))
			}
			w.submitLines("b", lines)
			const processes, seats = 4, 25
			for round := range 6 {
				for i := range processes {
					w.add(fmt.Sprintf("e-%d-%d", round, i), false, self, "act-go", w.dir, fmt.Sprint(seats))
				}
				others := 0
				if survivor {
					others = 1
				}
				soak.Await(t, 2*time.Minute, "100 executors that all have work, and none of before", func() string {
					live, err := w.state()
					if err != nil {
						return err.Error()
					}
					n := 0
					for _, p := range live.Processes {
						if strings.HasPrefix(p.Identity, fmt.Sprintf("e-%d-", round)) {
							n++
						}
					}
					_, q := w.books()
					books, err := q.Books(t.Context())
					b, berr := w.inRedis()
					if n < processes*seats || err != nil || berr != nil || len(books.Seats) != processes*seats+others ||
						b.Out < 4*processes*seats {
						return fmt.Sprintf("%d of %d live, %d seats, %d tasks in hand, %v, %v", n, processes*seats,
							len(books.Seats), b.Out, err, berr)
					}
					return ""
				})
				for i := range processes {
					w.processes[fmt.Sprintf("e-%d-%d", round, i)].kill()
				}
			}
			w.add("last", false, self, "act-go", w.dir, "1", "quick")
			w.finished(3*time.Minute, 800)
			if b, err := w.inRedis(); err != nil || b.Done != 800 {
				t.Errorf("%+v, %v", b, err)
			}
			_, q := w.books()
			w.firstAttempts(q)
		})
	}
}

// TestExecutorsComeAndGo: one more executor executes its share within a second, and one that leaves takes nothing with
// it.
func TestExecutorsComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) { q.Timeouts.Drain = resource.Duration(5 * time.Second) })
	var lines []string
	for i := range 20_000 {
		lines = append(lines, fmt.Sprintf("b %d %s 20000 x", i, ordinary))
	}
	w.submitLines("b", lines)
	argv := w.executor("--parallel", "2", "--lines", "--", self, "act-lines", w.dir)
	w.add("a", false, argv...)
	w.finished(time.Minute, 1)
	rate := func() float64 {
		begun := time.Now()
		before, err := w.inRedis()
		if err != nil {
			t.Fatal(err)
		}
		soak.Pause(t.Context(), 4*time.Second)
		after, err := w.inRedis()
		if err != nil {
			t.Fatal(err)
		}
		return float64(after.Done-before.Done) / time.Since(begun).Seconds()
	}
	alone := rate()
	w.add("b", false, argv...)
	joined := time.Now()
	w.joined("b")
	soak.Pause(t.Context(), time.Second)
	both := rate()
	if err := w.processes["b"].leave(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	soak.Pause(t.Context(), time.Second)
	again := rate()
	t.Logf("%.0f tasks a second alone, %.0f with another (%s after its start), %.0f after it left", alone, both,
		left.Sub(joined).Round(time.Second), again)
	if both < 1.4*alone || again > 0.8*both || again < 0.5*alone {
		t.Errorf("%.0f tasks a second alone, %.0f with another, %.0f after it left", alone, both, again)
	}
	b, err := w.inRedis()
	if err != nil || b.Returned > 0 && b.Out == 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// joined waits until a process is live.
func (w *world) joined(name string) {
	w.t.Helper()
	soak.Await(w.t, time.Minute, name+" to join", func() string {
		s, err := w.state()
		if err != nil {
			return err.Error()
		}
		for _, p := range s.Processes {
			if p.Identity == name {
				return ""
			}
		}
		return "it is not live"
	})
}
