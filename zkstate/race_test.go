package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestRaceJoinAgainstDelete lets a worker join while a delete or a replace of its job is committed, 3,000 times,
// on an ensemble of three. Either the worker joined and the job stands, or the job is deleted (or new) and the worker
// is not in it: never a deleted live worker, never half a job.
func TestRaceJoinAgainstDelete(t *testing.T) {
	t.Parallel()
	const rounds, lanes = 3000, 6
	three, err := zkserver.Start(t.Context(), zkserver.Options{Servers: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer three.Stop()

	var mu sync.Mutex
	count := map[string]int{}
	var lane sync.WaitGroup
	start := time.Now()
	for l := range lanes {
		f := newFixtureAt(t, three.Addrs())
		joiner := f.dial()
		lane.Go(func() {
			for i := range rounds / lanes {
				outcome, err := f.raceOnce(joiner, l, i)
				if err != nil {
					_ = joiner.Sync(t.Context(), "/") // it learns that its session is gone only when it asks
				}
				if joiner.Context().Err() != nil { // its session expired on a busy machine: ignore the round
					joiner = f.dial()
					continue
				}
				if err != nil {
					t.Errorf("round %d of lane %d: %v", i, l, err)
					return
				}
				mu.Lock()
				count[outcome]++
				mu.Unlock()
			}
		})
	}
	lane.Wait()
	t.Logf("%d rounds in %s: %v", rounds, time.Since(start).Round(time.Millisecond), count)
	for _, must := range []string{"delete won", "joiner won over delete", "replace won", "joiner won over replace"} {
		if count[must] == 0 {
			t.Errorf("%q never happened: the race was not a race", must)
		}
	}
}

// raceOnce runs one round and says who won. An error means that the result is wrong.
func (f *fixture) raceOnce(joiner *zkconn.Session, lane, i int) (string, error) {
	ctx := f.t.Context()
	j := f.declare(fmt.Sprintf("r%d-%d", lane, i), 2)
	replace := i%2 == 1
	if err := f.only(ctx, j); err != nil {
		return "", err
	}
	row := plan.Row{Path: j.Path(), Reason: plan.Undeclared}
	if replace {
		bigger := j
		bigger.Workers = 3
		row.New, row.Reason = bigger, plan.ReadyDiffers
	}
	old, err := f.store.Look(ctx, j.Path())
	if err != nil {
		return "", err
	}
	row.Old = old

	var m *worker.Member
	var joinErr, commitErr error
	var both sync.WaitGroup
	both.Go(func() {
		ctx, giveUp := context.WithCancel(ctx)
		defer giveUp()
		m, joinErr = worker.Join(ctx, joiner, worker.Config{
			Root: j.Root, Job: j.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
			Waiting: func(string) { giveUp() }, // the job was deleted first
		})
	})
	both.Go(func() {
		if i%4 < 2 {
			commitErr = f.store.Commit(ctx, row)
			return
		}
		other := f.declare(j.Name+"-other", 1) // they share a transaction, which must not matter to either
		errs := f.store.CommitAll(ctx, []plan.Row{row, {Path: other.Path(), New: other, Reason: plan.NotThere}})
		if commitErr = errs[0]; errs[1] != nil {
			commitErr = fmt.Errorf("the other change: %w", errs[1])
		}
	})
	both.Wait()

	now, err := f.store.Look(ctx, j.Path())
	if err != nil {
		return "", err
	}
	switch {
	case commitErr != nil && !errors.Is(commitErr, plan.ErrMoved):
		return "", commitErr
	case joinErr != nil && !errors.Is(joinErr, worker.ErrNoJob):
		return "", joinErr
	case now != nil && now.Problem != "":
		return "", fmt.Errorf("half a job: %s", now.Problem)
	}
	if m != nil {
		defer m.Leave(ctx, worker.End{})
	}
	return verdict(replace, m, commitErr, old, now)
}

// verdict says who won one round, or returns an error if the result is wrong.
func verdict(replace bool, m *worker.Member, commitErr error, old, now *resource.Observed) (string, error) {
	joined := m != nil
	switch {
	case commitErr != nil && joined: // the worker was first: the job must be unchanged
		if now == nil || now.Live != 1 || now.Record.Generation != old.Record.Generation {
			return "", fmt.Errorf("a refused commit changed the job: %+v", now)
		}
		if replace {
			return "joiner won over replace", nil
		}
		return "joiner won over delete", nil
	case commitErr != nil:
		return "", fmt.Errorf("refused (%w) although nobody joined", commitErr)
	case !replace && joined, !replace && now != nil:
		return "", fmt.Errorf("deleted under a live worker: joined %v, observed %+v", joined, now)
	case !replace:
		return "delete won", nil
	case now == nil || now.Record.Generation == old.Record.Generation:
		return "", fmt.Errorf("replaced, but observed %+v", now)
	case joined && (m.Generation != now.Record.Generation || now.Live != 1):
		return "", fmt.Errorf("the worker is in generation %s, the job in %s with %d live",
			m.Generation, now.Record.Generation, now.Live)
	}
	return "replace won", nil
}

// only creates one job.
func (f *fixture) only(ctx context.Context, j job.Job) error {
	return f.store.Commit(ctx, plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
}

// TestRaceOfTwoApplies: two stores commit the same plan at once; every change is made once. MUSTER_SOAK=1 makes it ten
// times as many rounds.
func TestRaceOfTwoApplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.newStore(f.dial())
	rounds := 20
	if rig.Long() {
		rounds *= 10
	}
	for i := range rounds {
		j := f.declare(fmt.Sprint("j", i), 2)
		for _, declared := range [][]job.Job{{j}, {f.declare(j.Name, 3)}, nil} {
			rows := f.plan(declared...).Rows
			var errs [2]error
			var both sync.WaitGroup
			for k, store := range []*zkstate.Store{f.store, other} {
				both.Go(func() { errs[k] = store.Commit(t.Context(), rows[0]) })
			}
			both.Wait()
			done := 0
			for _, err := range errs {
				switch {
				case err == nil:
					done++
				case !errors.Is(err, plan.ErrMoved) && !errors.Is(err, plan.ErrAlreadyDone):
					t.Fatal(err)
				}
			}
			if done != 1 {
				t.Fatalf("round %d: %d of two commits of %s were made: %v", i, done, rows[0].Reason, errs)
			}
		}
	}
}
