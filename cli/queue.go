package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

func newQueueCmd(p *process) *cobra.Command {
	return newNounCmd("queue", "List, pause, resume, cancel or retry the batches of a queue",
		`Shows the batches of a queue, and changes what becomes of them. A batch is
QUEUE/BATCH, as muster prints it, or two words: the queue and the batch. A queue
alone stands for all its batches.`,
		newBatchesCmd(p), newCancelCmd(p), newDropCmd(p), newPauseBatchesCmd(p), newResumeBatchesCmd(p),
		newRetryCmd(p))
}

// newOperateCmd completes a command that changes a batch or, if whole, all batches of a queue as well: do gets an
// operator of it. It asks first if something would be lost: loses says what, as a sentence.
func (p *process) newOperateCmd(
	cmd *cobra.Command, whole bool, loses string,
	do func(ctx context.Context, f foundQueue, op *tasks.Operator) error,
) *cobra.Command {
	var o askFlags
	yes, asks := false, loses != ""
	if asks {
		cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	}
	find, argument := (*searchScope).findBatch, "one batch, as QUEUE/BATCH"
	if whole {
		find, argument = (*searchScope).findQueueOrBatch, "a queue, or one batch as QUEUE/BATCH"
	}
	cmd.Args = argCount(1, 2, argument)
	return p.lookCmd(cmd, &o, "Redis", p.completeBatch(&o.searchFlags, whole), func(name string) error {
		if _, _, ok := cutPart(name, queue.CheckBatchID); !whole && !ok {
			return notABatch(name)
		}
		return p.refuseUnasked(yes || !asks, cmd.CommandPath()+" "+text.ShellWord(name))
	}, func(ctx context.Context, p *process, scope *searchScope, name string) error {
		f, err := find(scope, ctx, name)
		if err == nil && asks && !yes {
			err = p.confirmLoss(ctx, f.name(), loses)
		}
		if err != nil {
			return err
		}
		return p.operateOn(ctx, scope, o.timeout, f, do)
	})
}

