// Package apply applies a plan: it waits for the apply lock, checks that a saved plan still holds, commits the changes,
// several at a time, and removes what they leave behind.
//
// It decides the order of the commits and when to wait. It never decides whether a change is safe: the transaction of
// the Committer does. It retries nothing. The next plan reads whether a commit with an unknown outcome succeeded.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/apply/history"
	"muster/plan"
)

// Store is the ZooKeeper to which Run applies a plan.
type Store interface {
	Committer
	// Check says whether a row can still be committed. It writes nothing, and returns the errors of Commit.
	Check(ctx context.Context, r plan.Row) error
	// Lock waits for the apply lock of the stack, at most for timeout. It calls waiting with the name of the holder.
	// lockCtx ends, with a cause, when the lock is lost.
	Lock(ctx context.Context, plan string, timeout time.Duration, waiting func(holder string)) (
		lockCtx context.Context, release func() error, err error)
	// Ensemble is the id of the ensemble, empty before its first apply. CreateEnsembleID creates it if it has none.
	Ensemble(ctx context.Context) (string, error)
	CreateEnsembleID(ctx context.Context) (string, error)
	// Applied returns plan.ErrApplied if the saved plan was applied before. MarkApplied marks it as applied.
	Applied(ctx context.Context, plan string) error
	MarkApplied(ctx context.Context, plan string) error
	// ListRoots adds roots to the index of the stack.
	ListRoots(ctx context.Context, roots []string) error
	// Collect removes what is left below roots of deleted generations. inUse are generations that are certainly not
	// deleted by this apply. PruneApplied removes the marks of plans that are older than maxAge.
	Collect(ctx context.Context, roots []string, inUse ...string) (int, error)
	PruneApplied(ctx context.Context, maxAge time.Duration, now time.Time) error
	// BeginEntry writes an entry into the history of the stack, and sets in e who applies. If path is not empty, the entry
	// was written, whatever the error is. EndEntry writes it again.
	BeginEntry(ctx context.Context, e *history.Entry) (path string, err error)
	EndEntry(ctx context.Context, path string, e history.Entry) error
	// Settle notes in the last entry that nothing is left to do, if its apply was killed or cut off.
	// left are paths that are still to be changed.
	Settle(ctx context.Context, left []string) error
}

// MaxPlanAge is the age from which a saved plan is refused. The marks of applied plans are kept for as long.
const MaxPlanAge = 30 * 24 * time.Hour

// Options of an apply. All functions may be nil; they are called one at a time.
type Options struct {
	CommitOptions // without Drain, which Run sets
	// Saved: the plan is from a file. It is applied as a whole or not at all, once, and to its own ensemble.
	Saved         bool
	Config        string // digest of the configuration, for the history
	NoTidy        bool   // remove nothing of what changes leave behind: another apply does
	LockTimeout   time.Duration
	Locked        func(holder string) // called while another apply holds the lock
	Starting      func()              // called before the first change
	CleanupFailed func(error)         // called if something could not be removed; the next apply tries again
	Unrecorded    func(error)         // called if the history could not be written; the apply goes on
}

// ErrLockLost means that the lock was lost. The outcomes say what was done; nil means that nothing was. Plan again.
var ErrLockLost = errors.New("the apply lock was lost")

// RefusedError says why a saved plan was not applied. Nothing was written. Make a new plan.
type RefusedError struct {
	Why   string
	Moved []string // what was changed since the plan was made, one line each
	Last  string   // who was the last to apply the stack, if rows have moved; Run does not set it
}

func (e *RefusedError) Error() string {
	lines := append([]string{"saved plan refused: " + e.Why + "; nothing was written"}, e.Moved...)
	if e.Last != "" {
		lines = append(lines, e.Last)
	}
	return strings.Join(lines, "\n  ")
}

// Run applies p. When ctx ends, Run finishes the commits in flight and starts no others. The outcomes are nil if Run
// returns before the first change. The error is a RefusedError, ErrLockLost, or an error of the store.
func Run(ctx context.Context, to Store, p plan.Plan, o Options) ([]Outcome, error) {
	a := &applying{to: to, plan: p, opts: o}
	if o.Saved {
		if err := CheckSaved(ctx, to, p); err != nil {
			return nil, err
		}
	}
	if len(p.Changes()) == 0 { // what is needed even then
		err := to.ListRoots(ctx, p.OwnRoots())
		if err == nil {
			a.tidy(ctx)
		}
		if err == nil && !p.Partial && !o.Saved {
			_ = to.Settle(ctx, p.Leaves()) // the next one tries again
		}
		return nil, err
	}
	lockCtx, release, err := to.Lock(ctx, p.ID, o.LockTimeout, o.Locked)
	if err != nil {
		return nil, err
	}
	outcomes, err := a.underLock(ctx, lockCtx)
	if err != nil && lockCtx.Err() != nil && !errors.Is(err, ErrLockLost) {
		err = fmt.Errorf("%w before the first change: %w", ErrLockLost, err)
	}
	return outcomes, errors.Join(err, release())
}

