package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"muster/plan"
)

// DefaultParallel keeps one session's pipeline full without flooding a server that others use too.
const DefaultParallel = 64

// Committer makes one row true, in one transaction, if the row's observations still hold. Its errors are those of
// package plan, or of the world.
type Committer interface {
	Commit(ctx context.Context, r plan.Row) error
}

// Commits says how the changes of a plan are committed.
type Commits struct {
	Parallel  int             // commits in flight; 0: DefaultParallel
	FirstLook time.Time       // when the plan's observations were made: the grace of what is stale counts from here
	NoWait    bool            // leave what is stale and whose grace is not over as Waiting
	Drain     <-chan struct{} // closed: start nothing more, finish what is in flight

	// Waiting is told once, before the run waits for the grace of the last n changes. It may be nil.
	Waiting func(n int, d time.Duration)
	// Each is told of each outcome as soon as it is known, one call at a time. It may be nil.
	Each func(Outcome)
}

// Commit commits every change of p and returns the outcomes in the order of p's rows. When ctx ends, commits in flight are
// abandoned (their outcome is the committer's answer) and the rest is NotStarted.
//
// Deletes come after everything else: what is renamed must exist under its new name before the old one goes. Rows that must
// be stale for a while come last of all.
func Commit(ctx context.Context, to Committer, p plan.Plan, o Commits) []Outcome {
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if now := time.Now(); o.FirstLook.After(now) { // by another machine's clock: then the wait is the whole grace
		o.FirstLook = now
	}
	r := &run{to: to, opts: o, outcomes: map[string]Outcome{}}
	now, late := r.sort(p)
	for _, phase := range [][]plan.Row{makes(now), deletes(now)} {
		r.commit(ctx, phase)
	}
	r.commitLate(ctx, late)

	var all []Outcome
	for _, row := range p.Rows {
		if row.Action().Changes() {
			all = append(all, r.outcomes[row.Path])
		}
	}
	return all
}

// run holds what the commits of one plan share.
type run struct {
	to   Committer
	opts Commits

	mu       sync.Mutex
	outcomes map[string]Outcome // by path
}

// sort splits the changes into those that may be committed at once and those whose grace is not over.
func (r *run) sort(p plan.Plan) (now, late []plan.Row) {
	for _, row := range p.Rows {
		switch {
		case !row.Action().Changes():
		case row.Stale() && time.Until(r.due(row)) > 0:
			late = append(late, row)
		default:
			now = append(now, row)
		}
	}
	return now, late
}

// due is when a stale row has been seen unchanged for its grace, if it still is unchanged then.
func (r *run) due(row plan.Row) time.Time { return r.opts.FirstLook.Add(time.Duration(row.Grace())) }

// commitLate commits each late row once its grace is over: makes before deletes among those that are due together.
func (r *run) commitLate(ctx context.Context, late []plan.Row) {
	if len(late) == 0 {
		return
	}
	if r.opts.NoWait {
		for _, row := range late {
			r.report(Outcome{Row: row, Result: Waiting})
		}
		return
	}
	slices.SortStableFunc(late, func(a, b plan.Row) int { return r.due(a).Compare(r.due(b)) })
	if r.opts.Waiting != nil && !r.stopped(ctx) {
		r.opts.Waiting(len(late), time.Until(r.due(late[len(late)-1])))
	}
	for len(late) > 0 {
		r.wait(ctx, r.due(late[0]))
		n := 1
		for n < len(late) && time.Until(r.due(late[n])) <= 0 {
			n++
		}
		r.commit(ctx, makes(late[:n]))
		r.commit(ctx, deletes(late[:n]))
		late = late[n:]
	}
}

// wait returns at the given time, or when the run is stopped.
func (r *run) wait(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.opts.Drain:
	}
}

// commit commits rows, Parallel at a time, and returns when all have an outcome.
func (r *run) commit(ctx context.Context, rows []plan.Row) {
	next := make(chan plan.Row)
	var wg sync.WaitGroup
	for range min(r.opts.Parallel, len(rows)) {
		wg.Go(func() {
			for row := range next {
				if r.stopped(ctx) {
					r.report(Outcome{Row: row, Result: NotStarted})
					continue
				}
				start := time.Now()
				err := r.to.Commit(ctx, row)
				r.report(Outcome{Row: row, Result: result(err), Err: err, Took: time.Since(start)})
			}
		})
	}
	for _, row := range rows {
		next <- row
	}
	close(next)
	wg.Wait()
}

func (r *run) stopped(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-r.opts.Drain:
		return true
	default:
		return false
	}
}

func (r *run) report(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o.Row.Path] = o
	if r.opts.Each != nil {
		r.opts.Each(o)
	}
}

func makes(rows []plan.Row) []plan.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r plan.Row) bool { return r.Action() == plan.Delete })
}

func deletes(rows []plan.Row) []plan.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r plan.Row) bool { return r.Action() != plan.Delete })
}
