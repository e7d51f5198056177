package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/apply"
	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/text"
	"muster/zkstate"
)

type applyOptions struct {
	planFlags
	reports               reportFlags
	yes, noWait, detailed bool
	lockTimeout, maxAge   time.Duration
	parallel              int
	actor                 string
	config                string // digest, for the history
}

func newApplyCmd(p *process) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply [PLANFILE | DIR | FILE]",
		Short: "Make the changes of a plan, after asking",
		Long: `Plans, shows the plan, asks, and makes every change as a whole or not at all,
and only if nothing that it depends on has changed since it was read. A plan
saved by "muster plan --out" is applied as it is, without asking: what was
approved is what runs.`,
		Example: `  muster apply
  muster apply --yes prod/
  muster plan --out plan.json && muster apply plan.json`,
		Args: argCount(0, 1, "one plan file, directory or *.hcl file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := p.newRun("apply", firstArg(args))
			run.Who, run.By = p.environ.who(o.actor), p.user()
			return p.withReports(cmd.Context(), o.reports, run, func() error {
				file, err := p.isPlanFile(firstArg(args))
				switch {
				case err != nil:
					return err
				case file:
					run.Dir = "" // the declarations may be anywhere
					return runApplyFile(cmd, p, o, p.path(args[0]), run)
				}
				return runApply(cmd.Context(), p, o, firstArg(args), run)
			})
		},
	}
	o.planFlags.addTo(cmd)
	o.reports.addTo(cmd)
	p.completePlan(cmd, &o.planFlags)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "leave out what may only be restarting")
	cmd.Flags().BoolVar(&o.detailed, "detailed-exitcode", false, "exit 2 if something was changed")
	cmd.Flags().DurationVar(&o.lockTimeout, "lock-timeout", 30*time.Second,
		"wait `DURATION` for another apply of the stack")
	cmd.Flags().DurationVar(&o.maxAge, "max-age", 24*time.Hour, "refuse a saved plan that is older than `DURATION`")
	cmd.Flags().StringVar(&o.actor, "actor", "",
		"`NAME` of who asks for it, for the history (MUSTER_ACTOR); default: whom the pipeline names, or user@host")
	cmd.Flags().IntVar(&o.parallel, "parallel", apply.DefaultParallel, "make `N` changes at a time")
	return cmd
}

// isPlanFile tells a saved plan from a configuration. An empty argument is the current directory.
func (p *process) isPlanFile(arg string) (bool, error) {
	if arg == "" {
		return false, nil
	}
	info, err := os.Stat(p.path(arg))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, &problem{nil, fmt.Errorf("%s: no such file or directory", arg),
			"name a saved plan (muster plan --out FILE makes one), a directory of *.hcl files, or one such file"}
	case err != nil || info.IsDir():
		return false, err
	}
	return !isConfigFile(arg), nil
}

func (o applyOptions) check() error {
	if err := o.planFlags.check(); err != nil {
		return err
	}
	switch {
	case o.maxAge > apply.MaxPlanAge:
		return usagef("muster apply --max-age 720h",
			"--max-age is at most 720h: that is how long it is known which plans were applied")
	case o.parallel < 1:
		return usagef("muster apply --parallel 64", "--parallel %d leaves nobody to make the changes", o.parallel)
	case o.lockTimeout < 0 || o.maxAge < 0:
		return usagef("muster apply --help", "a duration is not negative")
	}
	return nil
}

func runApply(ctx context.Context, p *process, o applyOptions, dir string, run *report.Run) error {
	if err := o.check(); err != nil {
		return err
	}
	if why := p.noPromptReason(); why != "" && !o.yes {
		flags := o.planFlags.repeated()
		return usagef("muster apply --yes"+flags+", or muster plan --out plan.json"+flags+" and apply what it saves",
			"%s, and --yes was not given", why)
	}
	cfg, err := p.load(dir, o.vars)
	if err != nil {
		return err
	}
	policies, err := p.policies(o.policy)
	if err != nil {
		return err
	}
	t := p.target(p.declaredTarget(cfg, dir))
	run.Stack, run.Servers = cfg.Stack, t.servers
	store, done, err := p.openStore(ctx, t, run, cfg.Home, cfg.Stack, cfg.ZooKeeper.ACL)
	if err != nil {
		return err
	}
	defer done()
	c, err := compare(ctx, cfg, t, store.Reader, o.filter)
	if err != nil {
		return err
	}
	run.Plan, run.Servers = &c.plan, c.saved.Servers
	c.verdict = p.judge(policies, c.plan, run)
	refused := o.guard(cfg, c)
	if !p.flags.quiet || !o.yes || refused != nil || attention(c.plan) != nil {
		if err := p.showPlan(c, o.all, nil, ""); err != nil {
			return err
		}
	}
	if err := errors.Join(p.printVerdict(c.verdict), refused); err != nil {
		return err
	}
	if !o.yes && len(c.plan.Changes()) > 0 {
		if err := p.confirm(ctx, c.plan); err != nil {
			return err
		}
		c.verdict = p.judge(policies, c.plan, run) // some time has gone by
		if err := refusal(c.verdict); err != nil {
			return errors.Join(p.printVerdict(c.verdict), err)
		}
	}
	o.config = cfg.Digest
	return p.commit(ctx, store, c.plan, o, c.started, false, run)
}