// CheckSaved refuses a saved plan that was applied before, in whole or in part, or that was made for another ensemble.
// A plan from before the ensemble had an id is refused once it has one. CheckSaved writes nothing.
func CheckSaved(ctx context.Context, to Store, p plan.Plan) error {
	if err := to.Applied(ctx, p.ID); err != nil {
		return refusalOfApplied(err)
	}
	id, err := to.Ensemble(ctx)
	switch {
	case err != nil:
		return err
	case id == p.Ensemble:
		return nil
	case p.Ensemble == "":
		return &RefusedError{
			Why: "it was made before anything was applied to this ensemble, and that has happened since",
		}
	case id == "":
		id = "one to which nothing was applied yet"
	}
	return &RefusedError{Why: fmt.Sprintf("it was made for the ensemble %s, and this is %s", p.Ensemble, id)}
}

func refusalOfApplied(err error) error {
	if errors.Is(err, plan.ErrApplied) {
		return &RefusedError{Why: err.Error()}
	}
	return err
}

// applying is one call of Run.
type applying struct {
	to   Store
	plan plan.Plan
	opts Options

	entry     history.Entry // of this apply in the history of its stack
	entryPath string        // empty: it is not written
}

// underLock makes the changes. It writes nothing before it has checked all of a saved plan.
func (a *applying) underLock(ctx, lockCtx context.Context) ([]Outcome, error) {
	if a.opts.Saved {
		if err := a.claimSaved(ctx, lockCtx); err != nil {
			return nil, err
		}
	}
	if _, err := a.to.CreateEnsembleID(lockCtx); err != nil {
		return nil, err
	}
	if err := a.to.ListRoots(lockCtx, a.plan.OwnRoots()); err != nil {
		return nil, err
	}
	a.beginEntry(lockCtx)
	if a.opts.Starting != nil {
		a.opts.Starting()
	}
	commits := a.opts.CommitOptions
	commits.Drain = ctx.Done()
	outcomes := Commit(lockCtx, a.to, a.plan, commits)
	a.endEntry(lockCtx, outcomes)
	switch {
	case ctx.Err() != nil: // stopped: the outcomes say so, and the next apply tidies
	case lockCtx.Err() != nil:
		return outcomes, fmt.Errorf("%w: %w", ErrLockLost, context.Cause(lockCtx))
	default:
		tidying, cancel := context.WithCancelCause(lockCtx) // nothing has to be finished here
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		a.tidy(tidying)
	}
	return outcomes, nil
}

