package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"muster/resource/job"
	"muster/worker"
)

// TestRestartAfterCompletion: a container that is started again does not run its command again: while others still
// work, after the run has ended, and in a job that is retained.
func TestRestartAfterCompletion(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	c := config(j, "w0")
	c.Run = "monday"
	m, err := worker.Join(t.Context(), dial(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Complete(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	var done *worker.DoneError
	if _, err := tryJoin(t, c); !errors.As(err, &done) || done.Exit != 7 {
		t.Errorf("while others work: %v", err)
	}
	next := c
	next.Run = "tuesday"
	if _, err := tryJoin(t, next); !errors.Is(err, worker.ErrNotOpen) {
		t.Errorf("the next run came early: %v", err)
	}
	c.Identity = "w1"
	if m, err = worker.Join(t.Context(), dial(t), c); err != nil {
		t.Fatal(err)
	}
	complete(t, m)
	for _, c.Identity = range []string{"w0", "w1"} {
		if _, err := tryJoin(t, c); !errors.Is(err, worker.ErrCompleted) {
			t.Errorf("%s after the run: %v", c.Identity, err)
		}
	}
	if m, err := tryJoin(t, next); err != nil || m.ID != 0 {
		t.Errorf("the next run: %+v, %v", m, err)
	}

	kept, _ := newJob(t, 1, onComplete(job.Retain))
	complete(t, join(t, kept, "w0"))
	if _, err := tryJoin(t, config(kept, "w0")); !errors.Is(err, worker.ErrDone) {
		t.Errorf("in a retained job: %v", err)
	}
}

// TestRunsDoNotMix: the first worker says which run a generation belongs to. A worker of another run waits for another
// generation, also under an identity that is expected in this one, and does not complete this one.
func TestRunsDoNotMix(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	of := func(run, identity string) worker.Config {
		c := config(j, identity)
		c.Run = run
		return c
	}
	first, err := worker.Join(t.Context(), dial(t), of("monday", "w0"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := worker.Join(t.Context(), dial(t), of("monday", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, first)
	if err := left.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	for _, identity := range []string{"w0", "w1", "w2"} {
		_, err := tryJoin(t, of("tuesday", identity))
		if !errors.Is(err, worker.ErrNotOpen) || !strings.Contains(err.Error(), "this one is of run monday") {
			t.Errorf("%s of the next run: %v", identity, err)
		}
	}
	back, err := worker.Join(t.Context(), dial(t), of("monday", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, back)
	if last := job.LastRun(look(t, store, j).Record); last == nil || last.ID != "monday" {
		t.Errorf("the last run: %+v", last)
	}

	join(t, j, "w0") // of the generation that follows; it names no run
	_, err = tryJoin(t, of("tuesday", "w1"))
	if !errors.Is(err, worker.ErrNotOpen) || !strings.Contains(err.Error(), "named no run") {
		t.Errorf("after a worker without a run: %v", err)
	}
	join(t, j, "w1")
}

// TestRunsThatBeginAtOnce: of several runs one gets the generation.
func TestRunsThatBeginAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		j, store := newJob(t, 4)
		var all sync.WaitGroup
		joined := make([]bool, 4)
		for i := range joined {
			all.Go(func() {
				c := config(j, fmt.Sprint("w", i))
				c.Run = []string{"monday", "tuesday"}[i%2]
				m, err := tryJoin(t, c)
				if err != nil && !errors.Is(err, worker.ErrNotOpen) {
					t.Error(err)
				}
				joined[i] = m != nil
			})
		}
		all.Wait()
		o := look(t, store, j)
		if job.Joined(o) != 2 || joined[0] != joined[2] || joined[1] != joined[3] || joined[0] == joined[1] {
			t.Fatalf("joined: %v, observed %+v", joined, o)
		}
	}
}
