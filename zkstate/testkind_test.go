package zkstate_test

import (
	"testing"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/testkind"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// TestAnotherKindInZooKeeper: a resource of a kind without folders and counts is created, found, changed, repaired and
// deleted, in a root that also holds a job.
func TestAnotherKindInZooKeeper(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kinds := []zkstate.Kind{zkstate.Job(), {Kind: testkind.Kind()}}
	store, err := zkstate.NewStore(f.session, zkstate.Config{
		Home: f.root + "/home", Stack: "tests", At: time.Now(), Kinds: kinds,
	})
	if err != nil {
		t.Fatal(err)
	}
	lamp := testkind.Lamp{
		Common: resource.Common{Name: "a", Root: f.root + "/jobs", Address: "lamp.a"}, Colour: "white", Watts: 40,
	}
	beside := f.declare("b", 2)
	row := func(declared ...resource.Declaration) plan.Row {
		t.Helper()
		state, err := store.Read(t.Context(), []string{lamp.Root})
		if err != nil {
			t.Fatal(err)
		}
		want := plan.Want{Stack: "tests", Home: f.root + "/home", Declared: append(declared, beside)}
		for _, r := range plan.Diff(want, state).Rows {
			if r.Path == lamp.ID().Path() {
				return r
			}
			if r.Path == beside.Path() && r.Reason != plan.Equal && r.Reason != plan.NotThere {
				t.Errorf("the job beside it: %s", r.Reason)
			}
		}
		return plan.Row{}
	}
	commit := func(want plan.Reason, declared ...resource.Declaration) {
		t.Helper()
		r := row(declared...)
		if r.Reason != want {
			t.Fatalf("reason = %q, want %q", r.Reason, want)
		}
		if err := store.Commit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Commit(t.Context(), plan.Row{Path: beside.Path(), New: beside, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	commit(plan.NotThere, lamp)
	lamp.Colour = "red"
	commit(plan.MutableDiffers, lamp)
	lamp.Watts = 60
	commit(plan.ReadyDiffers, lamp)
	if err := f.session.Delete(t.Context(), znode.Record("lamp", lamp.Root, lamp.Name), -1); err != nil {
		t.Fatal(err)
	}
	commit(plan.IsDamaged, lamp)
	if r := row(lamp); r.Reason != plan.Equal || r.Old.Record.Edited() {
		t.Errorf("after all that it is %s, edited %v", r.Reason, r.Old.Record.Edited())
	}
	commit(plan.Undeclared)
	if r := row(); r.Path != "" {
		t.Errorf("it is still there: %s", r.Reason)
	}
}
