package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/apply"
	"muster/job"
	"muster/plan"
	"muster/report"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// applier is what the commit of a plan needs, whether the plan was just made or saved before.
type applier struct {
	p         *process
	o         applyOptions
	session   *zkconn.Session
	store     *zkstate.Store
	home      string
	plan      plan.Plan
	firstLook time.Time                             // when the plan's observations were made
	told      *report.Run                           // learns the outcomes
	check     func(ctx, held context.Context) error // under the lock, before the first change; may be nil
}

// run takes the lock, commits, and reports. The end of ctx drains: what is in flight is finished.
func (a *applier) run(ctx context.Context) error {
	if len(changes(a.plan)) == 0 {
		a.tidy(ctx)
		return attention(a.plan)
	}
	held, release, err := a.lock(ctx)
	if err != nil {
		return err
	}
	outcomes, err := a.commit(ctx, held)
	a.told.Outcomes = outcomes
	switch {
	case err != nil, ctx.Err() != nil:
	case held.Err() != nil:
		err = &problem{errIncomplete, context.Cause(held), "muster plan shows what is left"}
	default:
		a.tidy(held)
	}
	err = errors.Join(err, release())
	if outcomes == nil {
		return err
	}
	return a.verdict(outcomes, err)
}

// verdict prints the summary and picks what the exit code tells: an error that concerns all, then what is incomplete,
// then what needs attention, then that something was changed.
func (a *applier) verdict(outcomes []apply.Outcome, err error) error {
	if !a.p.flags.quiet || slices.ContainsFunc(outcomes, func(o apply.Outcome) bool { return o.Result != apply.Applied }) {
		fmt.Fprintln(a.p.out)
		err = errors.Join(err, report.ApplySummary(a.p.out, outcomes, a.p.layout()))
	}
	had := map[apply.Result]bool{}
	for _, o := range outcomes {
		had[o.Result] = true
		if unreachable(o.Err) && !unreachable(err) {
			err = errors.Join(err, o.Err) // one of many speaks for all: the lines above name each
		}
	}
	switch {
	case err != nil:
		return err
	case had[apply.Refused], had[apply.Failed], had[apply.Unknown], had[apply.NotStarted]:
		return foundIncomplete
	case had[apply.Waiting]:
		return foundAttention
	case attention(a.plan) != nil:
		return foundAttention
	case a.o.detailed && had[apply.Applied]:
		return foundDifferences
	}
	return nil
}

// lock waits for other applies of the stack, and says for whom.
func (a *applier) lock(ctx context.Context) (held context.Context, release func() error, err error) {
	self := znode.Mark{Who: a.p.user(), What: "apply", Since: time.Now(), Plan: a.plan.ID}
	return a.store.Lock(ctx, self, a.o.lockTimeout, func(m znode.Mark) {
		fmt.Fprintf(a.p.err, "waiting up to %s for the apply lock of stack %s: %s\n", job.Duration(a.o.lockTimeout), a.plan.Stack, holder(m))
	})
}

func holder(m znode.Mark) string {
	return text.Escape(fmt.Sprintf("%s holds it since %s (%s)", m.Who, m.Since.Format(time.RFC3339), m.What))
}

// commit makes the changes. Nothing is written to a job before check has passed.
func (a *applier) commit(ctx, held context.Context) ([]apply.Outcome, error) {
	if a.check != nil {
		if err := a.check(ctx, held); err != nil {
			return nil, err
		}
	}
	if _, err := a.store.MakeEnsemble(held); err != nil {
		return nil, err
	}
	if !a.p.flags.quiet {
		fmt.Fprintln(a.p.out)
	}
	shown := newProgress(a.p, a.plan)
	defer shown.clear()
	return apply.Run(held, a.store, a.plan, apply.Options{
		Parallel: a.o.parallel, FirstLook: a.firstLook, NoWait: a.o.noWait, Drain: ctx.Done(), Waiting: shown.waiting,
	}, shown.outcome), nil
}

// tidy removes what is garbage by now, also what a crash left: generations that were replaced or deleted, and marks of plans
// that are too old to be applied again. It is no part of the plan, so what stands in its way is said and left for the next apply.
func (a *applier) tidy(ctx context.Context) {
	_, err := a.store.Collect(ctx, a.plan.Roots)
	if err == nil {
		err = a.store.PruneApplied(ctx, maxPlanAge, time.Now())
	}
	if err != nil {
		fmt.Fprintf(a.p.err, "some garbage is left for the next apply: %s\n", text.EscapeLines(err.Error()))
	}
}
