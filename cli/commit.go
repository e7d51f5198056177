package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/text"
	"muster/zkstate"
)

// commit applies a plan, just made or saved, and prints what happens. firstLook is when the plan was observed.
func (p *process) commit(ctx context.Context, store *zkstate.Store, pl plan.Plan, o applyOptions, firstLook time.Time,
	saved bool, run *report.Run,
) error {
	p.redisHosts = redisHosts(pl)
	shown := newProgress(p, pl)
	defer shown.clear()
	outcomes, err := apply.Run(ctx, store, pl, apply.Options{
		CommitOptions: apply.CommitOptions{
			Parallel: o.parallel, ObservedAt: firstLook, NoWait: o.noWait, Waiting: shown.waiting, Each: shown.outcome,
		},
		Saved: saved, LockTimeout: o.lockTimeout,
		Locked: func(holder string) {
			fmt.Fprintf(p.err, "waiting up to %s for the apply lock of stack %s: %s\n",
				resource.Duration(o.lockTimeout), pl.Stack, text.Escape(holder))
		},
		Starting: func() {
			if !p.flags.quiet {
				fmt.Fprintln(p.out)
			}
		},
		Unrecorded: func(err error) {
			fmt.Fprintf(p.err, "muster: warning: this apply is not in the history as it should be: %s\n",
				text.Escape(err.Error()))
		},
		CleanupFailed: func(err error) {
			if errors.Is(err, plan.ErrLeft) {
				fmt.Fprintf(p.err, "muster: warning: left as it is: %s; delete it by hand when nobody needs it "+
					"(zkCli.sh: deleteall PATH)\n", text.Escape(err.Error()))
				return
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				fmt.Fprintf(p.err, "some garbage is left for the next apply: %s\n", text.Escape(line))
			}
		},
	})
	shown.clear()
	run.Outcomes = outcomes
	switch {
	case errors.Is(err, apply.ErrLockLost):
		err = &problem{errIncomplete, err, "muster plan shows what is left"}
		if outcomes == nil {
			return err
		}
	case err == nil && outcomes == nil:
		return attention(pl)
	case outcomes == nil:
		return wrapRefused(nameLastApply(ctx, store.Reader, pl.Stack, err))
	}
	return p.summarize(pl, outcomes, o, err)
}

// summarize prints the summary and returns what decides the exit code. The order is: an error that concerns all
// changes, an incomplete change, something that needs attention, something that was changed.
func (p *process) summarize(pl plan.Plan, outcomes []apply.Outcome, o applyOptions, err error) error {
	failed := func(o apply.Outcome) bool { return o.Result != apply.Applied }
	if !p.flags.quiet || slices.ContainsFunc(outcomes, failed) {
		fmt.Fprintln(p.out)
		opts := p.layout()
		if slices.ContainsFunc(outcomes, func(o apply.Outcome) bool { return failed(o) && o.Result != apply.AlreadyDone }) {
			opts.Next = p.paste("muster plan" + o.repeated())
		}
		err = errors.Join(err, report.ApplySummary(p.out, outcomes, opts))
	}
	had := map[apply.Result]bool{}
	for _, o := range outcomes {
		had[o.Result] = true
		if unreachable(o.Err) && !unreachable(err) {
			err = errors.Join(err, o.Err) // one is enough: each was printed with its row
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
