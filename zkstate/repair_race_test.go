package zkstate_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// repairRace is one round: what is damaged, what is done to it while it is repaired, and what must hold afterwards.
type repairRace struct {
	f    *fixture
	job  job.Job
	row  plan.Row // the repair
	m    *worker.Member
	name string // of what is damaged
}

// TestRaceRepair repairs a job while somebody else does something to it. Each time the job is whole afterwards, or
// gone, and nothing happened twice. MUSTER_SOAK=1 makes it ten times as many rounds.
func TestRaceRepair(t *testing.T) {
	rounds := 20
	if os.Getenv("MUSTER_SOAK") != "" {
		rounds = 200
	}
	for name, against := range map[string]struct {
		member bool // somebody has joined before the damage
		do     func(r *repairRace) (string, error)
	}{
		"a join":           {false, (*repairRace).join},
		"a completion":     {true, (*repairRace).complete},
		"terminate":        {false, (*repairRace).terminate},
		"another repair":   {false, (*repairRace).repair},
		"another's change": {false, (*repairRace).repairAndReplace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			other := &fixture{t: t, servers: f.servers, root: f.root, session: f.dial()}
			other.store = other.newStore(other.session)
			count := map[string]int{}
			for d, damage := range slices.Sorted(maps.Keys(damages())) {
				if against.member && slices.Contains(damages()[damage], resource.PartObject) {
					continue // a znode with a live member cannot be deleted
				}
				for i := range rounds {
					r := &repairRace{f: other, name: damage}
					if err := r.prepare(fmt.Sprintf("j%d-%d", d, i), against.member); err != nil {
						t.Fatalf("%s, round %d: %v", damage, i, err)
					}
					var outcome string
					var repairErr, otherErr error
					var both sync.WaitGroup
					both.Go(func() { repairErr = f.store.Commit(t.Context(), r.row) })
					both.Go(func() { outcome, otherErr = against.do(r) })
					both.Wait()
					if otherErr != nil {
						t.Fatalf("%s, round %d: %v; the repair: %v", damage, i, otherErr, repairErr)
					}
					if err := r.check(repairErr); err != nil {
						t.Fatalf("%s, round %d, %s: %v; the repair: %v", damage, i, outcome, err, repairErr)
					}
					count[outcome]++
				}
			}
			t.Logf("outcomes: %v", count)
		})
	}
}

// prepare makes a job in a root of its own, of which somebody deletes a part.
func (r *repairRace) prepare(name string, member bool) error {
	ctx := r.f.t.Context()
	r.job = r.f.declare("a", 1, func(j *job.Job) {
		j.Root, j.Labels = r.f.root+"/"+name, map[string]string{"team": "data"}
	})
	err := r.f.only(ctx, r.job)
	if err == nil && member {
		r.m, err = r.member()
	}
	if err == nil {
		r.row, err = r.f.lose(r.job, damages()[r.name])
	}
	return err
}

func (r *repairRace) member() (*worker.Member, error) {
	return worker.Join(r.f.t.Context(), r.f.session, worker.Config{
		Root: r.job.Root, Job: r.job.Name, Identity: "w", Run: "r1", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
	})
}

// check looks at the end of a round, and takes the job away.
func (r *repairRace) check(repairErr error) error {
	switch {
	case repairErr == nil, errors.Is(repairErr, plan.ErrMoved), errors.Is(repairErr, plan.ErrAlreadyDone):
	default:
		return repairErr
	}
	ctx := r.f.t.Context()
	o, err := r.f.whole(r.job)
	if err != nil {
		return err
	}
	open := 0
	for _, g := range r.f.tree(r.job.Root + "/.muster/run") {
		if len(g) > 5 && g[len(g)-5:] == "/gate" {
			open++
		}
	}
	switch {
	case o == nil && open == 0:
		return nil
	case o == nil || open != 1:
		return fmt.Errorf("%d generations are open, and the job is %+v", open, o)
	case job.Of(o.Record).Labels["team"] != "data" || o.Record.Edited():
		return fmt.Errorf("its record says %+v, edited %v", o.Record, o.Record.Edited())
	}
	if r.m != nil && o.Live > 0 {
		if err := r.m.Leave(ctx, worker.End{}); err != nil {
			return err
		}
		if o, err = r.f.whole(r.job); err != nil {
			return err
		}
	}
	return r.f.store.Commit(ctx, plan.Row{Path: r.job.Path(), Old: o, Reason: plan.Undeclared})
}

// join must succeed in the generation that was damaged, whether it came before the repair or after it.
func (r *repairRace) join() (outcome string, err error) {
	outcome = "joined at once"
	m, err := worker.Join(r.f.t.Context(), r.f.session, worker.Config{
		Root: r.job.Root, Job: r.job.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 1},
		Waiting: func(string) { outcome = "waited for the repair" },
	})
	if err == nil && m.Generation != r.row.Old.Record.Generation {
		err = fmt.Errorf("it joined generation %s, not %s", m.Generation, r.row.Old.Record.Generation)
	}
	r.m = m
	return outcome, err
}

// complete is the last worker's: the job is reset once, or the worker says that it could not be.
func (r *repairRace) complete() (string, error) {
	unfinished := r.m.Complete(r.f.t.Context(), 0)
	if unfinished != nil && !errors.Is(unfinished, worker.ErrUnfinished) {
		return "", unfinished
	}
	g := r.m.Generation
	r.m = nil
	o, err := r.f.store.Find(r.f.t.Context(), r.job.Path())
	switch {
	case err != nil:
		return "", err
	case o == nil || o.Record == nil:
		return "", fmt.Errorf("the job is %+v", o)
	case o.Record.Generation == g && unfinished != nil:
		return "completed, not reset", nil
	case o.Record.Generation == g || unfinished != nil:
		return "", fmt.Errorf("complete: %w; the job is %s", unfinished, o.Status())
	}
	if run := job.LastRun(o.Record); run == nil || run.Generation != g || run.ID != "r1" {
		return "", fmt.Errorf("it was reset, and its last run is %+v", run)
	}
	return "reset", nil
}

// terminate refuses what is damaged.
func (r *repairRace) terminate() (string, error) {
	err := r.f.store.Terminate(r.f.t.Context(), r.job.Path(), 10*time.Second, nil)
	switch {
	case err == nil:
		return "terminated", nil
	case errors.Is(err, zkstate.ErrNotTerminable):
		return "refused", nil
	}
	return "", err
}

func (r *repairRace) repair() (string, error) {
	err := r.f.store.Commit(r.f.t.Context(), r.row)
	switch {
	case err == nil:
		return "the other one repaired", nil
	case errors.Is(err, plan.ErrAlreadyDone):
		return "the other one was late", nil
	}
	return "", err
}

// repairAndReplace is another apply, which found the same damage, and whose next plan replaces the job.
func (r *repairRace) repairAndReplace() (string, error) {
	outcome, err := r.repair()
	if err != nil {
		return "", err
	}
	bigger := r.job
	bigger.Workers = 2
	return outcome, r.f.replace(bigger)
}
