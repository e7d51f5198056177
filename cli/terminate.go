package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/resource"
	"muster/text"
	"muster/view"
	"muster/zkstate"
)

type terminateOptions struct {
	searchFlags
	stack   string
	timeout time.Duration
	yes     bool
}

func newTerminateCmd(p *process) *cobra.Command {
	var o terminateOptions
	cmd := &cobra.Command{
		Use:   "terminate JOB | GROUP | QUEUE",
		Short: "Stop the workers of a job, and delete it; or stop a group or queue",
		Long: `Asks the workers of a job to stop their commands and to leave, waits until none
is live, and deletes the job. A group or a queue is not deleted: its processes
leave, what they saved and unfinished batches stay, and nobody can join before
the next "muster apply". It never deletes under live workers: when the time is
over it takes the request back and names them.`,
		Example: `  muster terminate nightly
  muster terminate nightly --root /jobs/prod --stack etl-prod --yes`,
		Args: argCount(1, 1, "the name, address or path of one job, group or queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(p, args[0]); err != nil {
				return err
			}
			return p.look(cmd.Context(), o.searchFlags, args[0], o.run)
		},
	}
	cmd.Flags().StringVar(&o.stack, "stack", "",
		"`NAME` of the stack that owns it; default that of the configuration here")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "wait `DURATION` for all of them to leave")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	p.addSearch(cmd, &o.searchFlags, p.completeJob(&o.searchFlags))
	return cmd
}

func (o terminateOptions) check(p *process, name string) error {
	if o.timeout <= 0 {
		return usagef(o.commandLine(name)+" --timeout 1m", "--timeout %s gives nobody time to leave", o.timeout)
	}
	return p.refuseUnasked(o.yes, o.commandLine(name))
}

func (o terminateOptions) run(ctx context.Context, p *process, scope *searchScope, name string) error {
	at, err := scope.find(ctx, name, "")
	if err != nil {
		return err
	}
	if err := p.resolveStack(scope, &o, name); err != nil {
		return err
	}
	store, err := zkstate.NewStore(scope.session, p.storeConfig(scope.target, scope.home, o.stack, nil))
	if err != nil {
		return err
	}
	found, err := store.Find(ctx, at)
	switch {
	case err != nil:
		return err
	case found == nil:
		return terminateError(plan.ErrAlreadyDone, at, o.stack)
	case found.Classic:
		err := fmt.Errorf("%s: classic workers take no requests", at)
		return &problem{err: err, next: "end its workers where they run, then: muster apply"}
	}
	if !o.yes {
		if err := p.confirmTermination(ctx, found, at); err != nil {
			return err
		}
	}
	waiting := func(live []string) {
		fmt.Fprintf(p.err, "waiting up to %s for %s to leave\n", o.timeout, text.Count(len(live), memberOf(found)))
	}
	if err := store.Terminate(ctx, at, o.timeout, waiting); err != nil {
		return terminateError(err, at, o.stack)
	}
	switch {
	case p.flags.quiet:
	case keptInPlace(found):
		fmt.Fprintf(p.out, "%s is stopped: no member is live, and none can join before the next muster apply.\n", at)
	default:
		fmt.Fprintf(p.out, "%s is deleted; nobody works for it. If it is still declared, the next apply makes it again.\n",
			at)
	}
	return nil
}

func memberOf(o *resource.Observed) string {
	if o.Record == nil {
		return "member"
	}
	return o.Record.Declaration.Kind().Member
}

// keptInPlace reports whether terminate stops o without deleting it.
func keptInPlace(o *resource.Observed) bool {
	return o.Record != nil && o.Record.Declaration.Policy().InPlace
}

// commandLine is the command that asks for the same, as a next step: what every command repeats is added to it.
func (o terminateOptions) commandLine(name string) string {
	line := "muster terminate " + text.ShellWord(name)
	if o.stack != "" {
		line += " --stack " + text.ShellWord(o.stack)
	}
	return line
}

// resolveStack sets the stack to that of the configuration, unless --stack is given.
func (p *process) resolveStack(scope *searchScope, o *terminateOptions, name string) error {
	if o.stack != "" {
		return nil
	}
	if scope.cfg == nil && p.hasConfiguration() {
		cfg, err := p.load(o.config, o.vars)
		if err != nil {
			return err
		}
		scope.cfg, scope.home = cfg, cfg.Home
	}
	if scope.cfg == nil {
		return usagef(o.commandLine(name)+" --stack NAME", "there is no configuration here that says whose it is")
	}
	o.stack = scope.cfg.Stack
	return nil
}

func (p *process) confirmTermination(ctx context.Context, found *resource.Observed, at string) error {
	kind := view.KindOf(found).Name
	then := fmt.Sprintf("the %s deleted", kind)
	if keptInPlace(found) {
		then = fmt.Sprintf("the %s closed until the next apply", kind)
	}
	what := fmt.Sprintf("No %s is live; %s.", memberOf(found), strings.Replace(then, kind, kind+" would be", 1))
	if found.Live > 0 {
		what = fmt.Sprintf("%d live would be asked to stop, and %s.", found.Live, then)
	}
	return p.confirmLoss(ctx, at, what)
}

func terminateError(err error, at, stack string) error {
	if errors.Is(err, plan.ErrAlreadyDone) {
		return &problem{errAbsent, fmt.Errorf("there is no job, group or queue at %s", at),
			"muster status shows what is there"}
	}
	return withRemedy(err, []remedy{
		{errIncomplete, "muster status {at} shows them; it is open again, but those that were asked " +
			"end when their grace is over", errorSet{zkstate.ErrStillLive}},
		{errDeclined, "this is stack {stack}; to terminate it all the same, name its owner: --stack NAME",
			errorSet{zkstate.ErrOtherStack}},
		{nil, "muster explain {word} lists what is there", errorSet{zkstate.ErrNotTerminable}},
		{errDeclined, "apply it without protect first", errorSet{zkstate.ErrProtected}},
		{errIncomplete, "muster status {at} shows what is left", errorSet{plan.ErrMoved, plan.ErrUnknown}},
	}, "{at}", at, "{word}", text.ShellWord(at), "{stack}", cmp.Or(stack, "(none)"))
}