// storeConfig is what this apply writes into records. Without a declared ACL, but with credentials, only those who have
// the same credentials may read and write.
func (p *process) storeConfig(t target, home, stack string, acl []string) zkstate.Config {
	if proves, _ := p.authenticates(t); len(acl) == 0 && proves {
		acl = []string{"auth::cdrwa"}
	}
	return zkstate.Config{Home: home, Stack: stack, By: p.user(), At: time.Now(), ACL: acl, Kinds: p.kinds()}
}

// openStore connects for an apply, which says in the history who asked for it. The caller calls done at the end.
func (p *process) openStore(
	ctx context.Context, t target, run *report.Run, home, stack string, acl []string,
) (store *zkstate.Store, done func(), err error) {
	if err := p.checkACL(t, acl); err != nil {
		return nil, nil, err
	}
	s, err := p.connect(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	c := p.storeConfig(t, home, stack, acl)
	c.Who, c.Version = run.Who, version().Version
	if store, err = zkstate.NewStore(s, c); err != nil {
		s.Close()
	}
	return store, func() { s.Close() }, err
}

// user is user@host. People see it in records and while they wait for a lock.
func (p *process) user() string {
	name := cmp.Or(p.environ.value("USER"), p.environ.value("LOGNAME"))
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return cmp.Or(name, "unknown") + "@" + cmp.Or(host, "unknown")
}

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
	policies, err := p.policies(o.policy)
	if err != nil {
		return err
	}
	verdict := p.judge(policies, saved.Plan, run) // again: what is denied may depend on the time
	if err := errors.Join(p.printVerdict(verdict), refusal(verdict)); err != nil {
		return err
	}
	t := p.target(target{
		servers: saved.Servers, by: byPlan, timeout: time.Duration(saved.SessionTimeout), tls: saved.TLS, sasl: saved.SASL,
	})
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
	o.config = saved.ConfigDigest
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
	for _, name := range []string{"var-file", "var", "skip", "only", "max-delete", "allow-empty"} {
		if cmd.Flags().Changed(name) {
			return usagef("give it to muster plan", "--%s has no effect on a saved plan", name)
		}
	}
	return nil
}

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

const newPlanHint = "muster plan --out FILE makes a new one"

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

func wrapRefused(err error) error {
	if errors.As(err, new(*apply.RefusedError)) {
		return &problem{errRefused, err, newPlanHint}
	}
	return err
}

// commit applies a plan, just made or saved, and prints what happens. firstLook is when the plan was observed.
func (p *process) commit(ctx context.Context, store *zkstate.Store, pl plan.Plan, o applyOptions, firstLook time.Time,
	saved bool, run *report.Run,
) error {
	p.redisHosts = redisHosts(pl)
	shown := &progress{
		bar: p.newBar(), lines: report.NewProgress(p.out, pl, p.layout()), all: int64(len(pl.Changes())),
	}
	defer shown.clear()
	outcomes, err := apply.Run(ctx, store, pl, apply.Options{
		CommitOptions: apply.CommitOptions{
			Parallel: o.parallel, ObservedAt: firstLook, NoWait: o.noWait, Waiting: shown.waiting, Each: shown.outcome,
		},
		Saved: saved, Config: o.config, LockTimeout: o.lockTimeout,
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
	run.Outcomes, p.applied = outcomes, run
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

// confirm asks whether to make the changes of a plan, and counts them. The answer has to be "yes" or, if some of them
// delete a job or what was saved in one, their number. Anything else declines.
func (p *process) confirm(ctx context.Context, pl plan.Plan) error {
	changes := pl.Changes()
	want, all := "yes", text.Count(len(changes), "change")+" ("+report.ChangeCounts(pl)+")"
	if deletes := len(plan.Deletions(changes)); deletes > 0 {
		want = strconv.Itoa(deletes)
		some := plan.DeletionsText(changes)
		fmt.Fprintf(p.err, "\n%s would be deleted. To apply %s, type the number of deletes: ", some, all)
	} else {
		fmt.Fprintf(p.err, "\nTo apply %s, type yes: ", all)
	}
	return p.expect(ctx, want)
}

// refuseUnasked returns a problem if muster has to ask and cannot: nothing is done then. again is the command to type.
func (p *process) refuseUnasked(yes bool, again string) error {
	if why := p.noPromptReason(); why != "" && !yes {
		return usagef(again+" --yes", "%s, and --yes was not given", why)
	}
	return nil
}

// confirmLoss says what would be done to name, as a sentence, and asks.
func (p *process) confirmLoss(ctx context.Context, name, what string) error {
	fmt.Fprintf(p.err, "%s: %s To do so, type yes: ", text.Escape(name), text.Escape(what))
	return p.expect(ctx, "yes")
}

func (p *process) expect(ctx context.Context, want string) error {
	line, err := interruptible(ctx, func() (string, error) { return bufio.NewReader(p.in).ReadString('\n') })
	if err != nil { // no line end was typed
		fmt.Fprintln(p.err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.TrimSpace(line); answer != want {
		err := fmt.Errorf("declined: %q is not %q; nothing was changed", answer, want)
		return &problem{errDeclined, err, "the same command asks again; --yes does not ask"}
	}
	return nil
}
