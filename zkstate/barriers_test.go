package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/resource/job"
	"muster/view"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// rounds are the barriers under way in a job, without their times, which have to be near the present.
func (f *fixture) rounds(j job.Job) []view.Barrier {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), j.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	rounds, err := f.store.Rounds(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rounds {
		if time.Since(r.Since).Abs() > time.Hour {
			f.t.Errorf("%s: since %s", r.Name, r.Since)
		}
	}
	return rounds
}

func (f *fixture) untilRounds(j job.Job, want ...view.Barrier) {
	f.t.Helper()
	var d string
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		d = cmp.Diff(want, f.rounds(j), cmpopts.IgnoreFields(view.Barrier{}, "Since"), cmpopts.EquateEmpty())
		if d == "" {
			return
		}
	}
	f.t.Fatalf("rounds under way (-want +got):\n%s", d)
}

// TestRoundsTellWhoIsMissing at durable and live rounds and the start barrier, and name no round that nobody waits at.
func TestRoundsTellWhoIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("etl", 3)
	f.apply(j)
	f.untilRounds(j)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ms []*worker.Member
	for i := range 3 {
		m, _ := f.join(j, fmt.Sprint("w-", i))
		ms = append(ms, m)
	}
	f.untilRounds(j)
	start := func(b worker.Barrier, who ...int) (calls []chan error) {
		for _, i := range who {
			done := make(chan error, 1)
			calls = append(calls, done)
			go func() { done <- ms[i].Barrier(ctx, b) }()
		}
		return calls
	}
	first := start(worker.Barrier{Name: "load"}, 0, 2)
	start(worker.Barrier{Name: "live", Live: true}, 1)
	load := view.Barrier{
		Name: "load", Attempt: 1, Mode: string(znode.Durable), Workers: 3, Arrived: []int{0, 2}, Missing: []int{1},
	}
	live := view.Barrier{
		Name: "live", Attempt: 1, Mode: string(znode.LiveRound), Workers: 3, Arrived: []int{1}, Missing: []int{0, 2},
	}
	f.untilRounds(j, live, load)

	for _, done := range append(first, start(worker.Barrier{Name: "load"}, 1)...) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
	early := start(worker.Barrier{Name: "load", Timeout: time.Millisecond}, 1)
	if err := <-early[0]; !errors.As(err, new(*worker.AbortedError)) {
		t.Fatal(err)
	}
	f.untilRounds(j, live)

	again := worker.Barrier{Name: "again", Retry: true, Timeout: time.Millisecond}
	for range 2 {
		if err := <-start(again, 2)[0]; !errors.As(err, new(*worker.AbortedError)) {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
	again.Timeout = 0
	third := start(again, 0)
	f.untilRounds(j, view.Barrier{
		Name: "again", Attempt: 3, Mode: string(znode.DurableRetry), Workers: 3, Arrived: []int{0}, Missing: []int{1, 2},
	}, live)
	for _, done := range append(third, start(again, 1, 2)...) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f.untilRounds(j, live)
}

// TestRoundOfWhichNobodyIsCountedYet: an arrival may be gone when its time is read, as that of a live round whose
// worker has just left. The round is then as old as its state. What is no arrival of a worker counts as none.
func TestRoundOfWhichNobodyIsCountedYet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("etl", 2)
	f.apply(j)
	m, _ := f.join(j, "w-0")
	round := func(name, arrival string) {
		dir := znode.Attempt(j.Root, m.Generation, name, 0, 1)
		st, err := znode.Encode(znode.Round{Workers: 2, Mode: znode.Durable})
		if err != nil {
			t.Fatal(err)
		}
		f.write(znode.BarrierFloor(j.Root, m.Generation, name), znode.EncodeFloor(0), zkconn.Persistent)
		f.write(dir, nil, zkconn.Persistent)
		f.write(znode.RoundState(dir), st, zkconn.Persistent)
		f.write(znode.Count(dir), nil, zkconn.Persistent)
		f.write(znode.Arrivals(dir), nil, zkconn.Persistent)
		f.write(znode.Arrivals(dir)+"/"+arrival, nil, zkconn.Persistent)
	}
	round("load", "1")
	round("strange", "::x")
	f.untilRounds(j, view.Barrier{
		Name: "load", Attempt: 1, Mode: string(znode.Durable), Workers: 2, Arrived: []int{1}, Missing: []int{0},
	})
}