// operateOn calls do with an operator of a queue. Its context ends with the timeout.
func (p *process) operateOn(
	ctx context.Context, scope *searchScope, timeout time.Duration, f foundQueue,
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

func (p *process) operator(ctx context.Context, s *zkconn.Session, f foundQueue) (*tasks.Operator, error) {
	id := f.queue.Record.Declaration.ID()
	return tasks.NewOperator(ctx, s, tasks.OperatorConfig{
		Root: id.Root, Queue: id.Name, By: p.user(), Redis: tasks.Access{Getenv: p.environ.value}, Waiting: p.waiting,
	})
}

func runBatch(ctx context.Context, p *process, o batchesOptions, f foundQueue, op *tasks.Operator) error {
	d, err := readBatch(ctx, f, op)
	if errors.Is(err, tasks.ErrNoBatch) && o.dead { // dead tasks may be kept for longer than the end is known
		err = nil
	}
	switch {
	case err != nil:
		return err
	case o.dead, o.results && d.How != "":
		return p.printRecords(ctx, o, f, op, true)
	case o.results:
		return p.printRecords(ctx, o, f, op, false)
	case o.json:
		return p.printJSON(d)
	}
	return writeBatch(p.out, d, f, p.paste(d.Next()), time.Now())
}

// readBatch reads an unfinished batch, or how it has ended.
func readBatch(ctx context.Context, f foundQueue, op *tasks.Operator) (*view.BatchDetail, error) {
	m, err := op.Manifest(ctx, f.id)
	if errors.Is(err, tasks.ErrNoBatch) {
		end, endErr := op.Ended(ctx, f.id)
		if endErr != nil || end == nil {
			return nil, errors.Join(endErr, fmt.Errorf("%s: %w, nor did one end lately", f.name(), err))
		}
		return zkstate.EndedDetail(op.Queue, op.Generation, f.id, *end), nil
	}
	if err != nil {
		return nil, err
	}
	d := zkstate.BatchDetail(op.Queue, op.Generation, f.id, m.BatchManifest)
	b, err := op.Books(ctx, f.id)
	there := err == nil
	if !there && !errors.Is(err, store.ErrNoBatch) {
		return d, err
	}
	held, err := op.Full(ctx)
	count(&d.BatchRow, b, there, held > 0)
	return d, err
}

func writeBatch(to io.Writer, d *view.BatchDetail, f foundQueue, next string, now time.Time) error {
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	row("batch", "%s", f.name())
	row("state", "%s", d.State)
	row("tasks", "%d, %s", d.Tasks, text.Size(d.Bytes))
	if c := d.BatchCounts; c != nil {
		row("done", "%d", c.Done)
		row("dead", "%d", c.Dead)
		if d.How == "" {
			row("waiting", "%d", c.Waiting)
			row("in hand", "%d", c.InHand)
		}
		row("attempts", "%d", c.Attempts)
		if c.Tries > 0 {
			row("watchers", "%d failed: %s", c.Tries, c.Because)
		}
		if c.Watched {
			row("watcher", "has it")
		}
		if c.Broken != "" {
			row("broken", "%s", c.Broken)
		}
	}
	row("task timeout", "%s", d.TaskTimeout)
	row("weight", "%d", d.Weight)
	row("results", "%s", d.Results)
	row("submitted", "%s ago, %s by %s", view.Age(now, d.Since), d.Since.UTC().Format(time.RFC3339), d.By)
	if d.How != "" {
		row("ended", "%s ago, %s: %s, by %s", view.Age(now, d.Ended), d.Ended.UTC().Format(time.RFC3339), d.How, d.EndedBy)
	}
	if next != "" {
		next = "\nnext: " + next + "\n"
	}
	_, err := io.WriteString(to, text.Table(rows, 0)+next)
	return err
}

// printRecords prints what became of the finished tasks; with dead, only of those that are dead.
func (p *process) printRecords(
	ctx context.Context, o batchesOptions, f foundQueue, op *tasks.Operator, dead bool,
) error {
	st, err := op.Store(ctx)
	if err != nil {
		return err
	}
	records := tasks.Records(ctx, st, f.id, op.Away(ctx))
	if dead {
		records = tasks.DeadTasks(ctx, st, f.id, op.Away(ctx))
	}
	n := 0
	for r, err := range records {
		if err != nil {
			return err
		}
		n++
		if o.json || o.results {
			err = p.printJSONLine(r)
		} else {
			p.printDeadTask(r)
		}
		if err != nil || p.out.err != nil {
			return err
		}
	}
	if n == 0 && !o.json && !o.results {
		fmt.Fprintf(p.out, "%s has no dead tasks.\n", text.Escape(f.name()))
	}
	return nil
}

const maxShownTask = 200 // bytes

func (p *process) printDeadTask(r tasks.Record) {
	task := string(r.Task)
	if len(task) > maxShownTask {
		task = fmt.Sprintf("%s... (%s)", task[:maxShownTask], text.Size(int64(len(r.Task))))
	}
	fmt.Fprintf(p.out, "task %d: %s\n", r.Index, text.Escape(task))
	fmt.Fprintf(p.out, "  died %s in attempt %d: %s\n", r.Died.UTC().Format(time.RFC3339), r.Attempt,
		text.Escape(cmp.Or(r.Error, noReason)))
	for _, line := range text.Output(string(r.Tail)) {
		fmt.Fprintf(p.out, "  | %s\n", text.Escape(line))
	}
}

type batchesOptions struct {
	askFlags
	dead, results, watch, json bool
}

func newBatchesCmd(p *process) *cobra.Command {
	var o batchesOptions
	cmd := p.lookCmd(&cobra.Command{
		Use:   "batches QUEUE[/BATCH]",
		Short: "List the unfinished batches of a queue, or show one",
		Long: `Lists the unfinished batches of a queue, the oldest first, and how far each is.
A batch that is completed waits for a watcher, its submitter, or the end of the
time for which its results are kept. One that is lost is not in Redis any more:
submit it again with its id, or cancel it. One that is stopped waits for room:
the queue holds more than twice its max_bytes, and nothing of it is executed
until a batch ends.

Or shows one batch, also one that has ended within the last week. --results
prints a line of JSON for each of its tasks that is done or dead, in the order
in which they were finished; the batch stays as it is. --dead prints its dead
tasks, which are kept for a while after the end of their batch.`,
		Example: `  muster queue batches primes
  muster queue batches primes --json | jq -r '.[] | select(.dead > 0) | .id'
  muster queue batches primes nightly-7
  muster queue batches primes nightly-7 --dead
  muster queue batches primes nightly-7 --results | jq -r .result`,
		Args: argCount(1, 2, "a queue, or one batch as QUEUE/BATCH"),
	}, &o.askFlags, "Redis", p.completeBatch(&o.searchFlags, true), o.check, o.run)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show the list again whenever it changes, until interrupted")
	cmd.Flags().BoolVar(&o.dead, "dead", false, "print the dead tasks of the batch; --timeout is for all of that")
	cmd.Flags().BoolVar(&o.results, "results", false,
		"print a line of JSON for each finished task of the batch; --timeout is for all of that")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON; with --dead a line for each task")
	return cmd
}

func (o *batchesOptions) check(string) error {
	if o.dead && o.results {
		return usagef("leave out --dead", "--results prints the dead tasks, too")
	}
	return nil
}

func (o *batchesOptions) run(ctx context.Context, p *process, scope *searchScope, name string) error {
	f, err := scope.findQueueOrBatch(ctx, name)
	one := o.dead || o.results
	switch {
	case err != nil:
		return err
	case f.id == "" && one:
		return usagef("muster queue batches "+f.words()+" lists them", "--dead and --results need one batch, as QUEUE/BATCH")
	case f.id != "" && o.watch:
		return usagef("muster queue batches "+text.ShellWord(f.path)+" --watch", "--watch is for the batches of a queue")
	case f.id != "":
		return p.operateOn(ctx, scope, o.timeout, f, func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
			return runBatch(ctx, p, *o, f, op)
		})
	}
	return p.watch(ctx, scope, o.watch, o.json, func(to, notes io.Writer) error {
		return o.show(ctx, p, to, notes, scope, f.path)
	})
}

