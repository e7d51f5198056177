package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"muster/apply"
	"muster/report"
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
	o.planFlags.addTo(cmd.Flags())
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

// shellArgument is dir, quoted for a shell, with a space before it. It is empty if dir is.
func shellArgument(dir string) string {
	if dir == "" {
		return ""
	}
	return " " + text.ShellWord(dir)
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
	refusal := o.guard(cfg, c.plan)
	if !p.flags.quiet || !o.yes || refusal != nil || attention(c.plan) != nil {
		if err := p.showPlan(c, o.all, nil, ""); err != nil {
			return err
		}
	}
	if refusal != nil {
		return refusal
	}
	if !o.yes && len(c.plan.Changes()) > 0 {
		if err := p.confirm(ctx, c.plan); err != nil {
			return err
		}
	}
	return p.commit(ctx, store, c.plan, o, c.started, false, run)
}

// storeConfig is what this apply writes into records. Without a declared ACL, but with credentials, only those who have
// the same credentials may read and write.
func (p *process) storeConfig(home, stack string, acl []string) zkstate.Config {
	if auth, _ := p.credentials(); len(acl) == 0 && len(auth) > 0 {
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
	c := p.storeConfig(home, stack, acl)
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
