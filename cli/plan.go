package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
)

type planOptions struct {
	planFlags
	reports     reportFlags
	out, format string
	detailed    bool
}

func newPlanCmd(p *process) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [DIR | FILE]",
		Short: "Show how ZooKeeper differs from the declarations",
		Long: `Compares the jobs, groups and queues that the *.hcl files of a directory
declare, or one file alone, with what is in ZooKeeper, and shows what "muster
apply" would do. It changes nothing.`,
		Example: `  muster plan
  muster plan --out plan.json prod/     once approved: muster apply plan.json
  muster plan --only 'job.ingest*'
  muster plan examples/one-job.hcl      one file is a configuration too`,
		Args: argCount(0, 1, "one directory or file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.checkOutFile(o); err != nil { // a report could overwrite the plan file
				return err
			}
			run := p.newRun("plan", firstArg(args))
			return p.withReports(cmd.Context(), o.reports, run, func() error {
				return runPlan(cmd.Context(), p, o, firstArg(args), run)
			})
		},
	}
	o.planFlags.addTo(cmd.Flags())
	o.reports.addTo(cmd)
	cmd.Flags().StringVar(&o.out, "out", "", "save the plan in `FILE`, for apply")
	choose(cmd, cmd.Flags(), &o.format, "format", "print as `KIND` human or json", "human", "json")
	p.completePlan(cmd, &o.planFlags)
	cmd.ValidArgsFunction = completeConfig
	cmd.Flags().BoolVar(&o.detailed, "detailed-exitcode", false,
		"exit 2 if there is something to change, 3 if something needs attention")
	return cmd
}

func runPlan(ctx context.Context, p *process, o planOptions, dir string, run *report.Run) error {
	if o.format == "json" && o.reports.toStdout() {
		return usagef("give the report a file", "--format json and a report cannot both go to standard output")
	}
	if err := o.planFlags.check(); err != nil {
		return err
	}
	cfg, err := p.load(dir, o.vars)
	if err != nil {
		return err
	}
	t := p.target(p.declaredTarget(cfg, dir))
	run.Stack, run.Servers = cfg.Stack, t.servers
	if err := p.checkACL(t, cfg.ZooKeeper.ACL); err != nil { // somebody else may apply
		fmt.Fprintf(p.err, "muster: warning: apply will fail: %s\n", err)
		p.printNext(nextStep(err))
	}
	s, err := p.connect(ctx, t)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := compare(ctx, cfg, t, zkstate.NewReader(s, cfg.Home, kinds()...), o.filter)
	if err != nil {
		return err
	}
	run.Plan, run.Saved, run.Servers = &c.plan, &c.saved, c.saved.Servers
	if err := p.showAndSave(cfg, c, o); err != nil || !o.detailed {
		return err
	}
	return differences(c.plan)
}

// showAndSave saves a plan and shows it. The user sees the plan even if a guard refuses it or it cannot be written.
func (p *process) showAndSave(cfg *spec.Config, c comparison, o planOptions) error {
	if o.format == "json" {
		return errors.Join(p.printSaved(c.saved), p.save(cfg, c, o))
	}
	unsaved := p.save(cfg, c, o)
	if p.flags.quiet && differences(c.plan) == nil {
		return unsaved
	}
	notes, next := p.afterPlan(o.guard(cfg, c.plan), unsaved, c, o)
	return errors.Join(unsaved, p.showPlan(c, o.all, notes, next))
}

// checkOutFile refuses a plan file that would replace configuration, or that a report would replace.
func (p *process) checkOutFile(o planOptions) error {
	if isConfigFile(o.out) {
		return usagef("muster plan --out plan.json",
			"--out %s is the name of configuration, which a saved plan is not", o.out)
	}
	if o.out == "" {
		return nil
	}
	if err := checkOutput(p.path(o.out)); err != nil {
		return err
	}
	for _, t := range o.reports.targets {
		if t.path != "-" && sameFile(p.path(o.out), p.path(t.path)) {
			return usagef("give one of them another name",
				"--out %s and --report %s=%s are one file", o.out, t.kind, t.path)
		}
	}
	return nil
}

// afterPlan returns notes for the end of a plan and how to apply it. A guard may refuse that, and it may not be saved.
func (p *process) afterPlan(refused, unsaved error, c comparison, o planOptions) (notes []string, next string) {
	switch {
	case unsaved != nil: // it is printed as an error
	case refused != nil:
		notes = append(notes, fmt.Sprintf("A guard refuses this plan: %s (%s).", refused, nextStep(refused)))
	case o.out != "":
		return append(notes, "Saved. To make exactly these changes, apply the file."), p.applyFile(o.out, c.saved.Servers)
	case len(c.plan.Changes()) > 0:
		next = p.paste("muster apply" + o.planFlags.repeated())
	}
	return notes, next
}

// applyFile is the command that applies a saved plan. It names these servers of the plan if the credentials do not go
// there otherwise.
func (p *process) applyFile(name string, servers []string) string {
	words := []string{"muster", "apply"}
	if p.flags.dir != "" {
		words = append(words, "-C", p.flags.dir)
	}
	auth, err := p.credentials()
	if err == nil && len(auth) > 0 && p.environ.value("MUSTER_SERVERS") == "" &&
		p.checkHosts(target{servers: servers, by: byPlan}) != nil {
		words = append(words, "--servers", strings.Join(servers, ","))
	}
	for i, word := range words {
		words[i] = text.ShellWord(word)
	}
	return strings.Join(append(words, text.ShellWord(name)), " ")
}

// save writes the plan file of --out, unless a guard refuses the plan.
func (p *process) save(cfg *spec.Config, c comparison, o planOptions) error {
	if o.out == "" {
		return nil
	}
	if err := o.guard(cfg, c.plan); err != nil {
		return err
	}
	file, err := planfile.Encode(declarable(), c.saved)
	if err != nil {
		return err
	}
	return writeOutput(p.path(o.out), file)
}

// showPlan prints a new plan, with notes and the next step at its end.
func (p *process) showPlan(c comparison, all bool, notes []string, next string) error {
	opts := p.layout()
	opts.Notes, opts.Next = notes, next
	opts.All, opts.Servers, opts.Took = all, c.saved.Servers, c.took
	return report.Plan(p.out, c.plan, opts)
}

// printSaved prints a plan as JSON, as a plan file has it.
func (p *process) printSaved(s planfile.Saved) error {
	file, err := planfile.Encode(declarable(), s)
	if err != nil {
		return err
	}
	_, err = p.out.Write(file)
	return err
}

// differences is the finding of a plan: changes come before what needs attention.
func differences(pl plan.Plan) error {
	if len(pl.Changes()) > 0 {
		return foundDifferences
	}
	return attention(pl)
}

// attention is the finding of a plan or an apply that a person has to look at: something declared is blocked, or
// something could not be read.
func attention(pl plan.Plan) error {
	if len(pl.Unlisted) > 0 || pl.Unindexed != "" {
		return foundAttention
	}
	for _, r := range pl.Rows {
		if r.New != nil && r.Action() == plan.Blocked || r.Old.Class() == resource.Unreadable {
			return foundAttention
		}
	}
	return nil
}