// claimSaved checks that the saved plan was not applied before and that no row has changed, and then marks it as
// applied. If ctx ends before that, the plan can still be applied.
func (a *applying) claimSaved(ctx, lockCtx context.Context) error {
	if err := CheckSaved(lockCtx, a.to, a.plan); err != nil { // again: another apply may have held the lock meanwhile
		return err
	}
	moved, why, err := a.moved(lockCtx)
	if err != nil {
		return err
	}
	if len(moved) > 0 {
		return &RefusedError{Why: plan.CountText(moved) + " moved since it was made", Moved: why}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return refusalOfApplied(a.to.MarkApplied(lockCtx, a.plan.ID))
}

// moved checks every change. It returns those that can no longer be committed, in the order of the plan, and why.
func (a *applying) moved(ctx context.Context) (rows []plan.Row, why []string, err error) {
	changes := a.plan.Changes()
	errs := make([]error, len(changes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(a.opts.Parallel, DefaultParallel))
	for i, r := range changes {
		g.Go(func() error {
			err := a.to.Check(ctx, r)
			switch {
			case errors.Is(err, plan.ErrMoved):
				errs[i] = err
			case !errors.Is(err, plan.ErrAlreadyDone):
				return err
			}
			return nil
		})
	}
	err = g.Wait()
	for i, r := range changes {
		if errs[i] != nil {
			rows, why = append(rows, r), append(why, fmt.Sprintf("%s: %s", r.Address(), errs[i]))
		}
	}
	return rows, why, err
}

// tidy removes generations that were replaced or deleted, here or by an apply that crashed, and marks of plans that are
// too old to be applied. It is no part of the plan, so an error does not make the apply fail.
func (a *applying) tidy(ctx context.Context) {
	if a.opts.NoTidy {
		return
	}
	var inUse []string
	for _, r := range a.plan.Rows {
		if act := r.Action(); r.Old != nil && r.Old.Record != nil && act != plan.Replace && act != plan.Delete {
			inUse = append(inUse, r.Old.Record.Generation)
		}
	}
	_, err := a.to.Collect(ctx, a.plan.Roots, inUse...)
	tell(a.opts.CleanupFailed, err)
	if err == nil || errors.Is(err, plan.ErrLeft) {
		tell(a.opts.CleanupFailed, a.to.PruneApplied(ctx, MaxPlanAge, time.Now()))
	}
}

// tell calls f with err, unless one of them is nil.
func tell(f func(error), err error) {
	if f != nil && err != nil {
		f(err)
	}
}

// Result is the result of one change.
type Result string

// The results, in the order in which a summary lists them.
const (
	Applied     Result = "applied"
	AlreadyDone Result = "already done" // ZooKeeper was as wanted; nothing was written
	Refused     Result = "refused"      // the resource was changed since it was read; nothing was written
	Failed      Result = "failed"       // nothing was written
	Unknown     Result = "unknown"      // the connection was lost during the commit; the next plan shows the result
	Waiting     Result = "waiting"      // stale, but its grace is not over
	NotStarted  Result = "not started"  // apply was stopped before this change
)

// Results lists every result in the order in which a summary lists them.
func Results() []Result {
	return []Result{Applied, AlreadyDone, Refused, Failed, Unknown, Waiting, NotStarted}
}

// Outcome is one change and its result.
type Outcome struct {
	Row    plan.Row
	Result Result
	Err    error         // nil when applied, waiting or not started
	Took   time.Duration // of the commit
}

func result(err error) Result {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, plan.ErrAlreadyDone):
		return AlreadyDone
	case errors.Is(err, plan.ErrMoved):
		return Refused
	case errors.Is(err, plan.ErrUnknown):
		return Unknown
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return NotStarted // a Committer returns ErrUnknown if it may have sent anything
	}
	return Failed
}

// beginEntry writes the entry of this apply into the history of its stack, with what is planned. Nothing that muster
// decides depends on the history, so an entry that cannot be written is no reason not to apply: somebody who mends
// things at night must not have to mend the history first.
func (a *applying) beginEntry(lockCtx context.Context) {
	a.entry = history.Entry{Plan: a.plan.ID, Saved: a.opts.Saved, Config: a.opts.Config, Planned: map[string]int{}}
	changes := a.plan.Changes()
	for _, r := range changes {
		a.entry.Planned[string(r.Action())]++
	}
	a.entry.SetChanges(recorded(changes, a.plan.Stack))
	var err error
	// An entry that is begun is ended, also if the lock is lost meanwhile.
	a.entryPath, err = a.to.BeginEntry(context.WithoutCancel(lockCtx), &a.entry)
	if lockCtx.Err() == nil {
		tell(a.opts.Unrecorded, err)
	}
}

// endEntry sets what became of this apply, also if the lock is lost by now: only this apply writes its entry.
func (a *applying) endEntry(lockCtx context.Context, outcomes []Outcome) {
	if a.entryPath == "" {
		return
	}
	done, results := map[string]int{}, map[string]int{}
	var reached []plan.Row // certainly or perhaps
	for _, o := range outcomes {
		results[string(o.Result)]++
		if o.Result == Applied {
			done[string(o.Row.Action())]++
		}
		if o.Result == Applied || o.Result == Unknown {
			reached = append(reached, o.Row)
		}
	}
	a.entry.Done, a.entry.Results = done, results
	a.entry.SetChanges(recorded(reached, a.plan.Stack))
	if err := a.to.EndEntry(context.WithoutCancel(lockCtx), a.entryPath, a.entry); err != nil {
		tell(a.opts.Unrecorded, fmt.Errorf("it says that this apply has not finished: %w", err))
	}
}

// recorded lists changes as the history has them. Deleted ones come first: what is gone is asked for most.
func recorded(rows []plan.Row, stack string) (all []history.Change) {
	for _, act := range []plan.Action{plan.Delete, plan.Replace, plan.Update, plan.Create} {
		for _, r := range rows {
			if r.Action() != act {
				continue
			}
			c := history.Change{Action: string(act), Path: r.Path}
			if len(all) < history.MaxChanges {
				c.Fields = r.Sets(stack)
			}
			all = append(all, c)
		}
	}
	return all
}
