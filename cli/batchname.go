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
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	at, o, err := scope.read(ctx, name, queue.KindName, "batches")
	return foundQueue{path: at, queue: o}, err
}

// findBatch finds QUEUE/BATCH, of which the batch need not exist.
func (scope searchScope) findBatch(ctx context.Context, name string) (foundQueue, error) {
	queueName, id, ok := cutPart(name, queue.CheckBatchID)
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
	if _, _, ok := cutPart(name, queue.CheckBatchID); err == nil || !ok || ctx.Err() != nil || unreachable(err) {
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

// batchOptions are what all commands about batches have in common.
type batchOptions struct {
	searchFlags
	timeout time.Duration
}

// newBatchCmd completes a command about a queue or a batch, which find finds: do gets an operator of it.
func (p *process) newBatchCmd(
	cmd *cobra.Command, o *batchOptions, complete cobra.CompletionFunc,
	find func(searchScope, context.Context, string) (foundQueue, error), check func(name string) error,
	do func(ctx context.Context, f foundQueue, op *tasks.Operator) error,
) *cobra.Command {
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "wait `DURATION` for Redis")
	return p.lookCmd(cmd, &o.searchFlags, complete, func(name string) error {
		if o.timeout <= 0 {
			return usagef("--timeout 30s", "--timeout %s leaves Redis no time", o.timeout)
		}
		return check(name)
	}, func(ctx context.Context, scope *searchScope, name string) error {
		f, err := find(*scope, ctx, name)
		if err != nil {
			return err
		}
		return p.operateOn(ctx, *scope, o.timeout, f, do)
	})
}

// anything is a check that refuses nothing.
func anything(string) error { return nil }

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

// completeBatch completes QUEUE/BATCH: first the queue, and after a slash the unfinished batches. whole: QUEUE alone
// will do.
func (p *process) completeBatch(f *searchFlags, whole bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		var words []string
		known := p.candidates(ctx, ".", *f)
		for _, q := range known.matchingParts("", queue.KindName) {
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
		words = withPrefix(typed, words)
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, "/") }) { // the batch follows
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return words, directive
	}
}

// batchCandidates lists the unfinished batches of a queue, as QUEUE/BATCH.
func (p *process) batchCandidates(ctx context.Context, f searchFlags, name string) []string {
	return p.lookQuietly(ctx, f, func(ctx context.Context, scope searchScope) ([]string, error) {
		found, err := scope.findQueue(ctx, name)
		if err != nil {
			return nil, err
		}
		id := found.queue.Record.Declaration.ID()
		ids, _, err := scope.session.Children(ctx, znode.Batches(id.Root, found.queue.Record.Generation))
		for i, batch := range ids {
			ids[i] = name + "/" + batch
		}
		return ids, err
	})
}
