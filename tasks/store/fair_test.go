package store

import (
	"fmt"
	"muster/resource/queue"
	"testing"
	"time"
)

// simulation runs executors with a clock of its own: a task takes as long as its batch says.
type simulation struct {
	q      *testQueue
	seats  []*testSeat
	until  []time.Duration // when each executor has done its hand
	took   map[string]time.Duration
	weight map[string]float64
	served map[string]time.Duration // work that was done or is in a hand
	room   time.Duration
}

func newSimulation(q *testQueue, executors int, took map[string]time.Duration, weight map[string]float64) *simulation {
	s := &simulation{
		q: q, until: make([]time.Duration, executors), took: took, weight: weight, served: map[string]time.Duration{},
		room: time.Second,
	}
	for i := range executors {
		s.seats = append(s.seats, q.seat(fmt.Sprint("e", i), queue.Executor, 1))
	}
	return s
}

// next is the next turn: that of the executor which is first done. It returns the time.
func (s *simulation) next() time.Duration {
	s.q.t.Helper()
	i := 0
	for j, u := range s.until {
		if u < s.until[i] {
			i = j
		}
	}
	e := s.seats[i]
	var results []Result
	for _, h := range e.hand {
		results = append(results, Result{h.Task, h.Attempt, Done, s.took[h.Batch], nil})
	}
	e.turn(Turn{Results: results, Idle: 1, Room: s.room})
	now := s.until[i]
	for _, h := range e.hand {
		s.until[i] += s.took[h.Batch]
		s.served[h.Batch] += s.took[h.Batch]
	}
	if len(e.hand) == 0 {
		s.until[i] += 10 * time.Millisecond
	}
	return now
}

// TestBacklogsAreServedByTime: at every turn, what two backlogged batches got by their weights differs by at most one
// hand of each executor. A hand is at most the room or one task. Beside that the first hands are taken by guess.
func TestBacklogsAreServedByTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		quick, slow           time.Duration
		quickWeight           int
		quickTasks, slowTasks int
		turns                 int
	}{
		{"1ms beside 1s", time.Millisecond, time.Second, 1, 60_000, 80, 200},
		{"1ms of weight 4 beside 1s", time.Millisecond, time.Second, 4, 90_000, 60, 200},
		{"1s beside 10m", time.Second, 10 * time.Minute, 1, 9_000, 60, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue(t)
			q.submit("quick", c.quickWeight, 3, payloads(c.quickTasks)...)
			q.submit("slow", 1, 3, payloads(c.slowTasks)...)
			const executors = 8
			s := newSimulation(q, executors, map[string]time.Duration{"quick": c.quick, "slow": c.slow},
				map[string]float64{"quick": float64(c.quickWeight), "slow": 1})
			bound := executors * max(s.room, c.slow).Seconds()
			worst := 0.0
			for turn := range c.turns {
				s.next()
				b := must(q.Batches(t.Context(), 0, 2))(t)
				if b[0].Waiting == 0 || b[1].Waiting == 0 {
					t.Logf("one batch had nothing left at turn %d", turn)
					break
				}
				if turn < executors && b[1].Finished == 0 && b[1].Out > executors {
					t.Errorf("%d tasks of the slow batch are out before one was measured", b[1].Out)
				}
				apart := s.served["quick"].Seconds()/s.weight["quick"] - s.served["slow"].Seconds()
				worst = max(worst, apart, -apart)
			}
			t.Logf("served %v; at worst %.3f s apart, bound %.3f s", s.served, worst, bound)
			if worst > bound {
				t.Errorf("served %.3f s apart, more than %.3f s", worst, bound)
			}
			if s.served["quick"] == 0 || s.served["slow"] == 0 {
				t.Error("one batch got nothing")
			}
		})
	}
}

// TestASmallBatchDoesNotWaitForABigOne: it has ended when each executor has done two hands since it came.
func TestASmallBatchDoesNotWaitForABigOne(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.submit("big", 1, 3, payloads(100_000)...)
	took := map[string]time.Duration{"big": time.Millisecond, "small": time.Millisecond}
	s := newSimulation(q, 8, took, nil)
	for range 40 {
		s.next()
	}
	q.submit("small", 1, 3, payloads(10)...)
	for range 3 * 8 { // a turn ends one hand and begins the next
		s.next()
	}
	if b := must(q.Batches(t.Context(), 0, 2))(t); b[1].Done != 10 || b[0].Waiting == 0 {
		t.Errorf("%d of 10 are done, and %d of the big one wait", b[1].Done, b[0].Waiting)
	}
}

func TestMemoryLimit(t *testing.T) {
	q := newQueue(t)
	q.submit("old", 1, 3, payloads(4)...)
	q.submit("new", 1, 3, payloads(4)...)
	held := must(q.Books(t.Context()))(t).Bytes
	e := q.seat("e", queue.Executor, 4)
	if out := e.turn(Turn{Idle: 4, MaxBytes: held/2 - 1}); out.Level != 2 || len(out.Granted) != 0 {
		t.Errorf("above twice the limit: %+v", out)
	}
	out := e.turn(Turn{Idle: 8, MaxBytes: held - 1})
	if out.Level != 1 || len(out.Granted) != 1 || out.Granted[0].Batch != "old" {
		t.Errorf("above the limit: %+v", out)
	}
	if out = e.turn(Turn{Idle: 8, MaxBytes: held}); out.Level != 0 || len(out.Granted) == 0 {
		t.Errorf("below the limit: %+v", out)
	}
}
