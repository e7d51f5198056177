package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/worker"
	"muster/wrap"
	"muster/wrap/command"
	"muster/wrap/lines"
)

type queueOptions struct {
	lifeOptions
	queue string
}

// queueProcessCmd makes a command that joins a queue. It fills in everything but Use, Short, Long, Example and the
// flags that are not common; run is called when o has been filled from the arguments.
func (p *process) queueProcessCmd(
	cmd *cobra.Command, o *queueOptions, run func(ctx context.Context) error,
) *cobra.Command {
	p.lifeCmd(cmd, queueArguments, func(cmd *cobra.Command, args []string) error {
		o.queue, o.command = args[0], args[1:]
		return run(cmd.Context())
	})
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, typed string,
	) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // the command
		}
		f := o.searched()
		f.none = true
		names := p.candidates(cmd.Context(), f).matchingParts(typed, queue.KindName)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	o.placeFlags.addTo(cmd.Flags(), "queue", fromFile)
	o.lifeOptions.addTo(cmd.Flags(), "queue",
		"in muster status (MUSTER_IDENTITY); default one of its own, from the host and the process",
		"queue and Redis", " and /metrics")
	cmd.Flags().DurationVar(&o.grace, "grace", 0,
		"kill a command if it has not ended `DURATION` after it was asked to; default: what the queue says")
	return cmd
}

// queueArguments wants QUEUE -- COMMAND.
func queueArguments(cmd *cobra.Command, args []string) error {
	usage, dash := cmd.CommandPath()+" QUEUE -- COMMAND", cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usagef(usage, "%s needs the name of a queue", cmd.CommandPath())
	case dash < 0 && len(args) > 1 || dash > 1:
		if lines := cmd.Flags().Lookup("lines"); lines != nil && lines.Changed && args[1] == "json" {
			usage = cmd.CommandPath() + " QUEUE --lines=json -- COMMAND"
		}
		return usagef(usage, "put -- before the command: %q stands before it", args[1])
	case dash < 0 || len(args) == dash:
		return usagef(usage, "%s needs a command after --", cmd.CommandPath())
	}
	return nil
}

// check takes the root from the path of the queue, and then from the environment, if no flag has set it, and refuses
// wrong values; command is how this command is called.
func (o *queueOptions) check(command string, e environ) error {
	if path.IsAbs(o.queue) && o.root == "" {
		o.root, o.queue = path.Dir(o.queue), path.Base(o.queue)
	}
	if err := o.lifeOptions.check(command, e); err != nil {
		return err
	}
	if err := resource.CheckName("queue", o.queue); err != nil {
		return usagef(command+" QUEUE -- COMMAND", "%w", err)
	}
	return nil
}

func (p *process) runQueueProcess(
	o queueOptions, name string, run func(wrap.QueueConfig) command.Result, more ...os.Signal,
) error {
	if err := o.check(name, p.environ); err != nil {
		return err
	}
	_, t, err := p.place(&o.placeFlags, queue.KindName, o.queue)
	if err != nil {
		return err
	}
	c, err := p.queueConfig(o, t)
	if err != nil {
		return err
	}
	return p.live(&c.Life, func() command.Result { return run(c) }, func(err error) error {
		return queueError(err, foundQueue{path: path.Join(o.root, o.queue)})
	}, more...)
}

func (p *process) queueConfig(o queueOptions, t target) (c wrap.QueueConfig, err error) {
	host, _ := os.Hostname()
	own := fmt.Sprintf("%s-%d-%s", cmp.Or(host, "host"), os.Getpid(), rand.Text()[:4])
	identity, _, err := worker.Identify(o.identity, func(name string) string {
		if name == "MUSTER_IDENTITY" { // what else names a worker may name an executor and a watcher alike
			return p.environ.value(name)
		}
		return ""
	}, "", own)
	if err != nil {
		return c, usagef("give a --identity", "%w", err)
	}
	c.Process = tasks.Config{
		Root: o.root, Queue: o.queue, Identity: identity, Redis: tasks.Access{Getenv: p.environ.value}, Log: p.log,
		Waiting: p.waitingFor,
	}
	c.Life = p.life(o.lifeOptions, t, queue.Default().Timeouts.Session)
	c.Joined = func(joined *tasks.Process) {
		p.say("joined %s as %s", joined.Queue().Path(), joined.Identity)
	}
	return c, nil
}

