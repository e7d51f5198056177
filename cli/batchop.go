package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"muster/tasks"
	"muster/text"
)

func newCancelCmd(p *process) *cobra.Command {
	var o batchOptions
	return p.newBatchCmd(&cobra.Command{
		Use:   "cancel QUEUE/BATCH",
		Short: "End a batch of a queue: kill its commands, and remove its tasks",
		Long: `Ends a batch at once. Commands that run for it are ended, and its tasks and
results are removed; its dead tasks are kept for as long as the queue says.`,
		Example: `  muster cancel primes/nightly-7`,
		Args:    argCount(1, 1, "one batch, as QUEUE/BATCH"),
	}, &o, p.completeBatch(&o.searchFlags, false), searchScope.findBatch, anything,
		func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
			if err := op.Cancel(ctx, f.id); err != nil {
				return err
			}
			p.announce(f, "cancelled")
			return nil
		})
}

// announce prints what was done, as the end of a sentence.
func (p *process) announce(f foundQueue, format string, args ...any) {
	if !p.flags.quiet {
		fmt.Fprintf(p.out, "%s: %s.\n", text.Escape(f.name()), text.Escape(fmt.Sprintf(format, args...)))
	}
}

func newRetryCmd(p *process) *cobra.Command {
	var o batchOptions
	return p.newBatchCmd(&cobra.Command{
		Use:   "retry QUEUE[/BATCH]",
		Short: "Try the dead tasks of a batch of a queue again, or of all batches",
		Long: `Makes the dead tasks of a batch wait again, with all their attempts. If the
batch has ended, they become a batch of their own: its id has ".retry" at the
end. A batch that watchers gave up is given to them again. A queue stands for
all its batches that have dead tasks.`,
		Example: `  muster retry primes/nightly-7
  muster retry primes`,
		Args: argCount(1, 1, "a queue, or one batch as QUEUE/BATCH"),
	}, &o, p.completeBatch(&o.searchFlags, true), searchScope.findQueueOrBatch, anything,
		func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
			return p.eachBatch(ctx, f, op.WithDead, "there is nothing to retry",
				func(f foundQueue) error { return p.retry(ctx, f, op) })
		})
}

func (p *process) retry(ctx context.Context, f foundQueue, op *tasks.Operator) error {
	r, err := op.Retry(ctx, f.id)
	switch {
	case err != nil:
		return err
	case r.Batch != f.id:
		p.announce(f, "%s moved to batch %s", deadTasks(r.Tasks), r.Batch)
	case r.Tasks == 0:
		p.announce(f, "it has no dead tasks; watchers may have it again")
	case r.Tasks == 1:
		p.announce(f, "1 dead task waits again")
	default:
		p.announce(f, "%s wait again", deadTasks(r.Tasks))
	}
	return nil
}

func deadTasks(n int64) string { return text.Count(int(n), "dead task") }

func newDropCmd(p *process) *cobra.Command {
	var o batchOptions
	var dead bool
	cmd := p.newBatchCmd(&cobra.Command{
		Use:   "drop --dead QUEUE[/BATCH]",
		Short: "Delete the dead tasks of a batch of a queue, or of all batches",
		Long: `Deletes dead tasks for good. Without that they are kept for as long as the queue
says (keep_dead), and count for its max_bytes. A queue stands for all its
batches that have dead tasks.`,
		Example: `  muster drop --dead primes/nightly-7
  muster drop --dead primes`,
		Args: argCount(1, 1, "a queue, or one batch as QUEUE/BATCH"),
	}, &o, p.completeBatch(&o.searchFlags, true), searchScope.findQueueOrBatch, func(name string) error {
		if !dead {
			return usagef("muster drop --dead "+text.ShellWord(name)+"; to end a batch: muster cancel",
				"muster drop deletes dead tasks only: say so with --dead")
		}
		return nil
	}, func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
		return p.eachBatch(ctx, f, op.WithDead, "there are no dead tasks", func(f foundQueue) error {
			n, err := op.DropDead(ctx, f.id)
			if err == nil && n == 0 {
				err = fmt.Errorf("drop %s: %w", f.name(), tasks.ErrNoDead)
			}
			if err == nil {
				p.announce(f, "%s dropped", deadTasks(n))
			}
			return err
		})
	})
	cmd.Flags().BoolVar(&dead, "dead", false, "delete dead tasks; nothing else can be dropped")
	return cmd
}

// eachBatch calls do for the batch that is named, or for all that list lists. Those that have changed meanwhile are
// left out. It goes on after an error, and returns the first. none is said if it did nothing.
func (p *process) eachBatch(
	ctx context.Context, f foundQueue, list func(context.Context) ([]string, error), none string,
	do func(foundQueue) error,
) error {
	if f.id != "" {
		return do(f)
	}
	ids, err := list(ctx)
	if err != nil {
		return err
	}
	done := 0
	slices.Sort(ids)
	for _, id := range ids {
		one := foundQueue{f.path, f.queue, id}
		switch e := do(one); {
		case e == nil:
			done++
		case errors.Is(e, tasks.ErrNoBatch), errors.Is(e, tasks.ErrNoDead):
		case errors.Is(e, tasks.ErrRedis), ctx.Err() != nil, unreachable(e):
			return e
		default:
			p.printError(ctx, queueError(e, one))
			err = foundIncomplete
		}
	}
	if done == 0 && err == nil {
		p.announce(f, "%s", none)
	}
	return err
}

// pauseBatches pauses or resumes a batch, or all batches of a queue that are there now.
func (p *process) pauseBatches(ctx context.Context, f foundQueue, op *tasks.Operator, pause bool) error {
	set, word := op.Resume, "resumed"
	if pause {
		set, word = op.Pause, "paused"
	}
	return p.eachBatch(ctx, f, op.Batches, "there is no unfinished batch", func(one foundQueue) error {
		changed, err := set(ctx, one.id)
		if f.id == "" && (errors.Is(err, tasks.ErrSubmitting) || errors.Is(err, tasks.ErrCancelled)) {
			return tasks.ErrNoBatch // it is left out
		}
		switch {
		case errors.Is(err, tasks.ErrRedis):
			return fmt.Errorf("%s: it is %s as soon as Redis answers, if a process of the queue is live: %w",
				one.name(), word, err)
		case err != nil:
			return err
		case changed:
			p.announce(one, "%s", word)
		default:
			p.announce(one, "it was %s before", word)
		}
		return nil
	})
}
