package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
)

// maxNamedDead is how many dead tasks are named on standard error.
const maxNamedDead = 10

// await waits for a batch that was submitted, prints its results, and ends it.
func (s *submitting) await(ctx context.Context, got tasks.Submitted) error {
	if got.Ended != nil {
		s.bar.clear()
		s.tell(got)
		return s.gone(fmt.Errorf("batch %s has ended %s (%s, by %s): its results are gone", got.ID,
			got.Ended.Ended.Format(time.RFC3339), got.Ended.How, got.Ended.EndedBy))
	}
	f, err := s.scope.findQueue(ctx, resource.Join(s.c.Root, s.c.Queue))
	if err != nil {
		return err
	}
	f.id = got.ID
	op, err := s.p.operator(ctx, s.scope.session, f)
	if err != nil {
		return err
	}
	defer op.Close()
	s.bar.begin(got.ID, got.Manifest.Tasks)
	if queue.FoundOf(f.queue).Executors == 0 && !s.p.flags.quiet {
		s.bar.clear()
		fmt.Fprintf(s.p.err, "no executor is live now; one is started by: muster executor %s --root %s -- COMMAND\n",
			text.ShellWord(s.c.Queue), text.ShellWord(s.c.Root))
	}
	b, end, err := op.Await(ctx, got.ID, got.Manifest, s.bar.books)
	s.bar.clear()
	switch {
	case err != nil:
		return err
	case end != nil:
		return s.gone(fmt.Errorf("batch %s has ended %s (%s, by %s) before its results were printed", got.ID,
			end.Ended.Format(time.RFC3339), end.How, end.EndedBy))
	}
	dead, err := s.print(ctx, op, got)
	if err != nil {
		return err
	}
	s.bar.end(b)
	if _, kept := got.Manifest.Results.Keep(); !kept {
		if err := op.Collected(ctx, got.ID, got.Manifest); err != nil {
			return err
		}
	}
	if dead > 0 {
		return foundAttention
	}
	return nil
}

func (s *submitting) gone(err error) error {
	return &problem{kind: errIncomplete, err: err, next: "submit it with another --id"}
}

// print prints the results in the order of the tasks, and names dead ones. It returns how many are dead. Unless all was
// written, it returns an error.
func (s *submitting) print(ctx context.Context, op *tasks.Operator, got tasks.Submitted) (dead int64, err error) {
	st, err := op.Store(ctx)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(s.p.out, 1<<16)
	all := tasks.InOrder(tasks.Records(ctx, st, got.ID, op.Away(ctx)), got.Manifest.Tasks)
	for r, err := range all {
		if err != nil {
			return dead, s.incomplete(err)
		}
		if ctx.Err() != nil {
			return dead, context.Cause(ctx)
		}
		if r.Dead {
			dead++
			s.nameDead(r, dead)
		}
		if err := s.printOne(out, r); err != nil {
			return dead, err
		}
		if s.p.out.err != nil {
			return dead, s.p.stdoutError()
		}
	}
	if err := out.Flush(); err != nil {
		return dead, err
	}
	if s.p.out.err != nil {
		return dead, s.p.stdoutError()
	}
	if dead > maxNamedDead {
		fmt.Fprintf(s.p.err, "and %d more dead tasks: muster batch %s --dead\n", dead-maxNamedDead,
			text.ShellWord(s.c.Root+"/"+s.c.Queue+"/"+got.ID))
	}
	return dead, nil
}

// incomplete is an error of Redis while results were read.
func (s *submitting) incomplete(err error) error {
	if errors.Is(err, store.ErrNoBatch) {
		return fmt.Errorf("%w: %w", tasks.ErrLost, err)
	}
	return err
}

// printOne prints what became of a task.
func (s *submitting) printOne(out io.Writer, r tasks.Record) error {
	if s.o.json {
		return json.NewEncoder(out).Encode(r)
	}
	if r.Dead {
		return nil
	}
	end := "\n"
	if s.o.null {
		end = "\x00"
	}
	_, err := out.Write(r.Result)
	if err == nil && (s.o.null || !strings.HasSuffix(string(r.Result), end)) {
		_, err = io.WriteString(out, end)
	}
	return err
}

// nameDead names a dead task on standard error.
func (s *submitting) nameDead(r tasks.Record, nth int64) {
	if nth <= maxNamedDead {
		fmt.Fprintf(s.p.err, "task %d is dead: %s\n", r.Index, text.Escape(orUnknown(r.Error)))
	}
}

func orUnknown(reason string) string {
	if reason == "" {
		return "its executor gave no reason"
	}
	return reason
}
