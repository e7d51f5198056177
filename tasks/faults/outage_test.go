package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
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
func (w *world) finished(n int64) {
	w.t.Helper()
	rig.Until(w.t, patience, fmt.Sprint(n, " finished tasks"), func() string {
		if b, err := w.inRedis(); err != nil || b.Done+b.Dead < n {
			return fmt.Sprintf("%+v, %v", b, err)
		}
		return ""
	})
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

// outages is how much of TestOutages is run.
type outages struct {
	rounds, processes, seats int // executors are seats of processes
}

func outagesSize() outages {
	if rig.Long() {
		return outages{rounds: 6, processes: 4, seats: 25}
	}
	return outages{rounds: 3, processes: 4, seats: 5}
}

// TestOutages: many executors die at once, again and again, and nobody is charged: with a process that survives and one
// that comes later. Each has a session of its own, which ends a session timeout after its death. With MUSTER_SOAK=1
// there are 100. All tasks are in hand at the first two outages. So they are suspects at the third one: half of the
// executors have one each, and if only these had died, they would be charged. A few are no suspects if the machine is
// busy: those of an executor that lost an answer of Redis, and gave them back before it died.
func TestOutages(t *testing.T) {
	for name, survivor := range map[string]bool{"with_a_survivor": true, "of_all": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := outagesSize()
			executors := size.processes * size.seats
			// No executor may lose its session because the machine is busy: a single death is charged.
			w := newAway(t, executors, 20*time.Second)
			others := 0
			if survivor {
				others = 1
				w.add("w", false, muster(), "watcher", w.queue.Name, "--", "true")
				w.joined("w")
			}
			begun := time.Now()
			dead := map[string]bool{} // seats of executors
			for round := range size.rounds {
				names := w.addGo(fmt.Sprintf("e-%d-", round), size.processes, size.seats)
				rig.Until(t, patience, "executors that all have work, and none of before", func() string {
					return w.allAtWork(fmt.Sprintf("e-%d-", round), executors, others, round >= 2, dead)
				})
				_, q := w.books()
				books, err := q.Books(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range books.Seats {
					dead[s.Name] = s.Role == queue.Executor
				}
				t.Logf("outage %d after %s", round, time.Since(begun).Round(time.Second))
				w.kill(names...)
			}
			w.uncharged(4 * int64(executors))
		})
	}
}

// allAtWork is "" if there are so many executors whose names begin so, and so many other processes, no seat of the dead
// is left, and all tasks are in hand; or half of the executors have a suspect each. ZooKeeper has to read each process:
// it is asked last.
func (w *world) allAtWork(prefix string, executors, others int, suspects bool, dead map[string]bool) string {
	_, q := w.books()
	books, err := q.Books(w.t.Context())
	if err != nil {
		return err.Error()
	}
	if left := w.evicted(dead); left != "" {
		return left
	}
	have, want := 0, 4*executors
	if suspects {
		want = executors / 2
		have, err = w.suspects(books.Seats)
	} else {
		var b store.Batch
		b, err = w.inRedis()
		have = int(b.Out)
	}
	if err != nil || len(books.Seats) != executors+others || have != want {
		return fmt.Sprintf("%d seats, %d tasks in hand, want %d and %d; %v", len(books.Seats), have, executors+others,
			want, err)
	}
	live, err := w.state()
	n := 0
	for _, p := range live.Processes {
		if strings.HasPrefix(p.Identity, prefix) {
			n++
		}
	}
	if err != nil || n != executors {
		return fmt.Sprintf("%d of %d live, %v", n, executors, err)
	}
	return ""
}

// suspects is how many of the seats have a suspect in hand.
func (w *world) suspects(seats []store.Seat) (n int, err error) {
	c, _ := w.books()
	for _, s := range seats {
		has, err := c.HExists(w.t.Context(), store.Prefix(w.generation)+"h:"+s.Name, "suspect").Result()
		if err != nil {
			return 0, err
		}
		if has {
			n++
		}
	}
	return n, nil
}

// evicted is "" if no seat of the dead is left.
func (w *world) evicted(dead map[string]bool) string {
	_, q := w.books()
	books, err := q.Books(w.t.Context())
	if err != nil {
		return err.Error()
	}
	for _, s := range books.Seats {
		if dead[s.Name] {
			return s.Name + " is not evicted yet"
		}
	}
	return ""
}

// joined waits until a process is live.
func (w *world) joined(name string) {
	w.t.Helper()
	rig.Until(w.t, patience, name+" to join", func() string {
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

// newAway is a queue with tasks of an hour, each with one attempt, so that who is charged is dead; four for each of so
// many executors.
func newAway(t *testing.T, executors int, session time.Duration) *world {
	t.Helper()
	w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) {
		q.Attempts, q.Timeouts.Session = 1, resource.Duration(session)
	})
	var lines []string
	for i := range 4 * executors {
		lines = append(lines, fmt.Sprintf("b %d %s 3600000000 x", i, ordinary))
	}
	w.submitLines("b", lines)
	return w
}

// addGo starts processes that are so many executors each. It returns their names.
func (w *world) addGo(prefix string, processes, seats int) (names []string) {
	w.t.Helper()
	for i := range processes {
		names = append(names, fmt.Sprint(prefix, i))
		w.add(names[i], false, self, "act-go", w.dir, fmt.Sprint(seats))
	}
	return names
}

// busy waits until there are so many executors with four tasks each, and nothing of the dead is left. It returns their
// seats.
func (w *world) busy(executors int, dead map[string]bool) map[string]bool {
	w.t.Helper()
	seats := map[string]bool{}
	rig.Until(w.t, patience, "executors that all have work", func() string {
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
	const (
		processes, seats, executors = 4, 25, 100
		session                     = 8 * time.Second
	)
	w := newAway(t, executors, session)
	names := w.addGo("e-", processes, seats)
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
	zkconn.Pause(t.Context(), session*5/4)
	if err := w.ensemble.Server(0).Resume(); err != nil {
		t.Fatal(err)
	}
	w.busy(executors, after)
	w.kill(names...)
	w.uncharged(4 * executors)
}
