package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"muster/job"
	"muster/plan"
	"muster/report"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// runApplyFile applies a saved plan as it is.
func runApplyFile(cmd *cobra.Command, p *process, o applyOptions, file string, run *report.Run) error {
	if err := errors.Join(o.check(), noPlanFlags(cmd)); err != nil {
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
	if err := p.authenticated(t, saved.ACL); err != nil {
		return err
	}
	s, err := p.connect(cmd.Context(), t)
	if err != nil {
		return err
	}
	defer s.Close()
	store, err := zkstate.NewStore(s, p.storeConfig(saved.Home, saved.Plan.Stack, saved.ACL))
	if err != nil {
		return err
	}
	a := &applier{p: p, o: o, session: s, home: cmp.Or(saved.Home, zkstate.DefaultHome), store: store, plan: saved.Plan, firstLook: saved.Created, told: run}
	if err := a.admit(cmd.Context()); err != nil {
		return err
	}
	if !p.flags.quiet {
		if err := p.showSaved(saved, o.all); err != nil {
			return err
		}
	}
	a.check = a.stillHolds
	return a.run(cmd.Context())
}

// clockSkew is how far the clock of the machine that made a plan may be ahead of ours.
const clockSkew = 5 * time.Minute

// checkAge refuses a plan that is too old, and one that by its date was made in the future: that one would never be.
func (o applyOptions) checkAge(made time.Time) error {
	switch age := time.Since(made); {
	case age > o.maxAge:
		return refused("the plan is %s old, older than --max-age %s", job.Duration(age.Round(time.Second)), job.Duration(o.maxAge))
	case age < -clockSkew:
		return refused("the plan was made at %s, which is in the future: the clock here or there is wrong", made.Format(time.RFC3339))
	}
	return nil
}

// noPlanFlags refuses flags that would change what the saved plan says.
func noPlanFlags(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"var", "var-file", "only", "skip", "max-delete", "allow-empty"}, f.Name) {
			err = usagef("give it to muster plan", "--%s has no effect on a saved plan", f.Name)
		}
	})
	return err
}

// readPlan reads a saved plan, strictly.
func readPlan(file string) (plan.Saved, error) {
	data, err := readBounded(file, plan.MaxFile)
	if err != nil {
		return plan.Saved{}, err
	}
	saved, err := plan.Decode(data)
	if err != nil {
		return saved, &problem{errRefused, fmt.Errorf("%s: %w", file, err), planAnew}
	}
	return saved, nil
}

// planAnew is what to do about a saved plan that is of no use.
const planAnew = "muster plan --out FILE makes a new one"

// refused is a saved plan that is not applied, and of which nothing was written.
func refused(format string, args ...any) error {
	return &problem{errRefused, fmt.Errorf("saved plan refused: "+format+"; nothing was written", args...), planAnew}
}

// sameEnsemble refuses a plan that was made for another ensemble. One made before the ensemble had an id is good only
// while it has none.
func (a *applier) sameEnsemble(ctx context.Context) error {
	id, err := a.store.Ensemble(ctx)
	p := a.plan
	switch {
	case err != nil:
		return err
	case id == p.Ensemble:
		return nil
	case p.Ensemble == "":
		return refused("it was made before anything was applied to this ensemble, and that has happened since")
	}
	return refused("it was made for the ensemble %s, and this is %s", p.Ensemble, cmp.Or(id, "one to which nothing was applied yet"))
}

// stillHolds checks that the plan was not applied before and that no row has moved, and then marks it as applied.
// A signal in the meantime leaves the plan unspent.
func (a *applier) stillHolds(ctx, held context.Context) error {
	if err := a.admit(held); err != nil { // again: another apply may have held the lock meanwhile
		return err
	}
	moved, err := a.movedRows(held)
	if err != nil {
		return err
	}
	if len(moved) > 0 {
		return &problem{errRefused, fmt.Errorf("saved plan refused: %s moved since it was made; nothing was written\n  %s",
			text.Count(len(moved), "job"), strings.Join(moved, "\n  ")), planAnew}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.mark(held)
}

// admit refuses a plan that was applied before, wholly or in part, or that was made for another ensemble. It writes
// nothing.
func (a *applier) admit(ctx context.Context) error {
	_, spent, err := a.session.Exists(ctx, znode.Applied(a.home, a.plan.ID))
	if err != nil {
		return err
	}
	if spent {
		return a.mark(ctx) // refuses, and names who applied it
	}
	return a.sameEnsemble(ctx)
}

// mark records that this plan is being applied, or refuses because somebody did so before.
func (a *applier) mark(ctx context.Context) error {
	err := a.store.MarkApplied(ctx, a.plan.ID)
	if errors.Is(err, zkstate.ErrApplied) {
		return refused("%w", err)
	}
	return err
}

// movedRows checks every change against ZooKeeper and names those that no longer hold, in the order of the plan.
func (a *applier) movedRows(ctx context.Context) ([]string, error) {
	rows := changes(a.plan)
	moved := make([]string, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.o.parallel)
	for i, r := range rows {
		g.Go(func() error {
			err := a.store.Check(ctx, r)
			switch {
			case errors.Is(err, plan.ErrMoved):
				moved[i] = fmt.Sprintf("%s: %s", r.Address(), text.EscapeLines(err.Error()))
			case !errors.Is(err, plan.ErrAlreadyDone):
				return err
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(moved, func(s string) bool { return s == "" }), err
}
