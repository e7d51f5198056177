package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func byIndex(j *job.Job) { j.IDs = job.ByIndex }

// withIndex is a worker that brings this id.
func withIndex(j job.Job, identity string, k int) worker.Config {
	c := config(j, identity)
	c.Index = &k
	return c
}

// TestIDsByIndex: each worker has the id that it brings, in whatever order they join, and in every run.
func TestIDsByIndex(t *testing.T) {
	t.Parallel()
	const n = 24
	j, store := newJob(t, n, byIndex)
	want := map[string]int{}
	for i := range n {
		want[fmt.Sprint("host-", n-i)] = i
	}
	for run := range 2 {
		members := make([]*worker.Member, n)
		s := dial(t)
		var all sync.WaitGroup
		for _, i := range rand.Perm(n) {
			all.Go(func() {
				m, err := worker.Join(t.Context(), s, withIndex(j, fmt.Sprint("host-", n-i), i))
				if err == nil {
					err = m.WaitAll(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				members[i] = m
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		if d := cmp.Diff(want, ids(t, store, j)); d != "" {
			t.Errorf("run %d: ids (-want +got):\n%s", run, d)
		}
		for _, list := range []func() ([]worker.Worker, error){
			func() ([]worker.Worker, error) { return members[3].Live(t.Context()) },
			func() ([]worker.Worker, error) { return members[3].Joined(t.Context()) },
			func() ([]worker.Worker, error) { return members[3].Roll(t.Context()) },
		} {
			ws, err := list()
			if err != nil || len(ws) != n {
				t.Fatalf("run %d: %d workers, %v", run, len(ws), err)
			}
			for id, w := range ws {
				if w.ID != id || w.Identity != "" && want[w.Identity] != id {
					t.Errorf("run %d: worker %d is %+v", run, id, w)
				}
			}
		}
		for _, m := range members {
			if err := m.Complete(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
	}
}

// TestIndexThatIsTaken names who has it, and whether that is live. Nothing is written.
func TestIndexThatIsTaken(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 4, byIndex)
	joinIn(t, dial(t), withIndex(j, "a", 2))
	done := joinIn(t, dial(t), withIndex(j, "b", 0))
	if err := done.Complete(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s := dial(t)
	joinIn(t, s, withIndex(j, "c", 1))
	s.Close()
	before := look(t, store, j)
	for k, want := range []string{
		"that of b, which has completed", "that of c, which is not live", "that of a, which is live",
	} {
		m, err := tryJoin(t, withIndex(j, "d", k))
		if !errors.Is(err, worker.ErrNoPlace) || !strings.Contains(err.Error(), fmt.Sprintf("%d is %s", k, want)) {
			t.Errorf("index %d: %v, %v; want %s", k, m, err, want)
		}
	}
	if d := cmp.Diff(before, look(t, store, j)); d != "" {
		t.Errorf("the job changed (-before +after):\n%s", d)
	}
	if m := joinIn(t, dial(t), withIndex(j, "c", 1)); m.ID != 1 {
		t.Errorf("c is back as %d", m.ID)
	}
	// Somebody else wrote what stands there.
	at := znode.ID(j.Root, before.Record.Generation, 2)
	for _, body := range []string{"\xff", "", "\x3a\x03a/b"} { // field 7 of the last is no identity
		if _, err := dial(t).Set(t.Context(), at, []byte(body), -1); err != nil {
			t.Fatal(err)
		}
		if _, err := tryJoin(t, withIndex(j, "d", 2)); !errors.Is(err, worker.ErrNoPlace) ||
			!strings.HasSuffix(err.Error(), "2 is taken") {
			t.Errorf("index 2 is that of %q: %v", body, err)
		}
	}
}

// TestIndexThatDoesNotFit is refused, and nothing is written.
func TestIndexThatDoesNotFit(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 3, byIndex)
	ordered, _ := newJob(t, 3)
	joinIn(t, dial(t), withIndex(j, "w-0", 0))
	before := look(t, store, j)
	unknown := config(j, "w-1")
	unknown.FindIndex = func(string) (int, error) { return 0, worker.ErrIndex }
	for name, c := range map[string]struct {
		worker.Config
		want error
	}{
		"too large":      {withIndex(j, "w-3", 3), worker.ErrNoIndex},
		"negative":       {withIndex(j, "w-1", -1), worker.ErrNoIndex},
		"none":           {config(j, "w-1"), worker.ErrIndex},
		"not found":      {unknown, worker.ErrIndex},
		"another":        {withIndex(j, "w-0", 1), worker.ErrOtherIndex},
		"order of joins": {withIndex(ordered, "w-0", 0), worker.ErrIndex},
	} {
		if m, err := tryJoin(t, c.Config); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if d := cmp.Diff(before, look(t, store, j)); d != "" {
		t.Errorf("the job changed (-before +after):\n%s", d)
	}
	found := config(j, "w-1")
	found.FindIndex = func(identity string) (int, error) {
		return worker.FindIndex(func(string) string { return "" }, identity)
	}
	if m := joinIn(t, dial(t), found); m.ID != 1 {
		t.Errorf("w-1 joined as %d", m.ID)
	}
	c := config(ordered, "w-2") // where nobody asks for it
	c.FindIndex = unknown.FindIndex
	if m := joinIn(t, dial(t), c); m.ID != 0 {
		t.Errorf("w-2 joined as %d", m.ID)
	}
}

func TestFindIndex(t *testing.T) {
	t.Parallel()
	for identity, c := range map[string]struct {
		env  map[string]string
		want int // -1: ErrIndex
	}{
		"worker-3":          {nil, 3},
		"a-b-0":             {nil, 0},
		"-7":                {nil, 7},
		"pod-x":             {map[string]string{"JOB_COMPLETION_INDEX": "4", "SLURM_PROCID": "5"}, 4},
		"pod-9":             {map[string]string{"SLURM_PROCID": "5"}, 5},
		"node7":             {nil, -1},
		"worker-":           {nil, -1},
		"worker-03":         {nil, -1},
		"worker-9999999999": {nil, -1},
		"10.0.0.1:7000":     {nil, -1},
		"my-host:7000":      {nil, -1},
		"[fe80::1-2]:7":     {nil, -1},
		"worker-1":          {map[string]string{"JOB_COMPLETION_INDEX": "x"}, -1},
	} {
		k, err := worker.FindIndex(func(name string) string { return c.env[name] }, identity)
		if c.want < 0 && !errors.Is(err, worker.ErrIndex) || c.want >= 0 && (err != nil || k != c.want) {
			t.Errorf("%s, %v: %d, %v; want %d", identity, c.env, k, err, c.want)
		}
	}
}

// TestJoinByIndexWithoutReply: a join whose reply is lost is this worker, and is counted once.
func TestJoinByIndexWithoutReply(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, byIndex)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	fired := proxy.DropReply(isMulti)
	m := joinIn(t, s, withIndex(j, "w-1", 1))
	if !happened(fired) || m.ID != 1 {
		t.Errorf("joined as %d; the reply was dropped: %v", m.ID, happened(fired))
	}
	if o := look(t, store, j); job.Joined(o) != 1 || o.Live != 1 {
		t.Errorf("observed %+v", o)
	}
	joinIn(t, dial(t), withIndex(j, "w-0", 0))
	if err := m.WaitAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLastWithAnIndexDies before it has written the roll: when it is back it writes it.
func TestLastWithAnIndexDies(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2, byIndex)
	first := joinIn(t, dial(t), withIndex(j, "w-1", 1))
	g, last, world := first.Generation, dial(t), zkconn.World(zkconn.PermAll)
	claim := []byte(`{"nonce":"dead","lives":1,"state":"in","id":0}`)
	_, err := last.Multi(t.Context(),
		zkconn.CreateOp(znode.ByIdentity(j.Root, g, "w-0"), claim, zkconn.Persistent, world),
		zkconn.CreateOp(znode.ID(j.Root, g, 0), nil, zkconn.Persistent, world),
		zkconn.CreateOp(znode.NewJoined(j.Root, g), nil, zkconn.PersistentSequential, world))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.WaitAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, stat, err := last.Get(t.Context(), j.Path()); err != nil || stat.Version != 0 {
		t.Fatalf("the roll is there already: %+v, %v", stat, err)
	}
	joinIn(t, dial(t), withIndex(j, "w-0", 0))
	ws, err := first.Roll(t.Context())
	if err != nil || len(ws) != 2 || ws[0].ID != 0 || ws[0].Port == 0 {
		t.Errorf("the roll is %+v, %v", ws, err)
	}
}

func TestWaitAllNamesTheIndexes(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 5, byIndex, joinTimeout(50*time.Millisecond))
	m := joinIn(t, dial(t), withIndex(j, "here", 3))
	joinIn(t, dial(t), withIndex(j, "there", 0))
	var absent *worker.AbsentError
	if err := m.WaitAll(t.Context()); !errors.As(err, &absent) {
		t.Fatalf("WaitAll: %v", err)
	}
	want := worker.AbsentError{Workers: 5, Joined: 2, Missing: []string{"index 1", "index 2", "index 4"}}
	if d := cmp.Diff(want, *absent); d != "" {
		t.Errorf("absent (-want +got):\n%s", d)
	}
}

// TestIDsOfClaimsThatSomebodyWrote: the id that a claim names is used only if the job can have it.
func TestIDsOfClaimsThatSomebodyWrote(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, byIndex)
	m := joinIn(t, dial(t), withIndex(j, "w-0", 0))
	world := zkconn.World(zkconn.PermAll)
	s := dial(t)
	for identity, claim := range map[string]string{
		"none":  `{"nonce":"n","lives":1,"state":"in"}`,
		"large": `{"nonce":"n","lives":1,"state":"in","id":2}`,
		"minus": `{"nonce":"n","lives":1,"state":"in","id":-1}`,
	} {
		by := znode.ByIdentity(j.Root, m.Generation, identity)
		if _, err := s.Create(t.Context(), by, []byte(claim), zkconn.Persistent, world); err != nil {
			t.Fatal(err)
		}
		if got, err := tryJoin(t, withIndex(j, identity, 1)); err == nil {
			t.Errorf("%s joined as %d", identity, got.ID)
		}
		if _, err := s.Create(t.Context(), j.Path()+"/"+identity, []byte("\xff"), zkconn.Ephemeral, world); err != nil {
			t.Fatal(err)
		}
	}
	live, err := m.Live(t.Context())
	if err != nil || len(live) != 4 || live[0].ID != 0 || live[1].ID != znode.NoID {
		t.Errorf("live are %+v, %v", live, err)
	}
	if _, _, err := store.Workers(t.Context(), j.Path()); err != nil {
		t.Error(err)
	}
}

// TestIndexOfTheNextRun: a worker of another run is not judged by the generation of this one.
func TestIndexOfTheNextRun(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2, byIndex)
	ordered, _ := newJob(t, 2)
	for _, j := range []job.Job{j, ordered} {
		first := withIndex(j, "w-0", 0)
		if first.Run = "monday"; j.IDs != job.ByIndex {
			first.Index = nil
		}
		joinIn(t, dial(t), first)
		next := withIndex(j, "w-3", 3)
		next.Run = "tuesday"
		if _, err := tryJoin(t, next); !errors.Is(err, worker.ErrNotOpen) {
			t.Errorf("ids by %s: %v", j.IDs, err)
		}
	}
}

// TestIndexWithoutAClaim: somebody deleted the claim of who has the index.
func TestIndexWithoutAClaim(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, byIndex)
	joinIn(t, dial(t), withIndex(j, "a", 0))
	joinIn(t, dial(t), withIndex(j, "b", 1))
	s := dial(t)
	if err := s.Delete(t.Context(), znode.ByIdentity(j.Root, look(t, store, j).Record.Generation, "a"), -1); err != nil {
		t.Fatal(err)
	}
	_, err := tryJoin(t, withIndex(j, "c", 0))
	if !errors.Is(err, worker.ErrNoPlace) || !strings.Contains(err.Error(), "somebody deleted its claim") {
		t.Error(err)
	}
}
