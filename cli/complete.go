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

	"muster/docs"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/queue"
	"muster/text"
	"muster/zkstate/znode"
)

// completionTimeout bounds how long a completion reads ZooKeeper: a user waits for it.
const completionTimeout = time.Second

// completionCandidates is what a completion can offer: what a configuration declares and, if ZooKeeper answers in time,
// what is there.
type completionCandidates struct {
	jobs   []namedJob // groups and queues, too
	roots  []string
	stacks []string
}

// quietly calls do for a completion: it has a second, and what is wrong is not printed.
func (p *process) quietly(ctx context.Context, do func(context.Context) error) {
	p.err, p.log = &stream{w: io.Discard}, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	_ = do(ctx) // there are fewer words then
}

func (p *process) lookQuietly(ctx context.Context, f searchFlags, name string, do action) {
	p.quietly(ctx, func(ctx context.Context) error { return p.look(ctx, f, name, do) })
}

// candidates looks where search does. A configuration that is broken, or a server that does not answer, offers nothing.
func (p *process) candidates(ctx context.Context, f searchFlags) (found completionCandidates) {
	f.named, f.whole = true, true
	p.quietly(ctx, func(ctx context.Context) error {
		scope, err := p.search(ctx, f)
		found.roots, found.jobs = scope.roots, scope.names("", plan.State{})
		if len(found.roots) == 0 {
			found.roots = []string{resource.DefaultRoot}
		}
		if root := cmp.Or(f.root, p.environ.value("MUSTER_ROOT")); root != "" {
			found.jobs = slices.DeleteFunc(found.jobs, func(j namedJob) bool { return path.Dir(j.path) != root })
		}
		if scope.cfg != nil {
			found.stacks = []string{scope.cfg.Stack}
		}
		if err != nil {
			return err
		}
		defer scope.session.Close()
		have, err := scope.reader().Read(ctx, scope.roots, scope.paths...)
		found.jobs = append(found.jobs, (&searchScope{}).names("", have)...)
		for _, o := range have.Found {
			if o.Record != nil {
				found.stacks = append(found.stacks, o.Record.Stack)
			}
		}
		return err
	})
	return found
}

// matchingParts returns the words that name a queue, or a duty of these types: QUEUE or GROUP/DUTY, or after a slash
// the path. kinds are that of queues, and types of duties.
func (c completionCandidates) matchingParts(typed string, kinds ...string) []string {
	var words []string
	add := func(kind, name, at string) {
		switch {
		case !slices.Contains(kinds, kind):
		case strings.HasPrefix(typed, "/"):
			words = append(words, at)
		default:
			words = append(words, name)
		}
	}
	for _, j := range c.jobs {
		switch d := j.declared.(type) {
		case queue.Queue:
			add(queue.KindName, d.Name, d.Path())
		case group.Group:
			for _, duty := range d.Duties {
				add(string(duty.Type), d.Name+"/"+duty.Name, d.Path()+"/"+duty.Name)
			}
		}
	}
	return words
}

// completeArgument completes the one argument. No space follows a word that ends with a slash: its batch does.
func completeArgument(words func(ctx context.Context, typed string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, directive := withPrefix(typed, words(cmd.Context(), typed)), cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(all, func(w string) bool { return strings.HasSuffix(w, "/") }) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return all, directive
	}
}

// completePart completes the name or path of a queue, or of a duty of these types: see matchingParts.
func (p *process) completePart(f *searchFlags, kinds ...string) cobra.CompletionFunc {
	return completeArgument(func(ctx context.Context, typed string) []string {
		return p.candidates(ctx, *f).matchingParts(typed, kinds...)
	})
}

// partApart makes of what completes GROUP/DUTY what completes GROUP DUTY as well.
func partApart(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return complete(cmd, args, typed)
		}
		words, directive := complete(cmd, nil, args[0]+"/"+typed)
		return text.Each(words, func(w string) string { return strings.TrimPrefix(w, args[0]+"/") }), directive
	}
}

func (p *process) completeJob(f *searchFlags) cobra.CompletionFunc {
	return completeArgument(func(ctx context.Context, typed string) []string {
		return p.candidates(ctx, *f).matching(typed)
	})
}

// memberCandidates lists the live members of the group in GROUP/DUTY that can do the duty.
func (p *process) memberCandidates(ctx context.Context, f searchFlags, name string) (all []string) {
	p.lookQuietly(ctx, f, name, func(ctx context.Context, _ *process, scope *searchScope, name string) error {
		d, err := scope.findDuty(ctx, name)
		if err != nil {
			return err
		}
		now, err := scope.dutyNow(ctx, d)
		if err != nil {
			return err
		}
		for _, m := range now.Members {
			if slices.Contains(m.Can, d.duty.Name) {
				all = append(all, m.Identity)
			}
		}
		return nil
	})
	return all
}

// completeBatch completes QUEUE/BATCH: first the queue, and after a slash the unfinished batches. whole: QUEUE alone
// will do.
func (p *process) completeBatch(f *searchFlags, whole bool) cobra.CompletionFunc {
	return completeArgument(func(ctx context.Context, typed string) (words []string) {
		known := p.candidates(ctx, *f)
		for _, q := range withPrefix("", known.matchingParts("", queue.KindName)) {
			if whole {
				words = append(words, q)
			}
			if strings.HasPrefix(typed, q+"/") {
				words = append(words, p.batchCandidates(ctx, *f, q)...)
			} else {
				words = append(words, q+"/")
			}
		}
		if i := strings.LastIndexByte(typed, '/'); strings.HasPrefix(typed, "/") && i > 0 { // a path
			words = append(words, p.batchCandidates(ctx, *f, typed[:i])...)
			words = append(words, known.matchingParts(typed, queue.KindName)...)
		}
		return words
	})
}

