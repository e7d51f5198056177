package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/plan"
)

// Store is where a plan is applied.
type Store interface {
	Committer
	// Check says whether a row may still be committed. It writes nothing, and answers as Commit does.
	Check(ctx context.Context, r plan.Row) error
	// Lock waits for the apply lock of the stack, as long as patience, and tells waiting who holds it. The context ends, with
	// a cause, when the lock is lost.
	Lock(ctx context.Context, plan string, patience time.Duration, waiting func(holder string)) (
		held context.Context, release func() error, err error)
	// Ensemble is the id of the ensemble, empty before its first apply; MakeEnsemble gives it one.
	Ensemble(ctx context.Context) (string, error)
	MakeEnsemble(ctx context.Context) (string, error)
	// Applied is plan.ErrApplied if the saved plan was applied before. MarkApplied notes that it is being applied.
	Applied(ctx context.Context, plan string) error
	MarkApplied(ctx context.Context, plan string) error
	// ListRoots adds roots to the index of the stack. DropRoots takes those off it that hold nothing of the stack.
	ListRoots(ctx context.Context, roots []string) error
	DropRoots(ctx context.Context, roots []string) error
	// Collect removes what removed generations left below roots, PruneApplied the marks that are too old to matter.
	Collect(ctx context.Context, roots []string) (int, error)
	PruneApplied(ctx context.Context, maxAge time.Duration, now time.Time) error
}

// MaxPlanAge is how long it is known which plans were applied: no plan that is older may be applied.
const MaxPlanAge = 30 * 24 * time.Hour

// Options of an apply. All functions may be nil; they are called one at a time.
type Options struct {
	Commits // Drain is the end of Run's context
	// Saved: the plan is from a file. It is applied as a whole or not at all, once, and to its own ensemble.
	Saved       bool
	LockTimeout time.Duration
	Queued      func(holder string) // the lock is waited for
	Begin       func()              // the first change is about to be made
	Garbage     func(error)         // something could not be removed, which the next apply will do
}

// ErrLockLost means that the lock was lost while changes were made. The outcomes tell what was done; plan again.
var ErrLockLost = errors.New("the apply lock was lost")

// RefusedError is why a saved plan was not applied. Nothing was written. Make a new plan.
type RefusedError struct {
	Why   string
	Moved []string // what moved since the plan was made, a line each
}

func (e *RefusedError) Error() string {
	return strings.Join(append([]string{"saved plan refused: " + e.Why + "; nothing was written"}, e.Moved...), "\n  ")
}

// Run applies p. The end of ctx drains: what is in flight is finished. Outcomes are nil if it did not come to the first change.
// The error is a RefusedError, ErrLockLost, or the store's.
func Run(ctx context.Context, to Store, p plan.Plan, o Options) ([]Outcome, error) {
	a := &applying{to: to, plan: p, opts: o}
	if o.Saved {
		if err := Admit(ctx, to, p); err != nil {
			return nil, err
		}
	}
	if len(p.Changes()) == 0 {
		return nil, a.withoutChanges(ctx)
	}
	held, release, err := to.Lock(ctx, p.ID, o.LockTimeout, o.Queued)
	if err != nil {
		return nil, err
	}
	outcomes, err := a.underLock(ctx, held)
	return outcomes, errors.Join(err, release())
}

// Admit refuses a saved plan that was applied before, wholly or in part, or that was made for another ensemble. One that was
// made before the ensemble had an id is good only while it has none. Admit writes nothing.
func Admit(ctx context.Context, to Store, p plan.Plan) error {
	if err := to.Applied(ctx, p.ID); err != nil {
		return refuseApplied(err)
	}
	id, err := to.Ensemble(ctx)
	switch {
	case err != nil:
		return err
	case id == p.Ensemble:
		return nil
	case p.Ensemble == "":
		return &RefusedError{Why: "it was made before anything was applied to this ensemble, and that has happened since"}
	case id == "":
		id = "one to which nothing was applied yet"
	}
	return &RefusedError{Why: fmt.Sprintf("it was made for the ensemble %s, and this is %s", p.Ensemble, id)}
}

func refuseApplied(err error) error {
	if errors.Is(err, plan.ErrApplied) {
		return &RefusedError{Why: err.Error()}
	}
	return err
}

