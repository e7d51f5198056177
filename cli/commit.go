package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/text"
	"muster/zkstate"
)

// commit takes a plan, just made or saved, its whole way. What was observed of it was first seen at firstLook.
func (p *process) commit(ctx context.Context, store *zkstate.Store, pl plan.Plan, o applyOptions, firstLook time.Time,
	saved bool, run *report.Run,
) error {
	shown := newProgress(p, pl)
	defer shown.clear()
	outcomes, err := apply.Run(ctx, store, pl, apply.Options{
		Commits: apply.Commits{
			Parallel: o.parallel, FirstLook: firstLook, NoWait: o.noWait, Waiting: shown.waiting, Each: shown.outcome,
		},
		Saved: saved, LockTimeout: o.lockTimeout,
		Queued: func(holder string) {
			fmt.Fprintf(p.err, "waiting up to %s for the apply lock of stack %s: %s\n",
				resource.Duration(o.lockTimeout), pl.Stack, text.Escape(holder))
		},
		Begin: func() {
			if !p.flags.quiet {
				fmt.Fprintln(p.out)
			}
		},
		Garbage: func(err error) {
			fmt.Fprintf(p.err, "some garbage is left for the next apply: %s\n", text.Escape(err.Error()))
		},
	})
	shown.clear()
	run.Outcomes = outcomes
	switch {
	case errors.Is(err, apply.ErrLockLost):
		err = &problem{errIncomplete, err, "muster plan shows what is left"}
	case err == nil && outcomes == nil:
		return attention(pl)
	case outcomes == nil:
		return refusal(err)
	}
	return p.applied(pl, outcomes, o, err)
}

// applied prints the summary and picks what the exit code tells: an error that concerns all, then what is incomplete, then what
// needs attention, then that something was changed.
func (p *process) applied(pl plan.Plan, outcomes []apply.Outcome, o applyOptions, err error) error {
	if !p.flags.quiet || slices.ContainsFunc(outcomes, func(o apply.Outcome) bool { return o.Result != apply.Applied }) {
		fmt.Fprintln(p.out)
		err = errors.Join(err, report.ApplySummary(p.out, outcomes, p.layout()))
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
	case had[apply.Waiting], attention(pl) != nil:
		return foundAttention
	case o.detailed && had[apply.Applied]:
		return foundDifferences
	}
	return nil
}
