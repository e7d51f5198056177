package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/view"
)

type batchCmdOptions struct {
	batchOptions
	dead, results, json bool
}

// batchDetail is one batch in JSON.
type batchDetail struct {
	view.BatchRow
	Queue       string    `json:"queue"`
	SHA256      string    `json:"sha256"`
	How         string    `json:"how,omitempty"` // it ended
	EndedBy     string    `json:"ended_by,omitempty"`
	Ended       time.Time `json:"ended,omitzero"`
	Generation  string    `json:"generation"`
	TaskTimeout string    `json:"task_timeout"`
}

func newBatchDetailCmd(p *process) *cobra.Command {
	var o batchCmdOptions
	cmd := p.newBatchCmd(&cobra.Command{
		Use:   "batch QUEUE/BATCH",
		Short: "Show a batch of a queue, its results, or its dead tasks",
		Long: `Shows a batch, also one that has ended within the last week. --results prints a
line of JSON for each task that is done or dead, in the order in which they
were finished; the batch stays as it is. --dead prints the dead tasks, which are
kept for a while after the end of their batch.`,
		Example: `  muster batch primes/nightly-7
  muster batch primes/nightly-7 --dead
  muster batch primes/nightly-7 --results | jq -r .result`,
		Args: argCount(1, 1, "one batch, as QUEUE/BATCH"),
	}, &o.batchOptions, p.completeBatch(&o.searchFlags, false), searchScope.findBatch, func(string) error {
		if o.dead && o.results {
			return usagef("leave out --dead", "--results prints the dead tasks, too")
		}
		return nil
	}, func(ctx context.Context, f foundQueue, op *tasks.Operator) error { return runBatch(ctx, p, o, f, op) })
	cmd.Flags().BoolVar(&o.dead, "dead", false, "print the dead tasks; --timeout is for all of that")
	cmd.Flags().BoolVar(&o.results, "results", false,
		"print a line of JSON for each finished task; --timeout is for all of that")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON; with --dead a line for each task")
	return cmd
}

func runBatch(ctx context.Context, p *process, o batchCmdOptions, f foundQueue, op *tasks.Operator) error {
	d, err := readBatch(ctx, f, op)
	if errors.Is(err, tasks.ErrNoBatch) && o.dead { // dead tasks may be kept for longer than the end is known
		err = nil
	}
	switch {
	case err != nil:
		return err
	case o.dead, o.results && d.How != "":
		return p.printDead(ctx, o, f, op)
	case o.results:
		return p.printRecords(ctx, f, op)
	case o.json:
		return p.printJSON(d)
	}
	return d.write(p.out, f, p.paste(d.next(f)), time.Now())
}

// readBatch reads an unfinished batch, or how it has ended.
func readBatch(ctx context.Context, f foundQueue, op *tasks.Operator) (batchDetail, error) {
	d := batchDetail{Queue: f.path, Generation: op.Generation}
	m, err := op.Manifest(ctx, f.id)
	if errors.Is(err, tasks.ErrNoBatch) {
		end, endErr := op.Ended(ctx, f.id)
		if endErr != nil || end == nil {
			return d, errors.Join(endErr, fmt.Errorf("%s: %w, nor did one end lately", f.name(), err))
		}
		d.How, d.EndedBy, d.Ended = string(end.How), end.EndedBy, end.Ended
		d.BatchCounts = &view.BatchCounts{Done: end.Done, Dead: end.Dead, Attempts: cmp.Or(end.Attempts, op.Queue.Attempts)}
		m.BatchManifest, err = end.BatchManifest, nil
	}
	if err != nil {
		return d, err
	}
	counts := d.BatchCounts
	d.BatchRow = view.BatchRow{
		Batch: view.Batch{
			ID: f.id, State: string(m.State), Tasks: m.Tasks, Bytes: m.Bytes, Weight: m.Weight, Results: m.Results,
			By: m.By, Since: m.Since,
		},
		BatchCounts: counts,
	}
	d.SHA256, d.TaskTimeout = m.SHA256, cmp.Or(m.TaskTimeout, op.Queue.TaskTimeout).String()
	if d.How != "" {
		d.State = "ended"
		return d, nil
	}
	b, err := op.Books(ctx, f.id)
	there := err == nil
	if !there && !errors.Is(err, store.ErrNoBatch) {
		return d, err
	}
	held, err := op.Full(ctx)
	count(&d.BatchRow, b, there, held > 0)
	return d, err
}

// write writes a batch for people, with what they can do next.
func (d batchDetail) write(to io.Writer, f foundQueue, next string, now time.Time) error {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, text.Escape(fmt.Sprintf(format, args...)))
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
	if err := t.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(to, "\nnext: %s\n", next)
	}
	return nil
}

// next is what the user can do.
func (d batchDetail) next(f foundQueue) string {
	switch c := d.BatchCounts; {
	case d.State == "lost":
		return "submit it again with its --id, or: muster cancel " + f.words()
	case d.State == "broken":
		return "muster cancel " + f.words()
	case d.State == stopped:
		return "raise max_bytes of the queue and apply; or, to give this batch up: muster cancel " + f.words()
	case c != nil && c.Dead > 0:
		return "muster batch " + f.words() + " --dead shows why; muster retry " + f.words() + " tries them again"
	case c != nil && c.Tries > 0:
		return "muster retry " + f.words() + " lets watchers have it again"
	case d.State == "paused":
		return "muster resume " + f.words()
	}
	return ""
}

// printRecords prints what became of the finished tasks.
func (p *process) printRecords(ctx context.Context, f foundQueue, op *tasks.Operator) error {
	st, err := op.Store(ctx)
	if err != nil {
		return err
	}
	for r, err := range tasks.Records(ctx, st, f.id, op.Away(ctx)) {
		if err != nil {
			return err
		}
		if err := p.printJSONLine(r); err != nil || p.out.err != nil {
			return err
		}
	}
	return nil
}

// printDead prints the dead tasks.
func (p *process) printDead(ctx context.Context, o batchCmdOptions, f foundQueue, op *tasks.Operator) error {
	st, err := op.Store(ctx)
	if err != nil {
		return err
	}
	n := 0
	for r, err := range tasks.DeadTasks(ctx, st, f.id, op.Away(ctx)) {
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

// maxShownTask is how much of a dead task is shown.
const maxShownTask = 200

// printDeadTask prints a dead task for people.
func (p *process) printDeadTask(r tasks.Record) {
	task := string(r.Task)
	if len(task) > maxShownTask {
		task = fmt.Sprintf("%s... (%s)", task[:maxShownTask], text.Size(int64(len(r.Task))))
	}
	fmt.Fprintf(p.out, "task %d: %s\n", r.Index, text.Escape(task))
	fmt.Fprintf(p.out, "  died %s in attempt %d: %s\n", r.Died.UTC().Format(time.RFC3339), r.Attempt,
		text.Escape(orUnknown(r.Error)))
	if len(r.Tail) > 0 {
		for line := range strings.SplitSeq(strings.TrimRight(string(r.Tail), "\n"), "\n") {
			fmt.Fprintf(p.out, "  | %s\n", text.Escape(line))
		}
	}
}
