package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/apply"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/zkstate"
)

// runApplyFile applies a saved plan as it is.
func runApplyFile(cmd *cobra.Command, p *process, o applyOptions, file string, run *report.Run) error {
	if err := errors.Join(o.check(), refusePlanFlags(cmd)); err != nil {
		return err
	}
	saved, err := readPlan(file)
	if err != nil {
		return err
	}
	run.Plan, run.Servers = &saved.Plan, saved.Servers
	if err := o.checkAge(saved.Created); err != nil {
		return err
	}
	t := p.target(savedTarget(saved))
	if err := sameServers(saved, t); err != nil {
		return err
	}
	store, done, err := p.openStore(cmd.Context(), t, run, saved.Plan.Home, saved.Plan.Stack, saved.ACL)
	if err != nil {
		return err
	}
	defer done()
	if err := apply.CheckSaved(cmd.Context(), store, saved.Plan); err != nil {
		return wrapRefused(err)
	}
	if !p.flags.quiet || attention(saved.Plan) != nil {
		if err := p.showSaved(saved, o.all); err != nil {
			return err
		}
	}
	return p.commit(cmd.Context(), store, saved.Plan, o, saved.Created, true, run)
}

// sameServers refuses a plan without an ensemble id, unless the servers are those that it was made from. A plan has no
// id if nothing was ever applied to its ensemble, and nothing but the servers tells one such ensemble from another.
func sameServers(saved planfile.Saved, t target) error {
	made, now := slices.Sorted(slices.Values(saved.Servers)), slices.Sorted(slices.Values(t.servers))
	if saved.Plan.Ensemble != "" || slices.Equal(made, now) {
		return nil
	}
	why := "it does not say which servers it was made from"
	if len(made) > 0 {
		why = fmt.Sprintf("it was made before anything was applied to %s, so it is for these servers only, and not for %s",
			strings.Join(saved.Servers, ","), strings.Join(t.servers, ","))
	}
	return wrapRefused(&apply.RefusedError{Why: why})
}

// clockSkew is how far the clock of the machine that made a plan may be ahead of the clock here.
const clockSkew = 5 * time.Minute

// checkAge refuses a plan that is too old. It refuses one from the future too, which would never become too old.
func (o applyOptions) checkAge(made time.Time) error {
	switch age := time.Since(made); {
	case age > o.maxAge:
		return refusedf("the plan is %s old, older than --max-age %s",
			resource.Duration(age.Round(time.Second)), resource.Duration(o.maxAge))
	case age < -clockSkew:
		return refusedf("the plan was made at %s, which is in the future: the clock here or there is wrong",
			made.Format(time.RFC3339))
	}
	return nil
}

// refusePlanFlags refuses the flags that decide what a plan contains: a saved plan is applied as it is.
func refusePlanFlags(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"var", "var-file", "only", "skip", "max-delete", "allow-empty"}, f.Name) {
			err = usagef("give it to muster plan", "--%s has no effect on a saved plan", f.Name)
		}
	})
	return err
}

// readPlan reads a saved plan, strictly.
func readPlan(file string) (planfile.Saved, error) {
	data, err := readBounded(file, planfile.MaxFile)
	if err != nil {
		return planfile.Saved{}, err
	}
	saved, err := planfile.Decode(declarable(), data)
	if err != nil {
		return saved, &problem{errRefused, fmt.Errorf("%s: %w", file, err), newPlanHint}
	}
	return saved, nil
}

// newPlanHint is the next step after a saved plan was refused.
const newPlanHint = "muster plan --out FILE makes a new one"

// refusedf is an error that refuses a saved plan before anything is written.
func refusedf(format string, args ...any) error {
	return wrapRefused(&apply.RefusedError{Why: fmt.Sprintf(format, args...)})
}

// nameLastApply adds to a refusal because of rows that have moved who was the last to apply the stack: that one may
// have moved them. It is left out if the history cannot be read.
func nameLastApply(ctx context.Context, r *zkstate.Reader, stack string, err error) error {
	var refused *apply.RefusedError
	if !errors.As(err, &refused) || len(refused.Moved) == 0 {
		return err
	}
	if last, unread := r.History(ctx, stack, 1); unread == nil && len(last) == 1 {
		refused.Last = fmt.Sprintf("the last apply of stack %s: %s", stack, report.LastApply(last[0], time.Now()))
	}
	return err
}

// wrapRefused makes a problem of an apply.RefusedError, with its kind and the next step.
func wrapRefused(err error) error {
	if errors.As(err, new(*apply.RefusedError)) {
		return &problem{errRefused, err, newPlanHint}
	}
	return err
}
