package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/spec"
	"muster/zkstate"
)

// completionPatience bounds how long a completion looks at ZooKeeper: somebody sits there and waits.
const completionPatience = time.Second

// glance is what a completion can see of jobs: those of a configuration, and those in ZooKeeper if it answers in time. Nothing is
// printed, whatever goes wrong: there are fewer words, and that is all.
type glance struct {
	jobs   []known
	roots  []string
	stacks []string
}

// glance looks where search would look. Without a directory no configuration is read.
func (p *process) glance(ctx context.Context, dir string, f searchFlags) glance {
	p.err, p.log = &stream{w: io.Discard}, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	var g glance
	var home string
	var paths []string
	declared := target{timeout: time.Duration(spec.DefaultSessionTimeout)}
	if dir != "" {
		if cfg, diags, err := p.parse(dir, f.vars, time.Time{}); err == nil && !diags.HasErrors() {
			declared, home = p.declaredTarget(cfg, dir), cfg.Home
			g.roots, g.stacks, paths = cfg.Searched(), []string{cfg.Stack}, declaredPaths(cfg)
			for _, j := range cfg.Jobs {
				g.jobs = append(g.jobs, known{j.Address, j.Path()})
			}
		}
	}
	if root := cmp.Or(f.root, p.environ.value("MUSTER_ROOT")); resource.CheckRoot(root) == nil {
		g.roots, paths = []string{root}, nil
		g.jobs = slices.DeleteFunc(g.jobs, func(j known) bool { return path.Dir(j.path) != root })
	}
	if len(g.roots) == 0 {
		g.roots = []string{resource.DefaultRoot}
	}
	s, err := p.connect(ctx, p.target(declared))
	if err != nil {
		return g
	}
	defer s.Close()
	if have, err := zkstate.NewReader(s, home, kinds()...).Read(ctx, g.roots, paths...); err == nil {
		g.add(have)
	}
	return g
}

// add adds the jobs that were found.
func (g *glance) add(have plan.State) {
	for at, o := range have.Found {
		address := at
		if o.Record != nil {
			address = cmp.Or(o.Record.Declaration.ID().Address, at)
			g.stacks = append(g.stacks, o.Record.Stack)
		}
		g.jobs = append(g.jobs, known{address, at})
	}
}

// harmless reports a word that neither a shell nor a terminal takes for anything but a name: what is in ZooKeeper may have been put
// there by anybody.
func harmless(word string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return strings.Trim(word, letters+`_./-["]`) == ""
}

// starting are the words, each once, that start with what was typed.
func starting(typed string, words []string) []string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, typed) || !harmless(w) })
	slices.Sort(words)
	return slices.Compact(words)
}

// names are the words that name one of the jobs: its address; once something was typed, its name or its path, if that is
// how it begins.
func (g glance) names(typed string) []string {
	var words []string
	for _, j := range g.jobs {
		switch {
		case typed == "":
			words = append(words, j.address)
		case strings.HasPrefix(typed, "/"):
			words = append(words, j.path)
		default:
			words = append(words, j.address, path.Base(j.path))
		}
	}
	return starting(typed, words)
}

// completeJob completes the one argument that names a job.
func (p *process) completeJob(f *searchFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.glance(cmd.Context(), ".", *f).names(typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeExplained completes a job or, once its M was typed, the code of a diagnostic.
func (p *process) completeExplained(f *searchFlags) cobra.CompletionFunc {
	job := p.completeJob(f)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		words, directive := job(cmd, args, typed)
		for _, c := range spec.Codes() {
			if len(args) == 0 && typed != "" && strings.HasPrefix(c.Code, typed) {
				words = append(words, cobra.CompletionWithDesc(c.Code, c.Meaning))
			}
		}
		return words, directive
	}
}

// completeSearch registers what the flags of a command that looks for jobs can be. It may have --stack.
func (p *process) completeSearch(cmd *cobra.Command, f *searchFlags) {
	of := func(words func(glance) []string) cobra.CompletionFunc {
		return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return starting(typed, words(p.glance(cmd.Context(), ".", searchFlags{vars: f.vars}))), cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = cmd.RegisterFlagCompletionFunc("root", of(func(g glance) []string { return g.roots }))
	if cmd.Flags().Lookup("stack") != nil {
		_ = cmd.RegisterFlagCompletionFunc("stack", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return starting(typed, p.glance(cmd.Context(), ".", *f).stacks), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completePlan registers what --only and --skip can be; the argument is a directory.
func (p *process) completePlan(cmd *cobra.Command, f *planFlags) {
	for _, flag := range []string{"only", "skip"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			g := p.glance(cmd.Context(), cmp.Or(first(args), "."), searchFlags{vars: f.vars})
			return g.names(typed), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completeWorker registers what the flags of a worker can be. The configuration here is not its business; that of --file is.
func (p *process) completeWorker(cmd *cobra.Command, o *workerOptions) {
	_ = cmd.RegisterFlagCompletionFunc("job", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, j := range p.glance(cmd.Context(), o.dir, searchFlags{vars: o.vars, root: o.root}).jobs {
			names = append(names, path.Base(j.path))
		}
		return starting(typed, names), cobra.ShellCompDirectiveNoFileComp
	})
	completeWith(cmd, "start", "joined", "all", "barrier")
	completeWith(cmd, "takeover", "wait", "fail")
	completeWith(cmd, "on-loss", "rejoin", "stop")
	_ = cmd.MarkFlagDirname("file")
}

// completeReports registers the kinds of --report. What comes behind the = is a file.
func completeReports(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("report", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(typed, "=") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var kinds []string
		for _, kind := range starting(typed, report.Kinds()) {
			kinds = append(kinds, kind+"=")
		}
		return kinds, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

// completeList registers the words of a flag that takes a list with commas, each once.
func completeList(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before, last := "", typed
		if i := strings.LastIndex(typed, ","); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		var lists []string
		for _, w := range words {
			if strings.HasPrefix(w, last) && !slices.Contains(strings.Split(before, ","), w) {
				lists = append(lists, before+w)
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	})
}

// completeDir completes the one argument that is a directory.
func completeDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
