package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// cutBatch splits QUEUE/BATCH at its last slash. The key in an address may hold slashes, and an id holds no bracket.
func cutBatch(name string) (queueName, id string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 || queue.CheckBatchID(name[i+1:]) != nil {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// foundQueue is a queue that was read, and maybe the id of a batch of it.
type foundQueue struct {
	path  string
	queue *resource.Observed
	id    string // "": the queue itself
}

// name is QUEUE or QUEUE/BATCH.
func (f foundQueue) name() string {
	if f.id == "" {
		return f.path
	}
	return f.path + "/" + f.id
}

// words is name as an argument in a shell.
func (f foundQueue) words() string { return text.ShellWord(f.name()) }

// findQueue finds a queue by its name, address or path.
func (scope searchScope) findQueue(ctx context.Context, name string) (foundQueue, error) {
	at, err := scope.findKind(ctx, name, queue.KindName, noQueue)
	if err != nil {
		return foundQueue{}, err
	}
	o, err := zkstate.NewReader(scope.session, scope.home, kinds()...).Look(ctx, at)
	switch {
	case err != nil:
		return foundQueue{}, err
	case o == nil:
		return foundQueue{}, noQueue(at, nil)
	case !view.IsQueue(o):
		return foundQueue{}, notQueue(at, o)
	}
	return foundQueue{path: at, queue: o}, nil
}

// findBatch finds QUEUE/BATCH, of which the batch need not exist.
func (scope searchScope) findBatch(ctx context.Context, name string) (foundQueue, error) {
	queueName, id, ok := cutBatch(name)
	if !ok {
		return foundQueue{}, usagef("muster batches QUEUE lists the batches of a queue", "%q is not QUEUE/BATCH", name)
	}
	f, err := scope.findQueue(ctx, queueName)
	f.id = id
	return f, err
}

// findQueueOrBatch finds QUEUE or QUEUE/BATCH. A path is that of a queue if there is one.
func (scope searchScope) findQueueOrBatch(ctx context.Context, name string) (foundQueue, error) {
	f, err := scope.findQueue(ctx, name)
	if _, _, ok := cutBatch(name); err == nil || !ok || ctx.Err() != nil || unreachable(err) {
		return f, err
	}
	return scope.findBatch(ctx, name)
}

// ofQueue finds QUEUE or QUEUE/BATCH, and reports whether name is one: otherwise it may be GROUP/DUTY.
func (scope searchScope) ofQueue(ctx context.Context, name string) (f foundQueue, is bool, err error) {
	f, err = scope.findQueueOrBatch(ctx, name)
	if err != nil && !unreachable(err) {
		return f, false, nil
	}
	return f, err == nil, err
}

// pauseOf pauses or resumes what ofQueue has found.
func (p *process) pauseOf(
	ctx context.Context, scope searchScope, timeout time.Duration, f foundQueue, pause bool, err error,
) error {
	if err != nil {
		return err
	}
	return p.operateOn(ctx, scope, timeout, f, func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
		return p.pauseBatches(ctx, f, op, pause)
	})
}

// notQueue says what there is instead of a queue.
func notQueue(at string, o *resource.Observed) error {
	err := fmt.Errorf("%s is not a queue: it is %s", at, o.Status())
	if o.Record != nil {
		err = fmt.Errorf("%s is a %s, and has no batches", at, o.Record.Declaration.Kind().Name)
	}
	return &problem{errUsage, err, "muster explain " + text.ShellWord(at)}
}

// noQueue says that there is no queue of this name, and suggests another of all.
func noQueue(name string, all []string) error {
	slices.Sort(all)
	err := fmt.Errorf("%s: %w", name, tasks.ErrNoQueue)
	if near := text.Nearest(name, all); near != "" {
		return &problem{err: fmt.Errorf("%w: did you mean %s?", err, near), next: "muster status " + text.ShellWord(near)}
	}
	return &problem{err: err, next: "muster status shows all queues; to look elsewhere: " + lookElsewhere}
}

// batchOptions are what all commands about batches have in common.
type batchOptions struct {
	searchFlags
	timeout time.Duration
}

// newBatchCmd adds to cmd what these commands have in common. whole: the argument may also be a queue.
func (p *process) newBatchCmd(
	cmd *cobra.Command, o *batchOptions, complete cobra.CompletionFunc, run func(ctx context.Context, name string) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0]) }
	o.searchFlags.addTo(cmd.Flags())
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "wait `DURATION` for Redis")
	p.completeSearch(cmd, &o.searchFlags)
	cmd.ValidArgsFunction = complete
	return cmd
}

