package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/text"
	"muster/worker"
	"muster/wrap"
)

type workerOptions struct {
	lifeOptions
	job             string
	dir             string // of the configuration
	declared        bool   // --file is given: create the job as the configuration declares it
	vars            varFlags
	advertise, run  string
	start, takeover string
	onLoss          string
}

func newWorkerCmd(p *process) *cobra.Command {
	var o workerOptions
	cmd := p.lifeCmd(&cobra.Command{
		Use:   "worker --job NAME [-- COMMAND ARGS...]",
		Short: "Join a job as one of its workers, and run a command as that",
		Long: `Joins the job and runs the command as one of its workers: signals are passed
on, the exit code is the command's, and when the command has ended by itself
with 0 the worker has completed. The command is told who it is by MUSTER_ID and
other variables, and takes part with "muster barrier" and its like. Without a
command the worker prints its id and who has joined, and stays until it is
interrupted.

The last line on standard error says whose the exit code is.`,
		Example: `  muster worker --job ingest -- ./ingest.sh
  muster worker --job etl -- sh -c 'load && muster barrier go --round 1 && run'
  muster worker --job ingest --root /jobs/prod --identity worker-0`,
	}, func(cmd *cobra.Command, args []string) error {
		return requireDash(cmd, args, "muster worker --job NAME")
	}, func(cmd *cobra.Command, args []string) error {
		o.command, o.declared = args, cmd.Flags().Changed("file")
		return runWorker(cmd.Context(), p, o)
	})
	fs := cmd.Flags()
	fs.StringVar(&o.job, "job", "", "`NAME` of the job")
	o.addTo(fs, "job", "that survives a restart (MUSTER_IDENTITY); default the index of a container, else the address",
		"job, a place and for all", " and /metrics")
	fs.StringVarP(&o.dir, "file", "f", "",
		"create the job as the configuration in `DIR`, or one file, declares it, if it is missing")
	o.vars.addTo(fs)
	fs.StringVar(&o.advertise, "advertise", "",
		"`HOST:PORT` at which other workers reach this one; default this machine and a free port")
	fs.StringVar(&o.run, "run", "",
		"`NAME` of this run, such as build/1234: it is not joined again once it has completed (MUSTER_RUN)")
	choose(cmd, fs, &o.start, "start", "start the command `WHEN`: joined, all (have joined) or barrier (all are live)",
		string(wrap.StartJoined), string(wrap.StartAll), string(wrap.StartBarrier))
	choose(cmd, fs, &o.takeover, "takeover", "`DO` that while an older process is this worker: wait or fail", "wait", "fail")
	choose(cmd, fs, &o.onLoss, "on-loss",
		"`DO` that when the session is lost: rejoin, or stop, which kills the command at once",
		string(wrap.LossRejoin), string(wrap.LossStop))
	fs.DurationVar(&o.grace, "grace", 30*time.Second,
		"kill the command if it has not ended `DURATION` after it was asked to")
	p.completeWorker(cmd, &o)
	return cmd
}

func runWorker(ctx context.Context, p *process, o workerOptions) error {
	if err := o.check("muster worker"); err != nil {
		return err
	}
	if err := resource.CheckName("job", o.job); err != nil {
		return usagef("muster worker --job NAME", "--job: %w", err)
	}
	c, err := p.workerConfig(o)
	if err != nil {
		return err
	}
	return p.live(&c.Life, func() wrap.Result { return wrap.Run(ctx, c) }, func(err error) error {
		return explain(err, []remedy{
			{nil, "start the worker again: it takes up its id", of{worker.ErrSessionLost}},
			{nil, "muster status --root {root} lists the jobs there; if this one is missing, declare it, then: muster apply",
				of{worker.ErrNoJob}},
		}, "{root}", c.Worker.Root)
	})
}

// waitWithoutCommand prints who has joined, and waits until ctx ends.
func (p *process) waitWithoutCommand(ctx context.Context, m *worker.Member) error {
	ws, err := m.Joined(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, joinedAs(m))
	for _, w := range ws {
		fmt.Fprintf(p.out, "  %-5d %s\n", w.ID, text.Escape(w.Address()))
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func joinedAs(m *worker.Member) string {
	return fmt.Sprintf("joined %s as worker %d of %d: %s", m.Job.Path(), m.ID, m.Job.Workers, m.Identity)
}
