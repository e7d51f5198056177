package cli

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"muster/docs"
	"muster/exitcode"
	"muster/member"
	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/view"
	"muster/zkstate"
)

type explainOptions struct {
	searchFlags
	json bool
	nth  int // run of a cron, from the newest, which is 1; 0: none
}

func newExplainCmd(p *process) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain ADDRESS | PATH | GROUP/DUTY | WORD | CODE",
		Short: "Explain a job, group, queue or duty; a word or a code",
		Long: `Explains one job, group or queue, by the address of its declaration or by its
znode path: why a plan says what it says, what was observed, and where each
declared value came from. Of a duty of a group: why this member has it, or why
nobody has; and of a cron all runs that are kept, with the end of the output of
the last one that failed. Or explains a diagnostic by its code, what gives it
and how to mend it; a word that muster prints as a state, or an exit code, and
what to do then; a word of muster, such as roll; or what another tool calls so.
None of these asks a server. A job of such a name is explained by its address
or path.`,
		Example: `  muster explain job.nightly
  muster explain 'job.ingest["us"]'
  muster explain /jobs/prod/tmp-backfill
  muster explain shop/nightly-report
  muster explain shop/nightly-report --run 1
  muster explain M1203
  muster explain stale
  muster explain generation
  muster explain 71`,
		Args: argCount(1, 1, "one address, path, duty, word or code"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.nth < 0 || cmd.Flags().Changed("run") && o.nth == 0 {
				return usagef("--run 1 is the last run of a cron, 2 the one before", "--run %d is no run", o.nth)
			}
			page, isWord := explainWord(args[0])
			switch {
			case o.nth > 0 || !isWord:
			case o.json:
				return p.printJSON(explainedWord{"1.0", args[0], page})
			default:
				_, err := fmt.Fprint(p.out, page)
				return err
			}
			if isCode(args[0]) {
				return usagef("docs/diagnostics.md lists them, and muster validate names those of a configuration",
					"no diagnostic has the code %s", args[0])
			}
			o.whole = true
			return p.look(cmd.Context(), o.searchFlags, args[0], o.run)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	cmd.Flags().IntVar(&o.nth, "run", 0, "of a cron: only run `N`, with all of its output that is kept; 1 is the last")
	p.addSearch(cmd, &o.searchFlags, p.completeJobOrCode(&o.searchFlags))
	return cmd
}

// isCode reports whether an argument looks like the code of a diagnostic.
func isCode(arg string) bool {
	return len(arg) == len("M1203") && arg[0] == 'M' && strings.Trim(arg[1:], "0123456789") == ""
}

func (o explainOptions) run(ctx context.Context, p *process, scope *searchScope, name string) error {
	isDuty, err := scope.namesDuty(ctx, name)
	switch {
	case err != nil:
		return err
	case isDuty:
		return o.duty(ctx, p, scope, name)
	case o.nth > 0:
		return usagef("muster status "+text.ShellWord(name), "--run is for a cron, and %s is no duty of a group", name)
	}
	at, err := scope.find(ctx, name, "")
	if err != nil {
		return err
	}
	r := scope.reader()
	have, err := r.Read(ctx, []string{path.Dir(at)}, at)
	if err != nil {
		return err
	}
	if found, ok := have.Found[at]; ok {
		if err := r.FillMembers(ctx, at, &found); err != nil {
			return err
		}
		have.Found[at] = found
	}
	want, stack := plan.Want{Stack: "(no configuration here)"}, ""
	var origins map[string]map[string]string
	if scope.cfg != nil {
		want, stack, origins = wantOf(scope.cfg), scope.cfg.Stack, scope.cfg.Origins
	}
	for _, row := range plan.Diff(want, have).Rows {
		if row.Path == at {
			e := report.Explanation{Origins: origins[row.Address()]}
			return p.explainRow(ctx, r, row, stack, e, o.json)
		}
	}
	err = fmt.Errorf("there is no job at %s, and none is declared", at)
	return scope.absent(ctx, err, "", at, "muster status shows what is there", nil)
}

// explainRow reads what an explanation of a row shows besides the row, and prints it.
func (p *process) explainRow(
	ctx context.Context, r *zkstate.Reader, row plan.Row, stack string, e report.Explanation, asJSON bool,
) error {
	err := r.FillSaved(ctx, row)
	o := row.Old
	class := o.Class()
	if err == nil && (class == resource.Unreadable || class == resource.Damaged) {
		e.Parts, e.Repair, err = r.Parts(ctx, planfile.KindOf(row, declarable()), row.Path, o)
	}
	if err == nil && o != nil && o.Record != nil && class != resource.Unreadable {
		e.Resource = view.Resource{Path: row.Path, Observed: *o}
		err = r.FillDetail(ctx, &e.Resource, time.Now())
	}
	if err != nil {
		return err
	}
	opts := p.layout()
	opts.Now = time.Now()
	if asJSON {
		return report.ExplainJSON(p.out, row, e)
	}
	return report.Explain(p.out, row, stack, e, opts)
}