func (o *batchesOptions) show(
	ctx context.Context, p *process, to, notes io.Writer, scope *searchScope, name string,
) error {
	f, err := scope.findQueue(ctx, name)
	if err != nil {
		return err
	}
	state, err := scope.reader().QueueState(ctx, f.queue)
	if err != nil {
		return err
	}
	rows := batchRows(state)
	var unread error
	if len(rows) > 0 {
		unread = p.countBatches(ctx, scope, min(o.timeout, shortAnswer), f, rows)
	}
	var now time.Time
	if !o.watch || isTerminal(p.out) {
		now = time.Now()
	}
	if o.json {
		err = report.BatchesJSON(to, rows)
	} else {
		err = writeBatches(to, f, rows, now, width(p.out))
		for _, r := range rows { // the oldest with which something can be done
			if next := (view.BatchDetail{BatchRow: r, Queue: f.path}).Next(); next != "" {
				fmt.Fprintf(to, "\nnext: %s\n", p.paste(next))
				break
			}
		}
	}
	if err != nil {
		return err
	}
	for _, line := range state.Unread {
		fmt.Fprintf(notes, "%s\n", text.Escape(line))
	}
	if unread != nil {
		fmt.Fprintf(notes, "how far they are is not known: %s\n", text.Escape(unread.Error()))
	}
	if unread != nil || len(state.Unread) > 0 {
		return foundAttention
	}
	return nil
}

