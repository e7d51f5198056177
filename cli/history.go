package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/apply/history"
	"muster/report"
	"muster/resource"
	"muster/spec"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

type historyOptions struct {
	searchFlags // config and vars
	stacks      []string
	all         bool
	json        bool
	n           int
	entry       string // empty: all of them
}

func newHistoryCmd(p *process) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history [ENTRY]",
		Short: "Show who applied what, and when",
		Long: `Shows the last applies of a stack, the newest first: who asked for each, what
became of it, the names of what was changed, at most 100, and the run of the
pipeline. ENTRY is the number of one of them, or the id of its plan: it is shown
with the fields that it changed. The last 200 that changed something are kept.
An apply that was killed, or lost its connection for good, is unfinished; it is
settled once a later one finds nothing left to do. The stack is that of the
configuration; if there is none, all stacks are shown.`,
		Example: `  muster history
  muster history 12
  muster history --stack etl -n 3
  muster history --all --json | jq '.applies[] | select(.state == "unfinished")'`,
		Args: argCount(0, 1, "one entry"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.entry = firstArg(args)
			return runHistory(cmd.Context(), p, o)
		},
	}
	o.addConfigTo(cmd.Flags())
	cmd.Flags().StringArrayVar(&o.stacks, "stack", nil, "of this `STACK`; may be repeated")
	cmd.Flags().BoolVar(&o.all, "all", false, "of all stacks")
	cmd.Flags().IntVarP(&o.n, "number", "n", 20, "the last `N` of each stack; 0: all that are kept")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	p.completeSearch(cmd, &o.searchFlags)
	return cmd
}

func runHistory(ctx context.Context, p *process, o historyOptions) error {
	if o.n < 0 {
		return usagef("muster history -n 20", "-n %d is no number of applies", o.n)
	}
	if o.entry != "" {
		o.n = 0
	}
	if o.all && len(o.stacks) > 0 {
		return usagef("give one of them", "--all and --stack exclude each other")
	}
	if err := checkStacks(o.stacks); err != nil {
		return err
	}
	home, declared := "", target{timeout: time.Duration(spec.DefaultSessionTimeout)}
	if o.config != "" || p.hasConfiguration() {
		cfg, err := p.load(o.config, o.vars)
		if err != nil {
			return err
		}
		home, declared = cfg.Home, p.declaredTarget(cfg, o.config)
		if !o.all && len(o.stacks) == 0 {
			o.stacks = []string{cfg.Stack}
		}
	}
	s, err := p.connect(ctx, p.target(declared))
	if err != nil {
		return err
	}
	defer s.Close()
	return p.history(ctx, zkstate.NewReader(s, home, kinds()...), o, cmp.Or(home, resource.DefaultHome))
}

func (p *process) history(ctx context.Context, r *zkstate.Reader, o historyOptions, home string) error {
	named := len(o.stacks) > 0
	if !named {
		var err error
		if o.stacks, err = r.Stacks(ctx); err != nil {
			return err
		}
	}
	var applies []history.Found
	unread := false
	for _, stack := range o.stacks {
		found, err := r.History(ctx, stack, o.n)
		if err != nil && (named || unreachable(err) && !errors.Is(err, zkconn.ErrNoAuth)) {
			return err
		}
		if err != nil { // the others are shown
			unread = true
			fmt.Fprintf(p.err, "%s\n", text.EscapeLines(err.Error()))
		}
		applies = append(applies, found...)
	}
	history.NewestFirst(applies)
	var err error
	if o.entry != "" {
		if applies, err = pickEntry(applies, o.entry, home); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		err = report.HistoryJSON(p.out, applies)
	case len(applies) == 0:
		of, next := "any stack", "muster apply records what it changes"
		if len(o.stacks) > 0 {
			of, next = "stack "+strings.Join(o.stacks, ", "), "muster history --all"
		}
		fmt.Fprintf(p.out, "There is no history of %s below %s.\n", text.Escape(of), home)
		fmt.Fprintf(p.err, "  next: %s\n", p.paste(next))
	case o.entry != "":
		err = report.HistoryEntry(p.out, applies[0], p.layout())
	default:
		err = report.History(p.out, applies, p.layout())
	}
	if err == nil {
		err = p.noteApplies(applies, home, p.flags.quiet || o.entry != "")
	}
	if err == nil && unread {
		return foundAttention
	}
	return err
}