func (o explainOptions) duty(ctx context.Context, p *process, scope *searchScope, name string) error {
	found, err := scope.findDuty(ctx, name)
	if err != nil {
		return err
	}
	now, err := scope.dutyNow(ctx, found)
	if err != nil {
		return err
	}
	var origins map[string]string
	if scope.cfg != nil {
		origins = scope.cfg.Origins[found.group.Record.Declaration.ID().Address]
	}
	duty := []view.Duty{now.duty}
	if err := member.FillRuns(ctx, scope.session, found.group.Record, duty, member.AllRuns); err != nil {
		return err
	}
	switch runs := duty[0].Runs; {
	case o.nth == 0:
	case found.duty.Type != group.Cron:
		return usagef("muster explain "+text.ShellWord(name), "%s is a %s: only a cron has runs", name, found.duty.Type)
	case o.nth > len(runs):
		err := fmt.Errorf("%s has no run %d: %s", found.name(), o.nth, text.Plural(len(runs), "run is kept", "runs are kept"))
		return &problem{errAbsent, err, "muster explain " + text.ShellWord(found.name())}
	default:
		duty[0].Runs = runs[o.nth-1 : o.nth]
	}
	if o.json {
		return report.ExplainDutyJSON(p.out, found.path, found.group, *now.Group, duty[0])
	}
	opts := p.layout()
	opts.Now = time.Now()
	if o.nth > 0 {
		return report.ExplainRun(p.out, found.name(), duty[0].Runs[0], opts)
	}
	return report.ExplainDuty(p.out, found.path, found.group, *now.Group, duty[0], origins, opts)
}

// explainedWord is what "explain --json" prints of a state, the code of a diagnostic, or an exit code.
type explainedWord struct {
	FormatVersion string `json:"format_version"`
	Word          string `json:"word"`
	Text          string `json:"text"` // markdown
}

// explainWord explains what is no job: the code of a diagnostic, an exit code, a state, a word of the glossary or of
// another tool. ok is false if arg is none of them. A job of such a name is explained by its address or path.
func explainWord(arg string) (page string, ok bool) {
	if page, err := docs.Diagnostics.ReadFile("diagnostics/" + arg + ".md"); err == nil {
		return string(page), true
	}
	if code, err := strconv.Atoi(arg); err == nil && code >= 0 && code <= 255 {
		return explainExit(code), true
	}
	for _, of := range []string{docs.States, docs.Glossary} {
		if page, ok := docs.Sections(of)[arg]; ok {
			return page, true
		}
	}
	next, ok := docs.Words[arg]
	return fmt.Sprintf("# %s\n\nA word of other tools. In muster:\n\n    %s\n\n"+
		"A job, group or queue of this name is explained by its path.\n", arg, next), ok
}

func explainExit(code int) string {
	row, ok := docs.ExitCodeOf(code)
	if !ok {
		return fmt.Sprintf("# Exit code %d\n\nIt is none of muster's: it is that of the command that a worker, a member,\n"+
			"an executor or a watcher ran, or of a script.\n", code)
	}
	name := exitcode.Name(code)
	if n := code - exitcode.Signal; row.Codes[0] == exitcode.Signal && n > 0 {
		name = fmt.Sprintf("%s: %d, %s", exitcode.Name(exitcode.Signal), n, unix.SignalName(syscall.Signal(n)))
	}
	page := fmt.Sprintf("# Exit code %d: %s\n\n%s\n", code, name, wordwrap.WrapString(row.Meaning+".", helpWidth))
	if row.Remedy != "" {
		page += "\n## What to do\n\n" + wordwrap.WrapString(row.Remedy+".", helpWidth) + "\n"
	}
	return page + "\ndocs/exit-codes.md says which code comes first when two hold.\n"
}

// wordsToExplain lists the states, the words of the glossary, and the exit codes of muster, for completion.
func wordsToExplain() []string {
	all := slices.Collect(maps.Keys(docs.Sections(docs.States + docs.Glossary)))
	for _, row := range docs.ExitCodes() {
		all = append(all, text.Each(row.Codes, strconv.Itoa)...)
	}
	return all
}
