package zkstate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/apply/history"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// historyStore is a store of ann's, in a run of a pipeline.
func (f *fixture) historyStore(s *zkconn.Session) *zkstate.Store {
	f.t.Helper()
	store, err := zkstate.NewStore(s, zkstate.Config{
		Home: f.root + "/home", Stack: "tests", By: "runner@build", Version: "1.0",
		Who: history.Who{Actor: "ann", CI: "GitHub Actions", URL: "https://u:p@ci.example/runs/7"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return store
}

// begin writes an entry for this plan.
func (f *fixture) begin(
	store *zkstate.Store, plan string, changes ...history.Change,
) (path string, e history.Entry) {
	f.t.Helper()
	e = history.Entry{Plan: plan, Planned: map[string]int{"create": 2}, Changes: changes}
	path, err := store.BeginEntry(f.t.Context(), &e)
	if err != nil {
		f.t.Fatal(err)
	}
	return path, e
}

// history reads the newest n entries.
func (f *fixture) history(n int) []history.Found {
	f.t.Helper()
	found, err := f.store.History(f.t.Context(), "tests", n)
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

// states are the states of the entries, the newest first.
func (f *fixture) states() (all []history.State) {
	for _, found := range f.history(0) {
		all = append(all, found.State)
	}
	return all
}

func TestHistoryOfAnApply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if found := f.history(0); len(found) > 0 {
		t.Errorf("before the first apply there is %+v", found)
	}
	store := f.historyStore(f.dial())
	_, release, err := store.Lock(t.Context(), "p1", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	path, e := f.begin(store, "p1")
	want := f.root + "/home/stack/tests/history/h-0000000000"
	if path != want || e.Actor != "ann" || e.By != "runner@build" || e.URL != "https://ci.example/runs/7" {
		t.Errorf("the entry at %s, want %s: %+v", path, want, e)
	}
	if got := f.states(); !slices.Equal(got, []history.State{history.Running}) {
		t.Errorf("while the apply holds the lock its entry is %v", got)
	}
	e.Results, e.Done = map[string]int{"applied": 2}, map[string]int{"create": 2}
	if err := store.EndEntry(t.Context(), path, e); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	f.begin(store, "p2", history.Change{Action: "replace", Path: "/jobs/a"}) // and dies
	found := f.history(0)
	if got := f.states(); !slices.Equal(got, []history.State{history.Unfinished, history.Finished}) ||
		found[1].Results["applied"] != 2 || found[1].Finished.IsZero() || found[1].Name != "h-0000000000" {
		t.Errorf("states %v: %+v", got, found)
	}
	if one := f.history(1); len(one) != 1 || one[0].Plan != "p2" {
		t.Errorf("the newest one is %+v", one)
	}
	settle := func(left ...string) {
		t.Helper()
		if err := store.Settle(t.Context(), left); err != nil {
			t.Fatal(err)
		}
	}
	if settle("/jobs/a", "/jobs/b"); f.states()[0] != history.Unfinished {
		t.Error("what still cannot be changed settles an apply that was to change it")
	}
	settle("/jobs/b")
	if got := f.states(); got[0] != history.Settled || got[1] != history.Finished {
		t.Errorf("after nothing was left to do the entries are %v", got)
	}
	if stacks, err := f.store.Stacks(t.Context()); err != nil || !slices.Equal(stacks, []string{"tests"}) {
		t.Errorf("stacks %v, %v", stacks, err)
	}
	if roots, err := f.store.AllRoots(t.Context()); err != nil || len(roots) > 0 {
		t.Errorf("roots %v, %v", roots, err)
	}
}

// TestHistoryIsPruned: the newest ones stay, also beside others that write and prune at the same time, and what is not
// an entry stays too.
func TestHistoryIsPruned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.begin(f.historyStore(f.session), "first")
	dir := znode.History(f.root+"/home", "tests")
	acl, _ := zkstate.ParseACL(nil)
	if _, err := f.session.Create(t.Context(), dir+"/notes", nil, zkconn.Persistent, acl); err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 62 // with the first one 249, and notes has taken a number too
	var all sync.WaitGroup
	for w := range writers {
		store := f.historyStore(f.dial())
		all.Go(func() {
			for i := range each {
				e := history.Entry{Plan: fmt.Sprint(w, "-", i)}
				if _, err := store.BeginEntry(t.Context(), &e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	f.begin(f.historyStore(f.session), "last")
	names := f.tree(dir)
	slices.Sort(names)
	if len(names) != history.Kept+1 || names[0] != "h-0000000051" || names[history.Kept] != "notes" {
		t.Errorf("%d children, %s to %s", len(names), names[0], names[len(names)-1])
	}
	if found := f.history(0); len(found) != history.Kept || found[0].Plan != "last" {
		t.Errorf("%d entries, the newest is %+v", len(found), found[0])
	}
}

// TestHistoryOfHostileBodies: what cannot be read is shown as such, and the others beside it.
func TestHistoryOfHostileBodies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.begin(f.historyStore(f.session), "good")
	acl, _ := zkstate.ParseACL(nil)
	for _, body := range []string{
		"", "null", "[]", "{", `{"by":"x"}`, "\xff\xfe", strings.Repeat("{", 100_000), strings.Repeat("x", 900_000),
		`{"by":"x","started":"2026-01-31T03:04:05Z","url":"javascript:alert(1)"}`,
	} {
		if _, err := f.session.Create(t.Context(), znode.NewEntry(f.root+"/home", "tests"), []byte(body),
			zkconn.PersistentSequential, acl); err != nil {
			t.Fatal(err)
		}
	}
	found := f.history(0)
	if len(found) != 10 || found[9].Plan != "good" || found[9].State != history.Unfinished {
		t.Fatalf("%d entries, the oldest is %+v", len(found), found[len(found)-1])
	}
	for _, one := range found[:9] {
		if one.State != history.Damaged || one.Problem == "" || len(one.Problem) > 500 || one.Started.IsZero() {
			t.Errorf("%+v", one)
		}
	}
}

// TestHistoryWithoutPermission: entries of somebody else cannot be read, and one cannot be written where a folder
// belongs to somebody else.
func TestHistoryWithoutPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newStore(f.dial(digestOf("ann")), "auth::cdrwa")
	f.begin(ann, "hers")
	if _, err := f.store.History(t.Context(), "tests", 0); err == nil || !strings.Contains(err.Error(), "history") {
		t.Errorf("a folder that cannot be listed: %v", err)
	}
	var e history.Entry
	if path, err := f.store.BeginEntry(t.Context(), &e); err == nil || path != "" {
		t.Errorf("an entry in somebody else's folder: %q, %v", path, err)
	}
	other := newFixture(t)
	other.begin(other.store, "mine")
	if _, err := other.dial(digestOf("ann")).Create(t.Context(), znode.NewEntry(other.root+"/home", "tests"), nil,
		zkconn.PersistentSequential, []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}}); err != nil {
		t.Fatal(err)
	}
	if found := other.history(0); len(found) != 2 || found[0].State != history.Damaged ||
		!strings.Contains(found[0].Problem, "permission") || found[1].Plan != "mine" {
		t.Errorf("beside an entry that cannot be read: %+v", found)
	}
}
