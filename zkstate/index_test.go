package zkstate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestRaceCreateAgainstDropRoots: a root is taken off the index while somebody else, who does not hold the apply lock,
// creates a job there. Whoever comes first, the job is never out of sight.
func TestRaceCreateAgainstDropRoots(t *testing.T) {
	const rounds = 400
	f := newFixture(t)
	creator := f.newStore(f.dial())
	writes := map[int32]int{}
	for i := range rounds {
		j := f.declare("a", 1, func(j *job.Job) { j.Root = fmt.Sprintf("%s/r%d", f.root, i) })
		if err := f.store.ListRoots(t.Context(), []string{j.Root}); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // so that the creator knows the version at which the root was listed
			if err := creator.ListRoots(t.Context(), []string{j.Root}); err != nil {
				t.Fatal(err)
			}
		}
		before := f.indexVersion()
		var createErr, dropErr error
		var both sync.WaitGroup
		both.Go(func() {
			createErr = creator.Commit(t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
		})
		both.Go(func() { dropErr = f.store.DropRoots(t.Context(), []string{j.Root}) })
		both.Wait()
		if createErr != nil || dropErr != nil {
			t.Fatalf("round %d: create %v, drop %v", i, createErr, dropErr)
		}
		roots, err := f.store.Roots(t.Context(), "tests")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(roots, j.Root) {
			t.Fatalf("round %d: the job is in %s, and the index lists %v", i, j.Root, roots)
		}
		writes[f.indexVersion()-before]++
		// The job goes, and the root with it. This time nobody is in the way.
		o, err := f.store.Look(t.Context(), j.Path())
		if err == nil {
			err = f.store.Commit(t.Context(), plan.Row{Path: j.Path(), Old: o, Reason: plan.Undeclared})
		}
		if err == nil {
			err = f.store.DropRoots(t.Context(), []string{j.Root})
		}
		if err != nil {
			t.Fatal(err)
		}
		if roots, err = f.store.Roots(t.Context(), "tests"); err != nil || len(roots) > 0 {
			t.Fatalf("round %d: nothing is left, and the index lists %v, %v", i, roots, err)
		}
	}
	t.Logf("rounds by how often the index was written: %v", writes)
	if len(writes) < 2 {
		t.Error("every round went the same way: the race was not a race")
	}
}

func (f *fixture) indexVersion() int32 {
	f.t.Helper()
	stat, _, err := f.session.Exists(f.t.Context(), znode.Stack(f.root+"/home", "tests"))
	if err != nil {
		f.t.Fatal(err)
	}
	return stat.Version
}

// TestRaceCreatesInManyRoots: each of many, as workers that create their job, lists another root. The index moves
// under all of them, and none gives up.
func TestRaceCreatesInManyRoots(t *testing.T) {
	const creators, rounds = 40, 5
	f := newFixture(t)
	var stores []*zkstate.Store
	for range creators {
		stores = append(stores, f.newStore(f.dial()))
	}
	for round := range rounds {
		errs := make([]error, creators)
		var all sync.WaitGroup
		for i, store := range stores {
			j := f.declare("a", 1, func(j *job.Job) { j.Root = fmt.Sprintf("%s/r%d-%d", f.root, round, i) })
			all.Go(func() {
				errs[i] = store.Commit(t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
			})
		}
		all.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("creator %d of round %d: %v", i, round, err)
			}
		}
	}
	roots, err := f.store.Roots(t.Context(), "tests")
	if err != nil || len(roots) != creators*rounds {
		t.Errorf("%d roots are listed, want %d: %v", len(roots), creators*rounds, err)
	}
	state, err := f.store.Read(t.Context(), roots)
	if err != nil || len(state.Found) != creators*rounds {
		t.Errorf("%d jobs are found, want %d: %v", len(state.Found), creators*rounds, err)
	}
	for path, o := range state.Found {
		if o.Status() != resource.StatusReady {
			t.Errorf("%s is %s", path, o.Status())
		}
	}
}

// TestADamagedIndexHidesNoOtherStack: what the others list is found, and the error says which is damaged.
func TestADamagedIndexHidesNoOtherStack(t *testing.T) {
	f := newFixture(t)
	j := f.declare("a", 1)
	if err := f.store.Commit(t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"another", "zebra"} { // one on each side of "tests"
		f.write(znode.Stack(f.root+"/home", name), []byte("\xff"), zkconn.Persistent)
	}
	roots, err := f.store.AllRoots(t.Context())
	if !slices.Equal(roots, []string{j.Root}) || err == nil || !strings.Contains(err.Error(), "/stack/another does not") {
		t.Errorf("roots %v, %v", roots, err)
	}
}