func (p *process) batchCandidates(ctx context.Context, f searchFlags, name string) (all []string) {
	p.lookQuietly(ctx, f, name, func(ctx context.Context, _ *process, scope *searchScope, name string) error {
		found, err := scope.findQueue(ctx, name)
		if err != nil {
			return err
		}
		id := found.queue.Record.Declaration.ID()
		ids, _, err := scope.session.Children(ctx, znode.Batches(id.Root, found.queue.Record.Generation))
		for _, batch := range ids {
			all = append(all, name+"/"+batch)
		}
		return err
	})
	return all
}

// safeInShell reports whether a word means nothing special to a shell or a terminal. Anybody may have made the names in
// ZooKeeper.
func safeInShell(word string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return strings.Trim(word, letters+`_./:-["]`) == ""
}

// withPrefix returns the words that start with what was typed, sorted, without duplicates.
func withPrefix(typed string, words []string) []string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return !strings.HasPrefix(w, typed) || !safeInShell(w)
	})
	slices.Sort(words)
	return slices.Compact(words)
}

// matching returns the words that name a job: before anything is typed addresses, after a slash paths, otherwise
// addresses and names.
func (c completionCandidates) matching(typed string) []string {
	var words []string
	for _, j := range c.jobs {
		switch {
		case typed == "":
			words = append(words, j.address)
		case strings.HasPrefix(typed, "/"):
			words = append(words, j.path)
		default:
			words = append(words, j.address, path.Base(j.path))
		}
	}
	return words
}

// completeJobOrCode completes a job or, once something is typed, a state, an exit code, or the code of a diagnostic.
func (p *process) completeJobOrCode(f *searchFlags) cobra.CompletionFunc {
	job := p.completeJob(f)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		words, directive := job(cmd, args, typed)
		if len(args) > 0 || typed == "" {
			return words, directive
		}
		if strings.Contains(typed, "/") {
			duties := p.candidates(cmd.Context(), *f).matchingParts(typed, text.Strings(group.Types())...)
			words = append(words, withPrefix(typed, duties)...)
		}
		words = append(words, withPrefix(typed, wordsToExplain())...)
		for _, c := range docs.Codes() {
			if strings.HasPrefix(c.Code, typed) {
				words = append(words, cobra.CompletionWithDesc(c.Code, c.Meaning))
			}
		}
		return words, directive
	}
}

// completeFlag registers where the candidates for a flag of cmd come from. They are no files.
func completeFlag(
	cmd *cobra.Command, flag string, words func(ctx context.Context, args []string, typed string) []string,
) {
	complete := func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return withPrefix(typed, words(cmd.Context(), args, typed)), cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// addSearch adds to cmd, as its last flags, those of f, and what completes them and its argument.
func (p *process) addSearch(cmd *cobra.Command, f *searchFlags, argument cobra.CompletionFunc) {
	f.addTo(cmd.Flags())
	p.completeSearch(cmd, f)
	cmd.ValidArgsFunction = argument
}

// completeSearch registers the candidates for --file, --root and --stack, of which cmd may have no such flag.
func (p *process) completeSearch(cmd *cobra.Command, f *searchFlags) {
	_ = cmd.MarkFlagFilename("file", "hcl", "hcl.json")
	completeFlag(cmd, "root", func(ctx context.Context, _ []string, _ string) []string {
		return p.candidates(ctx, searchFlags{config: f.config, vars: f.vars}).roots
	})
	completeFlag(cmd, "stack", func(ctx context.Context, _ []string, _ string) []string {
		return p.candidates(ctx, *f).stacks
	})
}

// completePlan registers the candidates for --only and --skip. The first argument is the directory.
func (p *process) completePlan(cmd *cobra.Command, f *planFlags) {
	for _, flag := range []string{"only", "skip"} {
		completeFlag(cmd, flag, func(ctx context.Context, args []string, typed string) []string {
			return p.candidates(ctx, searchFlags{config: firstArg(args), vars: f.vars}).matching(typed)
		})
	}
}

// jobNames returns the names of what the configuration of f, if any, declares, and of what is there.
func (p *process) jobNames(ctx context.Context, f searchFlags) []string {
	f.none = true
	return text.Each(p.candidates(ctx, f).jobs, func(j namedJob) string { return path.Base(j.path) })
}

// completeReports registers the kinds of --report. After the = comes a file.
func completeReports(cmd *cobra.Command) {
	complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(typed, "=") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		kinds := text.Each(withPrefix(typed, report.Formats()), func(kind string) string { return kind + "=" })
		return kinds, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("report", complete)
}

// completeList registers the words of a flag that takes a list with commas. It offers no word twice.
func completeList(cmd *cobra.Command, flag string, words []string) {
	complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		i := strings.LastIndex(typed, ",") + 1
		before, last := typed[:i], typed[i:]
		var lists []string
		for _, w := range words {
			if strings.HasPrefix(w, last) && !slices.Contains(strings.Split(before, ","), w) {
				lists = append(lists, before+w)
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

func completeConfig(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"hcl", "hcl.json"}, cobra.ShellCompDirectiveFilterFileExt // and directories
}
