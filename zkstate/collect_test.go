package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestCollectTakesNothingFromACopy: a worker of a deletes its own gate, makes its record name another generation, and
// writes what it likes as the copy into its own generation. Apply deletes nothing of others because of it, neither in
// ZooKeeper nor outside, and says once which folder it leaves.
func TestCollectTakesNothingFromACopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(e *estate, mine, theirs string) // as the attacker, into its generation
		left  bool                                 // its folder is left
	}{
		"the record of a queue": {func(e *estate, mine, theirs string) {
			e.copyBody(znode.Run(e.root+"/jobs", theirs), znode.Run(e.root+"/jobs", mine))
		}, true},
		"that record, in another root": {func(e *estate, mine, theirs string) {
			e.copyBody(znode.Run(e.root+"/jobs", theirs), znode.Run(e.root+"/jobs", mine))
			e.edit(znode.Run(e.root+"/jobs", mine), theirs, mine)
			e.edit(znode.Run(e.root+"/jobs", mine), e.root+"/jobs", "/elsewhere")
		}, true},
		"garbage":  {func(e *estate, mine, _ string) { e.edit(znode.Run(e.root+"/jobs", mine), "{", "") }, true},
		"nothing":  {func(*estate, string, string) {}, false},
		"its gate": {func(e *estate, _, theirs string) { e.remove(znode.Gate(e.root+"/jobs", theirs)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			a, b := e.declareKind(job.KindName, "a", 2), e.declareKind(queue.KindName, "b", 2)
			e.tryApply(e.mine, "mine", a)
			e.tryApply(e.theirs, "theirs", b)
			mine, theirs := e.generationOf(a), e.generationOf(b)
			e.occupy(a, mine)
			e.occupy(b, theirs)
			e.edit(znode.Record(job.KindName, a.ID().Root, "a"), mine, "nothing")
			if err := e.attacker.Delete(t.Context(), znode.Gate(a.ID().Root, mine), -1); err != nil {
				t.Fatal(err)
			}
			c.write(e, mine, theirs)
			before := e.all(b, theirs)
			var unlinked []string
			kind := zkstate.Queue()
			kind.Unlink = func(_ context.Context, rec *resource.Record) error {
				unlinked = append(unlinked, rec.Generation)
				return nil
			}
			for range 2 {
				store, err := zkstate.NewStore(e.session, zkstate.Config{
					Home: e.root + "/home", Stack: "theirs", Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), kind},
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = store.Collect(t.Context(), []string{a.ID().Root})
				if (err != nil) != c.left || c.left && (!errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), mine)) {
					t.Errorf("collect: %v", err)
				}
			}
			if len(unlinked) > 0 {
				t.Errorf("unlinked the keys of %q; b is in %s", unlinked, theirs)
			}
			if d := cmp.Diff(before, e.all(b, theirs)); d != "" {
				t.Errorf("b (-before +after):\n%s", d)
			}
			if _, there, err := e.session.Exists(t.Context(), znode.Run(a.ID().Root, mine)); there != c.left || err != nil {
				t.Errorf("the folder is there: %v, %v", there, err)
			}
		})
	}
}

// TestNobodyKeepsTheGarbageOfOthers: a worker of a makes a znode in its generation, which ops may not read, with one
// below it. The garbage of others is collected all the same, and the error names that znode.
func TestNobodyKeepsTheGarbageOfOthers(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(job.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	e.tryApply(e.theirs, "theirs", e.declareKind(job.KindName, "b", 2), e.declareKind(job.KindName, "c", 2))
	only, err := zkstate.ParseACL([]string{"digest:mallory:" + digestID("mallory") + ":cdrwa"})
	if err != nil {
		t.Fatal(err)
	}
	mine := znode.Run(a.ID().Root, e.generationOf(a))
	for _, at := range []string{mine + "/hidden", mine + "/hidden/deep"} {
		if _, err := e.attacker.Create(t.Context(), at, nil, zkconn.Persistent, only); err != nil {
			t.Fatal(err)
		}
	}
	folders, _, err := e.session.Children(t.Context(), znode.RunDir(a.ID().Root))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} { // as an apply that crashed before it collected
		e.remove(znode.Record(job.KindName, a.ID().Root, name))
	}
	for _, g := range folders {
		e.remove(znode.Gate(a.ID().Root, g))
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "theirs", Kinds: []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Collect(t.Context(), []string{a.ID().Root})
	if n != 2 || !errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), mine+"/hidden") {
		t.Errorf("collected %d of 2: %v", n, err)
	}
	left, _, err := e.session.Children(t.Context(), znode.RunDir(a.ID().Root))
	if err != nil || len(left) != 1 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestFoldersWhoseNameIsNoToken are garbage as others are: an empty one is removed, and one that holds something is
// left and named.
func TestFoldersWhoseNameIsNoToken(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(job.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	dir := znode.RunDir(a.ID().Root)
	all := zkconn.World(zkconn.PermAll)
	for name, body := range map[string]string{"no token!": "", "a token?": "somebody's"} {
		if _, err := e.session.Create(t.Context(), dir+"/"+name, []byte(body), zkconn.Persistent, all); err != nil {
			t.Fatal(err)
		}
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "mine", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Collect(t.Context(), []string{a.ID().Root})
	if n != 1 || !errors.Is(err, plan.ErrLeft) || !strings.Contains(err.Error(), "a token?") {
		t.Errorf("collected %d of 1: %v", n, err)
	}
}

// copyBody writes the body of one znode into another, with the rights of the attacker.
func (e *estate) copyBody(from, to string) {
	e.t.Helper()
	body, _, err := e.attacker.Get(e.t.Context(), from)
	if err == nil {
		_, err = e.attacker.Set(e.t.Context(), to, body, -1)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestCollectHasALimit for what is outside ZooKeeper: it holds the apply lock.
func TestCollectHasALimit(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	a := e.declareKind(queue.KindName, "a", 2)
	e.tryApply(e.mine, "mine", a)
	e.occupy(a, e.generationOf(a))
	e.remove(a.ID().Path() + "/live")
	var left time.Duration
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, _ *resource.Record) error {
		until, _ := ctx.Deadline()
		left = time.Until(until)
		return nil
	}
	store, err := zkstate.NewStore(e.session, zkstate.Config{
		Home: e.root + "/home", Stack: "mine", Kinds: []zkstate.Kind{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.tryApply(store, "mine")
	if left <= 0 || left > time.Minute {
		t.Errorf("it may take %s", left)
	}
}