// pickEntry finds the entry with this number, or of this plan.
func pickEntry(applies []history.Found, entry, home string) (found []history.Found, err error) {
	var numbers, stacks []string
	for _, a := range applies {
		number := strconv.Itoa(a.Number)
		numbers = append(numbers, number)
		if entry == number || entry == a.Name || entry == a.Plan {
			found, stacks = append(found, a), append(stacks, a.Stack)
		}
	}
	switch {
	case len(found) == 0 && len(numbers) == 0:
		return nil, &problem{errAbsent, fmt.Errorf("there is no entry %q: no history below %s", entry, home),
			"muster history --all"}
	case len(found) == 0:
		return nil, &problem{errAbsent, fmt.Errorf("there is no entry %q, but %s %s",
			entry, text.Plural(len(numbers), "entry:", "entries:"), text.List(numbers, maxListed)), "muster history"}
	case len(found) > 1:
		return nil, usagef("muster history --stack "+stacks[0]+" "+entry, "%q is an entry of each of the stacks %s",
			entry, text.List(stacks, maxListed))
	}
	return found, nil
}

// noteApplies says what to do about applies that need somebody: those of which nothing can be read, and a last one that
// did not finish, unless quiet.
func (p *process) noteApplies(applies []history.Found, home string, quiet bool) error {
	var found error
	seen := map[string]bool{}
	for _, a := range applies {
		if a.State == history.Damaged && found == nil {
			found = foundAttention
			fmt.Fprintf(p.err, "an entry that cannot be read keeps nothing from working\n  next: delete %s (zkCli.sh), "+
				"or wait for %d newer ones\n", text.Escape(resource.Join(znode.History(home, a.Stack), a.Name)), history.Kept)
		}
		if a.State == history.Unfinished && !seen[a.Stack] && !quiet {
			fmt.Fprintf(p.err, "the last apply of stack %s did not finish\n  next: %s\n", text.Escape(a.Stack),
				p.paste("muster apply does what is left, if anything is"))
		}
		seen[a.Stack] = true
	}
	return found
}

// held says which reconcilers of stacks act, and what they leave as it is. What may not be read is left out.
func (scope *searchScope) held(
	ctx context.Context, r *zkstate.Reader, stacks []history.Found,
) (lines []string, err error) {
	for _, f := range stacks {
		held, err := r.Held(ctx, f.Stack, time.Now())
		who, acts, noMark := r.Acting(ctx, f.Stack)
		if err = errors.Join(err, noMark); noAnswer(err) {
			return nil, err
		}
		if acts {
			lines = append(lines, fmt.Sprintf("stack %s: muster reconcile by %s acts since %s", f.Stack, who.Name(),
				who.Since.Format(time.DateTime)))
		}
		for _, line := range held {
			lines = append(lines, "stack "+f.Stack+": "+line)
		}
	}
	return lines, nil
}

// lastApplies are the last applies of the configuration's stack, and of those that own these resources. An operator
// wants to see the resources also if a history cannot be read, so its stack is only named.
func (scope *searchScope) lastApplies(
	ctx context.Context, r *zkstate.Reader, all []view.Resource,
) (applies []history.Found, unread []string, err error) {
	declared := ""
	if scope.cfg != nil {
		declared = scope.cfg.Stack
	}
	for _, stack := range view.Stacks(scope.home, declared, all) {
		last, err := r.History(ctx, stack, 1)
		switch {
		case errors.Is(err, zkconn.ErrNoAuth):
			unread = append(unread, stack)
		case err != nil:
			return nil, nil, err
		}
		applies = append(applies, last...)
	}
	return applies, unread, nil
}