type executorOptions struct {
	queueOptions
	parallel   int
	lines      string
	untilEmpty bool
	maxTasks   int64
}

func newExecutorCmd(p *process) *cobra.Command {
	var o executorOptions
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
	format := choice{&o.lines, "lines", []string{string(lines.Plain), string(lines.JSON)}}
	fs.Var(format, "lines", "long-lived commands: a line in, a line out, of `FORMAT` plain or json")
	fs.Lookup("lines").NoOptDefVal = string(lines.Plain)
	fs.BoolVar(&o.untilEmpty, "until-empty", false, "end when no task is left to take")
	fs.Int64Var(&o.maxTasks, "max-tasks", 0, "end after `N` tasks; default: never")
	fs.Lookup("parallel").DefValue = "0" // it is in the text
	completeWith(cmd, "lines", format.words...)
	return cmd
}

// maxParallel bounds --parallel: each command is a process, with three pipes and a thread.
const maxParallel = 1000

func (p *process) runExecutor(ctx context.Context, o executorOptions) error {
	switch {
	case o.parallel < 1 || o.parallel > maxParallel:
		return usagef("muster executor --parallel 4", "--parallel %d is not between 1 and %d", o.parallel, maxParallel)
	case o.maxTasks < 0:
		return usagef("muster executor --max-tasks 1000", "--max-tasks %d is negative", o.maxTasks)
	}
	return p.runQueueProcess(o.queueOptions, "muster executor", func(c wrap.QueueConfig) command.Result {
		c.Process.Parallel = o.parallel
		return wrap.RunExecutor(ctx, wrap.ExecutorConfig{
			QueueConfig: c, Lines: lines.Format(o.lines), UntilEmpty: o.untilEmpty, MaxTasks: o.maxTasks,
			Hint: func(hint string) { fmt.Fprintf(p.err, "hint: %s\n", hint) },
		})
	}, syscall.SIGTSTP) // which is not for the terminal: it means "take nothing more"
}

func newWatcherCmd(p *process) *cobra.Command {
	var o queueOptions
	cmd := &cobra.Command{
		Use:   "watcher QUEUE -- COMMAND [ARGS...]",
		Short: "Do something with the results of completed batches of a queue",
		Long: `Runs the command for each completed batch, one after the other. Each batch goes
to one of the queue's watchers. The command gets what became of the tasks on its
standard input, one line of JSON for each: index, attempt, exit, ms, host, and
result, or base64 if that is no text; a dead task has dead, error and task.
MUSTER_BATCH is the id, MUSTER_ATTEMPT the try, from 1.

If the command ends with 0, the batch ends: its tasks and results are deleted.
Otherwise it goes back, and a watcher gets it again after the backoff of the
queue, as often as its attempts say; then it waits for "muster queue retry". The
command may run twice for one batch, if its watcher dies before that is noted.
It has no timeout. When the watcher is stopped it gets SIGTERM, and SIGKILL
after the grace; nothing is charged then. When the watcher dies or loses its
session, it is killed.`,
		Example: `  muster watcher primes -- ./collect
  muster watcher primes -- sh -c 'jq -r .result > out/$MUSTER_BATCH'
  muster watcher primes -- sh -c 'muster submit next --id "$MUSTER_BATCH"'`,
	}
	return p.queueProcessCmd(cmd, &o, func(ctx context.Context) error {
		return p.runQueueProcess(o, "muster watcher", func(c wrap.QueueConfig) command.Result {
			return wrap.RunWatcher(ctx, c)
		})
	})
}