// applying is one Run.
type applying struct {
	to   Store
	plan plan.Plan
	opts Options
}

// withoutChanges does what every apply does, also one that changes nothing.
func (a *applying) withoutChanges(ctx context.Context) error {
	if err := a.to.ListRoots(ctx, a.plan.OwnRoots()); err != nil {
		return err
	}
	a.tidy(ctx)
	return nil
}

// underLock makes the changes. Before all of a saved plan is seen to hold nothing is written.
func (a *applying) underLock(ctx, held context.Context) ([]Outcome, error) {
	if a.opts.Saved {
		if err := a.stillHolds(ctx, held); err != nil {
			return nil, err
		}
	}
	if _, err := a.to.MakeEnsemble(held); err != nil {
		return nil, err
	}
	if err := a.to.ListRoots(held, a.plan.OwnRoots()); err != nil {
		return nil, err
	}
	if a.opts.Begin != nil {
		a.opts.Begin()
	}
	commits := a.opts.Commits
	commits.Drain = ctx.Done()
	outcomes := Commit(held, a.to, a.plan, commits)
	switch {
	case ctx.Err() != nil:
	case held.Err() != nil:
		return outcomes, fmt.Errorf("%w: %w", ErrLockLost, context.Cause(held))
	default:
		a.dropRoots(held, outcomes)
		a.tidy(held)
	}
	return outcomes, nil
}

// stillHolds checks that the plan was not applied before and that no row has moved, and then marks it as applied. A signal in
// the meantime leaves the plan unspent.
func (a *applying) stillHolds(ctx, held context.Context) error {
	if err := Admit(held, a.to, a.plan); err != nil { // again: another apply may have held the lock meanwhile
		return err
	}
	moved, err := a.moved(held)
	if err != nil {
		return err
	}
	if n := len(moved); n > 0 {
		what := "1 job"
		if n > 1 {
			what = fmt.Sprintf("%d jobs", n)
		}
		return &RefusedError{Why: what + " moved since it was made", Moved: moved}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return refuseApplied(a.to.MarkApplied(held, a.plan.ID))
}

// moved checks every change and names those that no longer hold, in the order of the plan.
func (a *applying) moved(ctx context.Context) ([]string, error) {
	rows := a.plan.Changes()
	moved := make([]string, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(a.opts.Parallel, DefaultParallel))
	for i, r := range rows {
		g.Go(func() error {
			err := a.to.Check(ctx, r)
			switch {
			case errors.Is(err, plan.ErrMoved):
				moved[i] = fmt.Sprintf("%s: %s", r.Address(), err)
			case !errors.Is(err, plan.ErrAlreadyDone):
				return err
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(moved, func(s string) bool { return s == "" }), err
}

// dropRoots takes roots off the index in which nothing of the stack is left. A partial plan does not tell.
func (a *applying) dropRoots(ctx context.Context, outcomes []Outcome) {
	if a.plan.Partial || len(a.plan.Unlisted) > 0 {
		return
	}
	gone := map[string]bool{}
	for _, o := range outcomes {
		gone[o.Row.Path] = o.Row.Action() == plan.Delete && (o.Result == Applied || o.Result == AlreadyDone)
	}
	used := map[string]bool{}
	for _, r := range a.plan.Own() {
		if !gone[r.Path] {
			used[path.Dir(r.Path)] = true
		}
	}
	empty := slices.DeleteFunc(slices.Clone(a.plan.Roots), func(root string) bool { return used[root] })
	if err := a.to.DropRoots(ctx, empty); err != nil {
		a.garbage(err)
	}
}

// tidy removes what is garbage by now, also what a crash left: generations that were replaced or deleted, and marks of plans
// that are too old to be applied again. It is no part of the plan, so what stands in its way is said and left for the next
// apply.
func (a *applying) tidy(ctx context.Context) {
	_, err := a.to.Collect(ctx, a.plan.Roots)
	if err == nil {
		err = a.to.PruneApplied(ctx, MaxPlanAge, time.Now())
	}
	if err != nil {
		a.garbage(err)
	}
}

func (a *applying) garbage(err error) {
	if a.opts.Garbage != nil {
		a.opts.Garbage(err)
	}
}
