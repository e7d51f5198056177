package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/apply"
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
	o.planFlags.addTo(cmd)
	o.reports.addTo(cmd)
	cmd.Flags().StringVar(&o.out, "out", "", "save the plan in `FILE`, for apply")
	choose(cmd, cmd.Flags(), &o.format, "format", "print as `KIND` human or json", "human", "json")
	p.completePlan(cmd, &o.planFlags)
	cmd.ValidArgsFunction = completeConfig
	cmd.Flags().BoolVar(&o.detailed, "detailed-exitcode", false,
		"exit 2 if there is something to change, 3 if something needs attention, 7 if a guard refuses the plan")
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
	policies, err := p.policies(o.policy)
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
	c.verdict = p.judge(policies, c.plan, run)
	if err := p.showAndSave(cfg, c, o); err != nil || !o.detailed {
		return err
	}
	return differences(c.plan)
}

// showAndSave saves a plan and shows it. The user sees the plan even if a guard refuses it or it cannot be written.
func (p *process) showAndSave(cfg *spec.Config, c comparison, o planOptions) error {
	if o.format == "json" {
		return errors.Join(p.printSaved(c.saved), p.printVerdict(c.verdict), p.save(cfg, c, o))
	}
	unsaved := p.save(cfg, c, o)
	if p.flags.quiet && differences(c.plan) == nil && len(c.verdict.Diagnostics) == 0 {
		return unsaved
	}
	notes, next := p.afterPlan(o.guard(cfg, c), unsaved, c, o)
	return errors.Join(unsaved, p.showPlan(c, o.all, notes, next), p.printVerdict(c.verdict))
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
		who := "A guard refuses"
		if refusal(c.verdict) != nil {
			who = "Policies refuse"
		}
		notes = append(notes, fmt.Sprintf("%s this plan: %s (%s).", who, refused, nextStep(refused)))
	case o.out != "":
		return append(notes, "Saved. To make exactly these changes, apply the file."),
			p.applyFile(o.out, c.saved.Servers, given(o.fs, "policy"))
	case len(c.plan.Changes()) > 0:
		next = p.paste("muster apply" + o.planFlags.repeated())
	}
	return notes, next
}

// applyFile is the command that applies a saved plan. It names these servers of the plan if the credentials do not go
// there otherwise.
func (p *process) applyFile(name string, servers, policies []string) string {
	words := []string{"muster", "apply"}
	if p.flags.dir != "" {
		words = append(words, "-C", p.flags.dir)
	}
	auth, err := p.credentials()
	if err == nil && (len(auth) > 0 || p.envSASL("mechanism") != "") && p.environ.value("MUSTER_SERVERS") == "" &&
		p.checkHosts(target{servers: servers, by: byPlan}) != nil {
		words = append(words, "--servers", strings.Join(servers, ","))
	}
	return strings.Join(text.Each(append(append(words, policies...), name), text.ShellWord), " ")
}

// save writes the plan file of --out, unless a guard or a policy refuses the plan. The refusal is also for who asks for
// the code.
func (p *process) save(cfg *spec.Config, c comparison, o planOptions) error {
	if o.out == "" && !o.detailed {
		return nil
	}
	if err := o.guard(cfg, c); err != nil || o.out == "" {
		return err
	}
	file, err := planfile.Encode(declarable(), c.saved)
	if err != nil {
		return err
	}
	return writeOutput(p.path(o.out), file)
}

func (p *process) showPlan(c comparison, all bool, notes []string, next string) error {
	opts := p.layout()
	opts.Notes, opts.Next = append(notes, c.held...), next
	opts.All, opts.Servers, opts.Took = all, c.saved.Servers, c.took
	return report.Plan(p.out, c.plan, opts)
}

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
	needsIt := func(r plan.Row) bool {
		return r.New != nil && r.Action() == plan.Blocked || r.Old.Class() == resource.Unreadable
	}
	if len(pl.Unlisted) > 0 || pl.Unindexed != "" || slices.ContainsFunc(pl.Rows, needsIt) {
		return foundAttention
	}
	return nil
}

const defaultMaxDelete = 10

// planFlags are those of every command that makes a plan.
type planFlags struct {
	vars       varFlags
	filter     filter
	policy     policyFlags
	maxDelete  int
	allowEmpty bool
	all        bool
	fs         *pflag.FlagSet // that these are in
}

func (f *planFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.fs = fs
	f.vars.addTo(fs)
	f.policy.addTo(cmd)
	fs.StringArrayVar(&f.filter.only, "only", nil, "plan only what fits `GLOB`; may be repeated")
	fs.StringArrayVar(&f.filter.skip, "skip", nil, "leave out what fits `GLOB`; may be repeated")
	fs.IntVar(&f.maxDelete, "max-delete", defaultMaxDelete, "refuse to delete more than `N` jobs, groups and queues")
	fs.BoolVar(&f.allowEmpty, "allow-empty", false, "allow a configuration that declares nothing")
	fs.BoolVar(&f.all, "all", false, "list what is unchanged and unmanaged too")
}

// repeated is the flags that decide which changes a plan has, as one types them, each after a space.
func (f planFlags) repeated() string {
	words := text.Each(given(f.fs, "only", "skip", "max-delete", "allow-empty", "policy"), text.ShellWord)
	return strings.Join(append([]string{""}, words...), " ")
}

func (f planFlags) check() error {
	if f.maxDelete < 0 {
		return usagef("muster plan --max-delete 10", "--max-delete %d is negative", f.maxDelete)
	}
	return nil
}

