package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/view"
)

type batchesOptions struct {
	batchOptions
	watch, json bool
}

func newBatchesCmd(p *process) *cobra.Command {
	var o batchesOptions
	cmd := p.lookCmd(&cobra.Command{
		Use:   "batches QUEUE",
		Short: "List the unfinished batches of a queue, and how far each is",
		Long: `Lists the unfinished batches of a queue, the oldest first. A batch that is
completed waits for a watcher, its submitter, or the end of the time for which
its results are kept. One that is lost is not in Redis any more: submit it again
with its id, or cancel it. One that is stopped waits for room: the queue holds
more than twice its max_bytes, and nothing of it is executed until a batch ends.`,
		Example: `  muster batches primes
  muster batches primes --watch
  muster batches primes --json | jq -r '.[] | select(.dead > 0) | .id'`,
		Args: argCount(1, 1, "the name of a queue"),
	}, &o.searchFlags, p.completeQueue(&o.searchFlags), anything,
		func(ctx context.Context, scope *searchScope, name string) error {
			return runBatches(ctx, p, scope, o, name)
		})
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "wait `DURATION` for Redis")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show them again whenever they change, until interrupted")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	return cmd
}

func runBatches(ctx context.Context, p *process, scope *searchScope, o batchesOptions, name string) error {
	return p.watch(ctx, scope, o.watch, o.json, func(to, notes io.Writer) error {
		return p.batches(ctx, to, notes, *scope, o, name)
	})
}

// batches prints the batches of a queue once.
func (p *process) batches(
	ctx context.Context, to, notes io.Writer, scope searchScope, o batchesOptions, name string,
) error {
	f, err := scope.findQueue(ctx, name)
	if err != nil {
		return err
	}
	state, err := scope.reader().QueueState(ctx, f.queue)
	if err != nil {
		return err
	}
	rows := make([]view.BatchRow, 0, len(state.Batches))
	for _, b := range state.Batches {
		rows = append(rows, view.BatchRow{Batch: b})
	}
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
		err = writeBatches(to, f, rows, now)
		p.nextOfStopped(to, f, rows)
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

// nextOfStopped says what to do if a batch is stopped.
func (p *process) nextOfStopped(to io.Writer, f foundQueue, rows []view.BatchRow) {
	if i := slices.IndexFunc(rows, func(r view.BatchRow) bool { return r.State == stopped }); i >= 0 {
		f.id = rows[i].ID
		fmt.Fprintf(to, "\nnext: %s\n", p.paste(batchDetail{BatchRow: rows[i]}.next(f)))
	}
}

// shortAnswer is how long a command waits for Redis that can do without.
const shortAnswer = 3 * time.Second

// countBatches adds to rows what Redis knows.
func (p *process) countBatches(
	ctx context.Context, scope searchScope, timeout time.Duration, f foundQueue, rows []view.BatchRow,
) error {
	quiet := *p
	quiet.flags.quiet = true // the note tells
	return quiet.operateOn(ctx, scope, timeout, f, func(ctx context.Context, _ foundQueue, op *tasks.Operator) error {
		st, err := op.Store(ctx)
		if err != nil {
			return err
		}
		held, err := st.Full(ctx, int64(op.Queue.MaxBytes))
		if err != nil {
			return err
		}
		known, err := st.ByID(ctx)
		if err != nil {
			return err
		}
		for i := range rows {
			b, there := known[rows[i].ID]
			count(&rows[i], b, there, held > 0)
		}
		return nil
	})
}

// count adds what Redis knows of a batch. full: nothing of its queue is executed.
func count(r *view.BatchRow, b store.Batch, there, full bool) {
	switch {
	case !there && r.State != "submitting":
		r.State = "lost"
		return
	case !there:
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
		r.State = stopped
	}
}

// stopped is the state of an open batch that cannot go on, because Redis holds more than twice max_bytes.
const stopped = "stopped"

// writeBatches writes the table. Without now it has times instead of ages, and changes only when something happens.
func writeBatches(to io.Writer, f foundQueue, rows []view.BatchRow, now time.Time) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(to, "%s has no unfinished batch.\n", text.Escape(f.path))
		return err
	}
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "batch\tstate\t%s\ttasks\tdone\tdead\tin hand\tweight\tresults\n", view.AgeHeading(now, "age"))
	for _, r := range rows {
		done, dead, hand := "-", "-", "-"
		if r.BatchCounts != nil {
			done, dead, hand = fmt.Sprint(r.Done), fmt.Sprint(r.Dead), fmt.Sprint(r.InHand)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", text.Escape(r.ID), r.State,
			view.Age(now, r.Since), r.Tasks, done, dead, hand, r.Weight, text.Escape(string(r.Results)))
	}
	return t.Flush()
}