// operate connects, finds what is named, and calls do with an operator of it.
func (p *process) operate(
	ctx context.Context, o batchOptions, name string,
	find func(searchScope, context.Context, string) (foundQueue, error),
	do func(ctx context.Context, f foundQueue, op *tasks.Operator) error,
) error {
	if o.timeout <= 0 {
		return usagef("--timeout 30s", "--timeout %s leaves Redis no time", o.timeout)
	}
	o.named = strings.HasPrefix(name, "/")
	scope, err := p.search(ctx, o.searchFlags)
	if err != nil {
		return err
	}
	defer scope.session.Close()
	f, err := find(scope, ctx, name)
	if err != nil {
		return err
	}
	return p.operateOn(ctx, scope, o.timeout, f, do)
}

// operateOn calls do with an operator of a queue. Its context ends with the timeout.
func (p *process) operateOn(
	ctx context.Context, scope searchScope, timeout time.Duration, f foundQueue,
	do func(ctx context.Context, f foundQueue, op *tasks.Operator) error,
) error {
	op, err := p.operator(ctx, scope.session, f)
	if err != nil {
		return err
	}
	defer op.Close()
	limited, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("gave up after %s", timeout))
	defer cancel()
	return queueError(do(limited, f, op), f)
}

// operator is one of a queue that was found.
func (p *process) operator(ctx context.Context, s *zkconn.Session, f foundQueue) (*tasks.Operator, error) {
	id := f.queue.Record.Declaration.ID()
	return tasks.NewOperator(ctx, s, tasks.OperatorConfig{
		Root: id.Root, Queue: id.Name, By: p.user(), Redis: tasks.Access{Getenv: p.environ.value}, Waiting: p.waiting,
	})
}

// waiting says for what a command waits.
func (p *process) waiting(what string) {
	if !p.flags.quiet {
		p.waitingForQueue(what)
	}
}

// waitingForQueue says for what a command about a queue waits. A queue that is not there may be a wrong name or root.
func (p *process) waitingForQueue(what string) {
	hint := ""
	if strings.HasPrefix(what, "the queue to be created") {
		hint = " (muster status shows which there are)"
	}
	fmt.Fprintf(p.err, "waiting for %s%s\n", text.Escape(what), hint)
}

// completeQueue completes the name or path of a queue.
func (p *process) completeQueue(f *searchFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.candidates(cmd.Context(), ".", *f).matchingQueues(typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBatch completes QUEUE/BATCH: first the queue, and after a slash the unfinished batches. whole: QUEUE alone
// will do.
func (p *process) completeBatch(f *searchFlags, whole bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		var words []string
		for _, q := range p.candidates(ctx, ".", *f).matchingQueues("") {
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
			words = append(words, p.candidates(ctx, ".", *f).matchingQueues(typed)...)
		}
		words = withPrefix(typed, words)
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, "/") }) { // the batch follows
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return words, directive
	}
}

// matchingQueues returns the words that name a queue: its name, or after a slash its path.
func (c completionCandidates) matchingQueues(typed string) []string {
	var words []string
	for _, q := range c.queues {
		if strings.HasPrefix(typed, "/") {
			words = append(words, q.path)
		} else {
			words = append(words, q.address)
		}
	}
	return withPrefix(typed, words)
}

// batchCandidates lists the unfinished batches of a queue, as QUEUE/BATCH.
func (p *process) batchCandidates(ctx context.Context, f searchFlags, name string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	scope, err := p.search(ctx, f)
	if err != nil {
		return nil
	}
	defer scope.session.Close()
	found, err := scope.findQueue(ctx, name)
	if err != nil {
		return nil
	}
	id := found.queue.Record.Declaration.ID()
	ids, _, err := scope.session.Children(ctx, znode.Batches(id.Root, found.queue.Record.Generation))
	if err != nil {
		return nil
	}
	for i, batch := range ids {
		ids[i] = name + "/" + batch
	}
	return ids
}