// comparison is a plan, with when and how it was made.
type comparison struct {
	plan    plan.Plan
	saved   planfile.Saved // the plan as a file keeps it
	started time.Time      // before anything was read
	took    time.Duration
	held    []string     // what muster reconcile leaves as it is, a line each
	verdict spec.Verdict // of the policies
}

// compare reads ZooKeeper and makes a plan, with a new id, of how it differs from the configuration.
func compare(ctx context.Context, cfg *spec.Config, t target, r *zkstate.Reader, f filter) (comparison, error) {
	c := comparison{started: time.Now()}
	var err error
	if c.plan, err = apply.Compare(ctx, r, wantOf(cfg), cfg.Searched()); err != nil {
		return c, err
	}
	c.plan.ID = zkstate.NewID()
	if c.plan, err = f.apply(c.plan); err != nil {
		return c, err
	}
	if c.held, err = r.Held(ctx, cfg.Stack, c.started); noAnswer(err) {
		return c, err
	} else if err != nil {
		c.held = append(c.held, "what muster reconcile leaves as it is cannot be read: "+err.Error())
	}
	c.took = time.Since(c.started)
	c.saved = planfile.Saved{
		Created: c.started.UTC().Truncate(time.Second), MusterVersion: version().Version, Servers: t.servers,
		ACL: cfg.ZooKeeper.ACL, SessionTimeout: cfg.ZooKeeper.SessionTimeout, ConfigDigest: cfg.Digest, TLS: t.tls,
		SASL: t.sasl, Plan: c.plan,
	}
	return c, nil
}

func wantOf(cfg *spec.Config) plan.Want {
	return plan.Want{Stack: cfg.Stack, Home: cfg.Home, TakeOver: cfg.TakeOver, Declared: cfg.Declared}
}

// guard refuses a plan that looks like an accident, because its configuration declares nothing, or it deletes too much;
// and one that policies deny.
func (f planFlags) guard(cfg *spec.Config, c comparison) error {
	if err := refusal(c.verdict); err != nil {
		return err
	}
	if len(cfg.Declared) == 0 && !f.allowEmpty {
		err := errors.New("the configuration declares nothing")
		return &problem{errDeclined, err, "give --allow-empty if that is meant"}
	}
	if rows := c.plan.Rows; len(plan.Deletions(rows)) > f.maxDelete {
		err := fmt.Errorf("the plan deletes %s, more than --max-delete %d", plan.DeletionsText(rows), f.maxDelete)
		return &problem{errDeclined, err, fmt.Sprintf("give --max-delete %d if that is meant", len(plan.Deletions(rows)))}
	}
	return nil
}

// globs are the patterns of --only, --skip and status: * matches any characters, ? matches one. Brackets match
// themselves, because an address holds brackets.
type globs []*regexp.Regexp

func newGlobs(patterns []string) globs {
	var gs globs
	for _, p := range patterns {
		p = regexp.QuoteMeta(strings.ToValidUTF8(p, "\uFFFD")) // no name has such bytes
		p = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(p)
		gs = append(gs, regexp.MustCompile(`^(?s:`+p+`)$`))
	}
	return gs
}

func (gs globs) match(names ...string) bool {
	return slices.ContainsFunc(gs, func(g *regexp.Regexp) bool { return slices.ContainsFunc(names, g.MatchString) })
}

type filter struct{ only, skip []string }

// apply removes the rows that were not asked for, and marks the plan as partial if there were any. A pattern may match
// an address, a path or a name. A pattern that matches nothing is probably mistyped, and refused.
func (f filter) apply(p plan.Plan) (plan.Plan, error) {
	for _, pattern := range slices.Concat(f.only, f.skip) {
		g := newGlobs([]string{pattern})
		matches := func(r plan.Row) bool { return g.match(r.Address(), r.Path, r.Name()) }
		if !slices.ContainsFunc(p.Rows, matches) {
			return p, usagef("muster plan --all", "%q fits nothing in the plan", pattern)
		}
	}
	only, skip := newGlobs(f.only), newGlobs(f.skip)
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r plan.Row) bool {
		names := []string{r.Address(), r.Path, r.Name()}
		return len(only) > 0 && !only.match(names...) || skip.match(names...)
	})
	p.Partial = p.Partial || len(rows) < len(p.Rows)
	p.Rows = rows
	return p, nil
}

type showOptions struct{ json, all bool }

func newShowCmd(p *process) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show PLANFILE",
		Short: "Show a saved plan",
		Long:  `Shows a plan that "muster plan --out" saved. It needs no network.`,
		Args:  argCount(1, 1, "one plan file"),
		RunE:  func(_ *cobra.Command, args []string) error { return runShow(p, o, args[0]) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	cmd.Flags().BoolVar(&o.all, "all", false, "list what is unchanged and unmanaged too")
	return cmd
}

func runShow(p *process, o showOptions, file string) error {
	saved, err := readPlan(p.path(file))
	if err != nil {
		return err
	}
	if o.json {
		return p.printSaved(saved)
	}
	return p.showSaved(saved, o.all)
}

func (p *process) showSaved(s planfile.Saved, all bool) error {
	created, version := s.Created.Format(time.RFC3339), text.Escape(s.MusterVersion)
	fmt.Fprintf(p.out, "Saved %s by muster %s as plan %s.\n", created, version, s.Plan.ID)
	opts := p.layout()
	opts.All, opts.Servers = all, s.Servers
	return report.Plan(p.out, s.Plan, opts)
}
