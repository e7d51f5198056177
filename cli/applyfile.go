package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/apply"
	"muster/planfile"
	"muster/report"
	"muster/resource"
	"muster/zkstate"
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
	store, err := zkstate.NewStore(s, p.storeConfig(saved.Plan.Home, saved.Plan.Stack, saved.ACL))
	if err != nil {
		return err
	}
	if err := sameServers(saved, t); err != nil {
		return err
	}
	if err := apply.Admit(cmd.Context(), store, saved.Plan); err != nil {
		return refusal(err)
	}
	if !p.flags.quiet {
		if err := p.showSaved(saved, o.all); err != nil {
			return err
		}
	}
	return p.commit(cmd.Context(), store, saved.Plan, o, saved.Created, true, run)
}

// sameServers refuses a plan that was made before its ensemble had an id, unless it goes to the servers that it was made
// from: nothing else tells one empty ensemble from another.
func sameServers(saved planfile.Saved, t target) error {
	made, now := slices.Sorted(slices.Values(saved.Servers)), slices.Sorted(slices.Values(t.servers))
	if saved.Plan.Ensemble != "" || slices.Equal(made, now) {
		return nil
	}
	return refusal(&apply.RefusedError{Why: fmt.Sprintf(
		"it was made before anything was applied to %s, so it is for these servers only, and not for %s",
		strings.Join(saved.Servers, ","), strings.Join(t.servers, ","))})
}

// clockSkew is how far the clock of the machine that made a plan may be ahead of ours.
const clockSkew = 5 * time.Minute

// checkAge refuses a plan that is too old, and one that by its date was made in the future: that one would never be.
func (o applyOptions) checkAge(made time.Time) error {
	switch age := time.Since(made); {
	case age > o.maxAge:
		return refused("the plan is %s old, older than --max-age %s", resource.Duration(age.Round(time.Second)), resource.Duration(o.maxAge))
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
func readPlan(file string) (planfile.Saved, error) {
	data, err := readBounded(file, planfile.MaxFile)
	if err != nil {
		return planfile.Saved{}, err
	}
	saved, err := planfile.Decode(declarable(), data)
	if err != nil {
		return saved, &problem{errRefused, fmt.Errorf("%s: %w", file, err), planAnew}
	}
	return saved, nil
}

// planAnew is what to do about a saved plan that is of no use.
const planAnew = "muster plan --out FILE makes a new one"

// refused is a saved plan that is not applied, and of which nothing was written.
func refused(format string, args ...any) error {
	return refusal(&apply.RefusedError{Why: fmt.Sprintf(format, args...)})
}

// refusal gives its kind to an apply.RefusedError.
func refusal(err error) error {
	if errors.As(err, new(*apply.RefusedError)) {
		return &problem{errRefused, err, planAnew}
	}
	return err
}
