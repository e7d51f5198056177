package zkstate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The ids that ZooKeeper gives to two users with the password "secret".
const (
	deployerID = "digest:deployer:iuIgXRnHEhynFJBU9JUWTmWEwAM="
	workerID   = "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y="
)

func digestOf(user string) zkconn.Auth {
	return zkconn.Auth{Scheme: "digest", Data: []byte(user + ":secret")}
}

// TestRecordedACLNamesTheDeployer: it has the deployer's id in place of auth, also after workers with another id reset
// the job. The next update replaces auth in a Record of an older muster.
func TestRecordedACLNamesTheDeployer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session = f.dial(digestOf("deployer"))
	f.store = f.newStore(f.session, "auth::cdrwa", workerID+":cdrwa")
	asWorker := f.dial(digestOf("worker"))
	want := []string{deployerID + ":cdrwa", workerID + ":cdrwa"}
	recorded := func(when string, want ...string) {
		t.Helper()
		o, err := f.store.Look(t.Context(), f.root+"/jobs/a")
		if err != nil || o == nil || o.Record == nil {
			t.Fatalf("after %s: %v, %+v", when, err, o)
		}
		if d := cmp.Diff(want, o.Record.ACL); d != "" || o.Record.Edited() {
			t.Errorf("after %s, edited %v, the record names (-want +got):\n%s", when, o.Record.Edited(), d)
		}
	}
	j := f.declare("a", 1)
	f.apply(j)
	recorded("a create", want...)
	for range 2 {
		m, err := worker.Join(t.Context(), asWorker, worker.Config{
			Root: j.Root, Job: j.Name, Identity: "w", Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
		})
		if err == nil {
			err = m.Complete(t.Context(), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		recorded("a run", want...)
	}
	j.Labels = map[string]string{"team": "data"}
	f.apply(j)
	recorded("an update", want...)

	j.Workers = 2
	f.apply(j)
	recorded("a replace", want...)
	f.apply()
	f.expect(map[string]plan.Reason{})
}

// TestAListedRootStaysListed: also when the last resource of the stack there is gone.
func TestAListedRootStaysListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j := f.declare("a", 1)
	f.apply(j)
	f.apply()
	roots, err := f.store.Roots(t.Context(), "tests")
	if err != nil || !slices.Equal(roots, []string{j.Root}) {
		t.Errorf("the index lists %v, %v", roots, err)
	}
}

// TestRaceCreatesInManyRoots: each of many, as workers that create their job, lists another root. The index moves
// under all of them, and none gives up.
func TestRaceCreatesInManyRoots(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