// batchRows are the unfinished batches of a queue, without what Redis knows.
func batchRows(q *view.Queue) []view.BatchRow {
	rows := make([]view.BatchRow, 0, len(q.Batches))
	for _, b := range q.Batches {
		rows = append(rows, view.BatchRow{Batch: b})
	}
	return rows
}

// shortAnswer is how long a command waits for Redis that can do without.
const shortAnswer = 3 * time.Second

func (p *process) countBatches(
	ctx context.Context, scope *searchScope, timeout time.Duration, f foundQueue, rows []view.BatchRow,
) error {
	quiet := *p
	quiet.flags.quiet = true // the note tells
	return quiet.operateOn(ctx, scope, timeout, f, func(ctx context.Context, _ foundQueue, op *tasks.Operator) error {
		st, err := op.Store(ctx)
		if err != nil {
			return err
		}
		_, err = countAll(ctx, st, int64(op.Queue.MaxBytes), rows)
		return err
	})
}

func countAll(
	ctx context.Context, st *store.Queue, maxBytes int64, rows []view.BatchRow,
) (known map[string]store.Batch, err error) {
	books, err := st.Books(ctx)
	if err != nil {
		return nil, err
	}
	known, err = st.ByID(ctx)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		b, there := known[rows[i].ID]
		count(&rows[i], b, there, books.Full(maxBytes) > 0)
	}
	return known, nil
}

// count adds what Redis knows of a batch. full: nothing of its queue is executed.
func count(r *view.BatchRow, b store.Batch, there, full bool) {
	if !there {
		if r.State != "submitting" {
			r.State = "lost"
		}
		return
	}
	r.BatchCounts = &view.BatchCounts{
		Waiting: b.Waiting + b.Returned + b.Late, InHand: b.Out, Done: b.Done, Dead: b.Dead, Attempts: b.Attempts,
		Tries: b.Tries, Because: b.Because, Watched: b.Holder != "", Broken: b.Broken,
	}
	switch {
	case b.Broken != "":
		r.State = "broken"
	case r.State == "open" && b.Done+b.Dead == b.Tasks && b.State != "submitting":
		r.State = "completed"
	case r.State == "open" && full && r.Waiting > 0:
		r.State = view.Stopped
	}
}

// writeBatches writes the table, for a terminal with so many columns, or 0. Without now it has times instead of ages,
// and changes only when something happens.
func writeBatches(to io.Writer, f foundQueue, rows []view.BatchRow, now time.Time, columns int) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(to, "%s has no unfinished batch.\n", text.Escape(f.path))
		return err
	}
	table := [][]string{{
		"batch", "state", view.AgeHeading(now, "age"), "tasks", "done", "dead", "in hand", "weight", "results",
	}}
	for _, r := range rows {
		done, dead, hand := "-", "-", "-"
		if r.BatchCounts != nil {
			done, dead, hand = fmt.Sprint(r.Done), fmt.Sprint(r.Dead), fmt.Sprint(r.InHand)
		}
		table = append(table, []string{
			r.ID, r.State, view.Age(now, r.Since), fmt.Sprint(r.Tasks), done, dead, hand, fmt.Sprint(r.Weight),
			string(r.Results),
		})
	}
	_, err := io.WriteString(to, text.Table(table, columns))
	return err
}

func newCancelCmd(p *process) *cobra.Command {
	return p.newOperateCmd(&cobra.Command{
		Use:   "cancel QUEUE/BATCH",
		Short: "End a batch: kill its commands, and remove its tasks",
		Long: `Ends a batch at once. Commands that run for it are ended, and its tasks and
results are removed; its dead tasks are kept for as long as the queue says.`,
		Example: `  muster queue cancel primes/nightly-7
  muster queue cancel primes/nightly-7 --yes`,
	}, false, "Its commands would be killed, and its tasks and results deleted.", func(
		ctx context.Context, f foundQueue, op *tasks.Operator,
	) error {
		if err := op.Cancel(ctx, f.id); err != nil {
			return err
		}
		p.announce(f.name(), "cancelled")
		return nil
	})
}

