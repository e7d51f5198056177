package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"muster/wrap"
)

type executorOptions struct {
	queueOptions
	parallel   int
	lines      string
	untilEmpty bool
	maxTasks   int64
}

func newExecutorCmd(p *process) *cobra.Command {
	var o executorOptions
	o.pauses = true
	cmd := &cobra.Command{
		Use:   "executor QUEUE -- COMMAND [ARGS...]",
		Short: "Execute tasks of a queue, a process or a line each",
		Long: `Runs the command for each task. It gets the task on its standard input, or in
place of each {} in its arguments; what it writes to standard output is the
result if it exits with 0. After exit 65 the task is dead; after anything else,
or longer than the task_timeout, it is tried again as the queue says. The reason
ends with the last line of standard error.

With --lines the command starts once for each of --parallel, and answers each
line that it reads with one line that it writes, in order, and flushes. With
--lines=json it reads {"task":...,"batch":...,"index":...,"attempt":...} and
answers {"result":...} or {"error":"why","retry":false}. It has one task at a
time. When it ends before it has answered, the next one gets that task first:
only a task that ends it alone is charged.

SIGTERM ends it: its commands get SIGTERM, and SIGKILL after the grace; their
tasks go back, and nothing is charged. SIGTSTP: it takes nothing more, until
SIGCONT. No command outlives it, whatever ends it.`,
		Example: `  muster executor primes -- factor {}
  muster executor images --parallel 4 -- ./thumbnail
  muster executor primes --lines -- python3 -u primes.py
  muster executor primes --until-empty -- sh -c 'read n; factor $n'`,
	}
	p.queueProcessCmd(cmd, &o.queueOptions, func(ctx context.Context) error { return p.runExecutor(ctx, o) })
	fs := cmd.Flags()
	fs.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "run `N` commands at once; default: one for each processor")
	lines := choice{&o.lines, "lines", []string{string(wrap.LinesPlain), string(wrap.LinesJSON)}}
	fs.Var(lines, "lines", "long-lived commands: a line in, a line out, of `FORMAT` plain or json")
	fs.Lookup("lines").NoOptDefVal = string(wrap.LinesPlain)
	fs.BoolVar(&o.untilEmpty, "until-empty", false, "end when no task is left to take")
	fs.Int64Var(&o.maxTasks, "max-tasks", 0, "end after `N` tasks; default: never")
	fs.Lookup("parallel").DefValue = "0" // it is in the text
	completeWith(cmd, "lines", lines.words...)
	return cmd
}

func (o *executorOptions) check() error {
	switch {
	case o.parallel < 1 || o.parallel > maxParallel:
		return usagef("muster executor --parallel 4", "--parallel %d is not between 1 and %d", o.parallel, maxParallel)
	case o.maxTasks < 0:
		return usagef("muster executor --max-tasks 1000", "--max-tasks %d is negative", o.maxTasks)
	}
	return nil
}

// maxParallel bounds --parallel: each command is a process, with three pipes and a thread.
const maxParallel = 1000

func (p *process) runExecutor(ctx context.Context, o executorOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	return p.runQueueProcess(o.queueOptions, "muster executor", func(c wrap.QueueConfig) wrap.Result {
		c.Process.Parallel = o.parallel
		return wrap.RunExecutor(ctx, wrap.ExecutorConfig{
			QueueConfig: c, Lines: wrap.Lines(o.lines), UntilEmpty: o.untilEmpty, MaxTasks: o.maxTasks,
			GuardAll: guardCommand(guardGroupsName),
			Hint:     func(hint string) { fmt.Fprintf(p.err, "hint: %s\n", hint) },
		})
	})
}
