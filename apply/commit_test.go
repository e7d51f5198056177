package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
)

type commitFunc func(ctx context.Context, r plan.Row) error

// CommitAll commits rows all at once.
func (f commitFunc) CommitAll(ctx context.Context, rows []plan.Row) []error {
	errs := make([]error, len(rows))
	var all sync.WaitGroup
	for i, r := range rows {
		all.Go(func() { errs[i] = f(ctx, r) })
	}
	all.Wait()
	return errs
}

func create(name string) plan.Row {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/r", name, 1
	return plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}
}

// leftover is an observed job of 2 workers. Some of them have joined, and none is live.
func leftover(name string, joined int, stale time.Duration) plan.Row {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/r", name, 2
	j.Timeouts.Stale = resource.Duration(stale)
	rec := resource.Record{State: resource.StateOpen}
	_ = rec.Declare(j) // a job always encodes
	return plan.Row{
		Path: j.Path(), Old: &resource.Observed{Record: &rec, Counts: job.Counts(joined, 0)}, Reason: plan.Undeclared,
	}
}

func results(outcomes []Outcome) map[string]Result {
	m := map[string]Result{}
	for _, o := range outcomes {
		m[o.Row.Path] = o.Result
	}
	return m
}

func TestResultOfEachError(t *testing.T) {
	answers := map[string]error{
		"/r/a": nil,
		"/r/b": fmt.Errorf("job %q: %w", "b", plan.ErrAlreadyDone),
		"/r/c": fmt.Errorf("job %q: %w", "c", plan.ErrMoved),
		"/r/d": errors.New("no permission"),
		"/r/e": fmt.Errorf("job %q: %w", "e", plan.ErrUnknown),
		"/r/f": context.Canceled,
	}
	var p plan.Plan
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		p.Rows = append(p.Rows, create(name))
	}
	p.Rows = append(p.Rows, plan.Row{Path: "/r/same", Reason: plan.Equal})
	seen := 0
	outcomes := Commit(t.Context(), commitFunc(func(_ context.Context, r plan.Row) error { return answers[r.Path] }), p,
		CommitOptions{Each: func(Outcome) { seen++ }})
	want := map[string]Result{
		"/r/a": Applied, "/r/b": AlreadyDone, "/r/c": Refused, "/r/d": Failed, "/r/e": Unknown, "/r/f": NotStarted,
	}
	if d := cmp.Diff(want, results(outcomes)); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
	if seen != len(want) {
		t.Errorf("each was called %d times, want %d", seen, len(want))
	}
}

func TestCommitsAreBoundedAndDeletesComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p plan.Plan
		for i := range 20 {
			p.Rows = append(p.Rows, leftover(fmt.Sprintf("gone%d", i), 0, time.Minute), create(fmt.Sprintf("new%d", i)))
		}
		var mu sync.Mutex
		var order []plan.Action
		var inFlight, most atomic.Int32
		Commit(t.Context(), commitFunc(func(_ context.Context, r plan.Row) error {
			most.Store(max(most.Load(), inFlight.Add(1)))
			<-time.After(time.Second)
			inFlight.Add(-1)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Action())
			return nil
		}), p, CommitOptions{Parallel: 4, ObservedAt: time.Now()})
		if got := most.Load(); got != 4 {
			t.Errorf("%d commits in flight at most, want 4", got)
		}
		if i := slices.Index(order, plan.Delete); i != 20 {
			t.Errorf("the first delete was commit %d, want 20: after every create", i)
		}
	})
}

func TestStaleRowsWaitForTheirGraceOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := plan.Plan{Rows: []plan.Row{
			leftover("slow", 1, 30*time.Second), leftover("quick", 1, 10*time.Second),
			leftover("ready", 0, 30*time.Second), create("new"),
		}}
		at := map[string]time.Duration{}
		var waits []string
		outcomes := Commit(t.Context(), commitFunc(func(_ context.Context, r plan.Row) error {
			at[r.Path] = time.Since(start) + 5*time.Second
			return nil
		}), p, CommitOptions{
			Parallel: 1, ObservedAt: start.Add(-5 * time.Second),
			Waiting: func(late []plan.Row, d time.Duration) {
				waits = append(waits, fmt.Sprint(len(late), " for ", d))
			},
		})
		want := map[string]time.Duration{
			"/r/new": 5 * time.Second, "/r/ready": 5 * time.Second, "/r/quick": 10 * time.Second,
			"/r/slow": 30 * time.Second,
		}
		if d := cmp.Diff(want, at); d != "" {
			t.Errorf("committed this long after ObservedAt (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"2 for 25s"}, waits); d != "" {
			t.Errorf("waits (-want +got):\n%s", d)
		}
		if len(outcomes) != 4 {
			t.Errorf("%d outcomes, want 4", len(outcomes))
		}
	})
}

func TestNoWaitLeavesStaleRowsWaiting(t *testing.T) {
	p := plan.Plan{Rows: []plan.Row{leftover("old", 1, time.Hour), leftover("due", 1, time.Minute)}}
	got := results(Commit(t.Context(), commitFunc(func(context.Context, plan.Row) error { return nil }), p,
		CommitOptions{NoWait: true, ObservedAt: time.Now().Add(-2 * time.Minute)}))
	if d := cmp.Diff(map[string]Result{"/r/old": Waiting, "/r/due": Applied}, got); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
}

func TestDrainFinishesWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		p := plan.Plan{Rows: []plan.Row{create("a"), create("b"), leftover("c", 1, time.Hour)}}
		got := results(Commit(t.Context(), commitFunc(func(context.Context, plan.Row) error {
			close(drain)
			<-time.After(time.Second)
			return nil
		}), p, CommitOptions{Parallel: 1, ObservedAt: time.Now(), Drain: drain}))
		if d := cmp.Diff(map[string]Result{"/r/a": Applied, "/r/b": NotStarted, "/r/c": NotStarted}, got); d != "" {
			t.Errorf("results (-want +got):\n%s", d)
		}
	})
}
