package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/soak"
)

// awayTimeout is the session timeout of these tests.
const awayTimeout = 8 * time.Second

// newAway is a queue with tasks of an hour, each with one attempt, so that who is charged is dead; four for each of so
// many executors.
func newAway(t *testing.T, executors int) *world {
	w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) {
		q.Attempts = 1
		q.Timeouts.Session = resource.Duration(awayTimeout)
	})
	var lines []string
	for i := range 4 * executors {
		lines = append(lines, fmt.Sprintf("b %d %s 3600000000 x", i, ordinary))
	}
	w.submitLines("b", lines)
	return w
}

// busy waits until there are so many executors with four tasks each, and nothing of the dead is left. It returns their
// seats.
func (w *world) busy(executors int, dead map[string]bool) map[string]bool {
	w.t.Helper()
	seats := map[string]bool{}
	soak.Await(w.t, patience, "executors that all have work", func() string {
		if left := w.evicted(dead); left != "" {
			return left
		}
		_, q := w.books()
		books, err := q.Books(w.t.Context())
		if err != nil {
			return err.Error()
		}
		b, err := w.inRedis()
		if err != nil || len(books.Seats) != executors || b.Out != 4*int64(executors) {
			return fmt.Sprintf("%d executors have %d tasks, %v", len(books.Seats), b.Out, err)
		}
		for _, s := range books.Seats {
			seats[s.Name] = true
		}
		return ""
	})
	return seats
}

// kill kills some of the processes at once.
func (w *world) kill(names ...string) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(w.processes[name].kill)
	}
	all.Wait()
}

// uncharged lets another executor do all tasks, and checks that none was charged.
func (w *world) uncharged(tasks int64) {
	w.t.Helper()
	w.add("last", false, self, "act-go", w.dir, "1", "quick")
	w.finished(tasks)
	if b, err := w.inRedis(); err != nil || b.Done != tasks {
		w.t.Errorf("%+v, %v", b, err)
	}
	_, q := w.books()
	w.firstAttempts(q)
}

// TestServersAway: 100 executors are in the middle of tasks when Redis is killed and comes back, and when ZooKeeper is
// silent for longer than their sessions last. Then all of them are killed.
func TestServersAway(t *testing.T) {
	t.Parallel()
	const processes, seats, executors = 4, 25, 100
	w := newAway(t, executors)
	var names []string
	for i := range processes {
		names = append(names, fmt.Sprint("e-", i))
		w.add(names[i], false, self, "act-go", w.dir, fmt.Sprint(seats))
	}
	before := w.busy(executors, nil)
	if err := w.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := w.busy(executors, nil)
	for seat := range before {
		if !after[seat] {
			t.Errorf("the seat %s was lost with Redis", seat)
		}
	}
	if err := w.ensemble.Server(0).Pause(); err != nil {
		t.Fatal(err)
	}
	soak.Pause(t.Context(), awayTimeout*5/4)
	if err := w.ensemble.Server(0).Resume(); err != nil {
		t.Fatal(err)
	}
	w.busy(executors, after)
	w.kill(names...)
	w.uncharged(4 * executors)
}
