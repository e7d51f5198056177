package tasks

import (
	"fmt"
	"testing"
	"time"

	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestWhatNobodyCollects: discarded batches end when they are completed, kept ones after their time, and those of a
// submitter that does not come.
func TestWhatNobodyCollects(t *testing.T) {
	f := newFixture(t)
	for id, results := range map[string]queue.Results{
		"discard": queue.ResultsDiscard, "keep": "keep:2h", "submitter": queue.ResultsSubmitter,
		"watcher": queue.ResultsWatcher,
	} {
		c := f.submitConfig(id)
		c.Results = results
		if _, err := Submit(t.Context(), f.s, c, numbered(3)); err != nil {
			t.Fatal(err)
		}
	}
	early := f.joinKeeper("early", quick())
	e := f.join("e", queue.Executor)
	for _, id := range []string{"keep", "submitter"} {
		if m := f.batch(id); !m.Completed.IsZero() {
			t.Errorf("%s is not completed", id)
		}
	}
	f.executeAll(e, always(store.Done))
	eventually(t, "the end of what is discarded", func() bool { return f.gone("discard") })
	for _, id := range []string{"keep", "submitter"} {
		eventually(t, "a note at "+id, func() bool { return !f.batch(id).Completed.IsZero() })
	}
	eventually(t, "the count", func() bool { h := f.health(); return h != nil && h.Completed == 1 })
	if err := early.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	later := f.joinKeeper("later", quick(func(l *keepLimits) { l.ahead = 3 * time.Hour }))
	eventually(t, "the end of what was kept", func() bool { return f.gone("keep") })
	f.batch("submitter")
	if err := later.Leave(); err != nil {
		t.Fatal(err)
	}
	f.joinKeeper("latest", quick(func(l *keepLimits) { l.ahead = 24 * time.Hour }))
	eventually(t, "the end of what nobody came for", func() bool { return f.gone("submitter") })
	f.batch("watcher")
	for id, want := range map[string]znode.EndState{
		"discard": znode.EndDiscarded, "keep": znode.EndDiscarded, "submitter": znode.EndUnattended,
	} {
		if how := f.how(id); how != want {
			t.Errorf("%s ended as %q, want %q", id, how, want)
		}
	}
}

// TestOldThingsGo: what is known of old batches is deleted in pages, and dead tasks when they are not kept any more.
func TestOldThingsGo(t *testing.T) {
	f := newFixture(t, func(q *queue.Queue) { q.KeepDead = 1 })
	f.submit("b1", numbered(3))
	e := f.join("e", queue.Executor)
	f.executeAll(e, always(store.Never))
	if err := e.Leave(); err != nil { // it would begin to forget them
		t.Fatal(err)
	}
	root, g := f.queue.Root, f.generation()
	old, recent := time.Now().Add(-9*24*time.Hour), time.Now().Add(-6*24*time.Hour)
	for day, n := range map[time.Time]int{old: 7, recent: 2} {
		create(t, f.s, znode.EndedDay(root, g, day))
		for i := range n {
			create(t, f.s, znode.EndedBatch(root, g, day, fmt.Sprint("x", i)))
		}
	}
	f.joinKeeper("k", quick(func(l *keepLimits) { l.page = 3 }))
	eventually(t, "the old day to go", func() bool {
		days, _, err := f.s.Children(t.Context(), znode.EndedDays(root, g))
		return err == nil && fmt.Sprint(days) == fmt.Sprint([]string{recent.UTC().Format(time.DateOnly)})
	})
	left, _, err := f.s.Children(t.Context(), znode.EndedDay(root, g, recent))
	if err != nil || len(left) != 2 {
		t.Errorf("of the recent day: %v, %v", left, err)
	}
	eventually(t, "the dead tasks to go", func() bool { return f.books().WithDead == 0 })
}

func create(t testing.TB, s *zkconn.Session, at string) {
	t.Helper()
	if _, err := s.Create(t.Context(), at, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
		t.Fatal(err)
	}
}
