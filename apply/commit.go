package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/plan"
)

// DefaultParallel is enough to keep the connection of one session busy, and few enough for a server that others use
// too.
const DefaultParallel = 256

// together is how many changes a Committer gets at once.
const together = 32

// Committer commits each row whose observations still hold, as a whole or not at all, whatever becomes of the others.
// It returns for each row nil, an error of package plan, or another one. Rows may share a transaction.
type Committer interface {
	CommitAll(ctx context.Context, rows []plan.Row) []error
}

// CommitOptions says how the changes of a plan are committed.
type CommitOptions struct {
	Parallel   int             // changes in flight at most; 0: DefaultParallel
	ObservedAt time.Time       // when the plan was read; the grace of stale rows starts here
	NoWait     bool            // do not wait for the grace of stale rows; their result is Waiting
	Drain      <-chan struct{} // once closed: start nothing more, finish what is in flight

	// Waiting is called once, before Commit waits for the grace of the last changes. It may be nil.
	Waiting func(late []plan.Row, d time.Duration)
	// Each is called with each outcome as soon as it is known, one call at a time. It may be nil.
	Each func(Outcome)
}

// Commit commits every change of p and returns the outcomes in the order of p's rows. When ctx ends, Commit passes this
// on to the commits in flight and starts no others.
//
// Deletes come after all other changes: a renamed resource must exist under its new name before the old one goes. Stale
// rows whose grace is not over come last.
func Commit(ctx context.Context, to Committer, p plan.Plan, o CommitOptions) []Outcome {
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if now := time.Now(); o.ObservedAt.After(now) { // another machine's clock is ahead: wait for the whole grace
		o.ObservedAt = now
	}
	r := &run{to: to, opts: o, outcomes: map[string]Outcome{}}
	now, late := r.sort(p)
	r.commitOrdered(ctx, now)
	r.commitLate(ctx, late)

	var all []Outcome
	for _, row := range p.Changes() {
		all = append(all, r.outcomes[row.Path])
	}
	return all
}

// run is the state that the commits of one plan share.
type run struct {
	to   Committer
	opts CommitOptions

	mu       sync.Mutex
	outcomes map[string]Outcome // by path
}

// sort separates the changes that can be committed now from those whose grace is not over.
func (r *run) sort(p plan.Plan) (now, late []plan.Row) {
	for _, row := range p.Changes() {
		if row.Stale() && time.Until(r.due(row)) > 0 {
			late = append(late, row)
		} else {
			now = append(now, row)
		}
	}
	return now, late
}

// due is the time at which the grace of a stale row ends.
func (r *run) due(row plan.Row) time.Time { return r.opts.ObservedAt.Add(time.Duration(row.Grace())) }

// commitLate commits each late row when its grace is over. If several are due, deletes come last.
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
		r.opts.Waiting(late, time.Until(r.due(late[len(late)-1])))
	}
	for len(late) > 0 {
		select {
		case <-time.After(time.Until(r.due(late[0]))):
		case <-ctx.Done():
		case <-r.opts.Drain:
		}
		n := 1
		for n < len(late) && time.Until(r.due(late[n])) <= 0 {
			n++
		}
		r.commitOrdered(ctx, late[:n])
		late = late[n:]
	}
}

// commitOrdered commits rows, deletes last.
func (r *run) commitOrdered(ctx context.Context, rows []plan.Row) {
	var deletes, others []plan.Row
	for _, row := range rows {
		if row.Action() == plan.Delete {
			deletes = append(deletes, row)
		} else {
			others = append(others, row)
		}
	}
	r.commit(ctx, others)
	r.commit(ctx, deletes)
}

// commit commits rows, Parallel at a time, and returns when all have an outcome.
func (r *run) commit(ctx context.Context, rows []plan.Row) {
	size := min(together, r.opts.Parallel)
	var g errgroup.Group
	g.SetLimit(r.opts.Parallel / size)
	for some := range slices.Chunk(rows, size) {
		g.Go(func() error {
			r.commitTogether(ctx, some)
			return nil
		})
	}
	_ = g.Wait() // the outcomes have the errors
}

func (r *run) commitTogether(ctx context.Context, rows []plan.Row) {
	if r.stopped(ctx) {
		for _, row := range rows {
			r.report(Outcome{Row: row, Result: NotStarted})
		}
		return
	}
	start := time.Now()
	errs := r.to.CommitAll(ctx, rows)
	took := time.Since(start)
	for i, row := range rows {
		r.report(Outcome{Row: row, Result: result(errs[i]), Err: errs[i], Took: took})
	}
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