func newRetryCmd(p *process) *cobra.Command {
	return p.newOperateCmd(&cobra.Command{
		Use:   "retry QUEUE[/BATCH]",
		Short: "Try the dead tasks of a batch again, or of all batches",
		Long: `Makes the dead tasks of a batch wait again, with all their attempts. If the
batch has ended, they become a batch of their own: its id has ".retry" at the
end. A batch that watchers gave up is given to them again. A queue stands for
all its batches that have dead tasks.`,
		Example: `  muster queue retry primes/nightly-7
  muster queue retry primes`,
	}, true, "", func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
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
		p.announce(f.name(), "%s moved to batch %s", deadTasks(r.Tasks), r.Batch)
	case r.Tasks == 0:
		p.announce(f.name(), "it has no dead tasks; watchers may have it again")
	default:
		p.announce(f.name(), "%s again", text.Plural(int(r.Tasks), "dead task waits", "dead tasks wait"))
	}
	return nil
}

func deadTasks(n int64) string { return text.Count(int(n), "dead task") }

func newDropCmd(p *process) *cobra.Command {
	return p.newOperateCmd(&cobra.Command{
		Use:   "drop QUEUE[/BATCH]",
		Short: "Delete the dead tasks of a batch, or of all batches",
		Long: `Deletes dead tasks for good. Without that they are kept for as long as the queue
says (keep_dead), and count for its max_bytes. A queue stands for all its
batches that have dead tasks.`,
		Example: `  muster queue drop primes/nightly-7
  muster queue drop primes`,
	}, true, "Its dead tasks would be deleted.", func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
		return p.eachBatch(ctx, f, op.WithDead, "there are no dead tasks", func(f foundQueue) error {
			n, err := op.DropDead(ctx, f.id)
			if err == nil && n == 0 {
				err = fmt.Errorf("drop %s: %w", f.name(), tasks.ErrNoDead)
			}
			if err == nil {
				p.announce(f.name(), "%s dropped", deadTasks(n))
			}
			return err
		})
	})
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
		p.announce(f.name(), "%s", none)
	}
	return err
}

func newPauseBatchesCmd(p *process) *cobra.Command {
	return p.newOperateCmd(&cobra.Command{
		Use:   "pause QUEUE[/BATCH]",
		Short: "Execute no more tasks of a batch until it is resumed",
		Long: `Of a batch that is paused no more tasks are executed; those that executors have
are finished. A queue stands for all batches that it has now: one that is
submitted later is not paused.`,
		Example: `  muster queue pause primes/nightly-7
  muster queue pause primes`,
	}, true, "", p.eachBatchTo("paused", (*tasks.Operator).Pause))
}

func newResumeBatchesCmd(p *process) *cobra.Command {
	return p.newOperateCmd(&cobra.Command{
		Use:   "resume QUEUE[/BATCH]",
		Short: "End the pause of a batch, or of all batches",
		Long: `Ends a pause: the tasks of the batch are executed again. A queue stands for all
its batches.`,
		Example: `  muster queue resume primes/nightly-7
  muster queue resume primes`,
	}, true, "", p.eachBatchTo("resumed", (*tasks.Operator).Resume))
}

// eachBatchTo returns what pauses or resumes a batch, or all batches of a queue that are there now. word says what they
// become.
func (p *process) eachBatchTo(
	word string, set func(*tasks.Operator, context.Context, string) (bool, error),
) func(context.Context, foundQueue, *tasks.Operator) error {
	return func(ctx context.Context, f foundQueue, op *tasks.Operator) error {
		return p.eachBatch(ctx, f, op.Batches, "there is no unfinished batch", func(one foundQueue) error {
			changed, err := set(op, ctx, one.id)
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
				p.announce(one.name(), "%s", word)
			default:
				p.announce(one.name(), "it was %s before", word)
			}
			return nil
		})
	}
}
