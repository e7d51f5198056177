package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"syscall"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/text"
	"muster/worker"
	"muster/wrap"
)

// queueOptions are what "muster executor" and "muster watcher" have in common.
type queueOptions struct {
	lifeOptions
	queue  string
	pauses bool // SIGTSTP is not for the terminal: it means "take nothing more"
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
		names := p.candidates(cmd.Context(), "", searchFlags{root: o.root}).matchingParts(typed, queue.KindName)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	o.addTo(cmd.Flags(), "queue", "in muster status (MUSTER_IDENTITY); default one of its own, from the host and the process",
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

// fill takes from the path of the queue, and then from the environment, what no flag has set.
func (o *queueOptions) fill(e environ) {
	if path.IsAbs(o.queue) && o.root == "" {
		o.root, o.queue = path.Dir(o.queue), path.Base(o.queue)
	}
	o.root = cmp.Or(o.root, e.value("MUSTER_ROOT"), resource.DefaultRoot)
}

// check refuses wrong values; command is how this command is called.
func (o *queueOptions) check(command string) error {
	if err := o.lifeOptions.check(command); err != nil {
		return err
	}
	if err := resource.CheckName("queue", o.queue); err != nil {
		return usagef(command+" QUEUE -- COMMAND", "%w", err)
	}
	if err := resource.CheckRoot(o.root); err != nil {
		return usagef(command+" --root "+resource.DefaultRoot, "root: %w", err)
	}
	return nil
}

// runQueueProcess fills and checks o, and calls run with what follows from it.
func (p *process) runQueueProcess(
	o queueOptions, command string, run func(wrap.QueueConfig) wrap.Result,
) error {
	o.fill(p.environ)
	if err := o.check(command); err != nil {
		return err
	}
	c, err := p.queueConfig(o)
	if err != nil {
		return err
	}
	var more []os.Signal
	if o.pauses {
		more = append(more, syscall.SIGTSTP)
	}
	return p.live(&c.Life, func() wrap.Result { return run(c) }, func(err error) error {
		return queueError(err, foundQueue{path: path.Join(o.root, o.queue)})
	}, more...)
}

// queueConfig builds the configuration of a process of a queue from the flags and the environment.
func (p *process) queueConfig(o queueOptions) (c wrap.QueueConfig, err error) {
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
		Waiting: p.waitingForQueue,
	}
	c.Life = p.life(o.lifeOptions, p.target(target{}), queue.Default().Timeouts.Session)
	c.Joined = func(joined *tasks.Process) {
		if !p.flags.quiet {
			fmt.Fprintf(p.err, "joined %s as %s\n", joined.Queue().Path(), text.Escape(joined.Identity))
		}
	}
	return c, nil
}
