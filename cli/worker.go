package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/wrap/command"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

type workerOptions struct {
	lifeOptions
	memberFlags
	job            string
	declared       bool // --file is given: create the job as the configuration declares it
	advertise, run string
	rack, center   string
	ports          []string
	index, start   string
	startGiven     bool
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
	}, requireDash("muster worker --job NAME"), func(cmd *cobra.Command, args []string) error {
		o.command, o.declared, o.startGiven = args, cmd.Flags().Changed("file"), cmd.Flags().Changed("start")
		if !cmd.Flags().Changed("on-loss") {
			o.onLoss = "" // it is another one in a gang
		}
		return runWorker(cmd.Context(), p, o)
	})
	fs := cmd.Flags()
	fs.StringVar(&o.job, "job", "", "`NAME` of the job")
	o.lifeOptions.addTo(fs, "job",
		"that survives a restart (MUSTER_IDENTITY); default the index of a container, else the address",
		"job, a place and for all", " and /metrics")
	o.placeFlags.addTo(fs, "job", "take root and servers from the configuration in `DIR`, or one file (MUSTER_FILE); "+
		"the flag also creates the job as declared there, if it is missing")
	fs.StringVar(&o.advertise, "advertise", "",
		"`HOST:PORT` at which other workers reach this one; default this machine and a free port")
	fs.StringVar(&o.rack, "rack", "",
		"`RACK` that the worker is in, for the others to read: muster does not place by it (MUSTER_RACK)")
	fs.StringVar(&o.center, "datacenter", "",
		"`NAME` of the data center that the worker is in, for the others to read (MUSTER_DATACENTER)")
	fs.StringArrayVar(&o.ports, "port", nil,
		"`NAME=PORT` is another port of the worker, for the others to read (repeatable, up to 16)")
	for _, flag := range []string{"rack", "datacenter", "port"} {
		completeWith(cmd, flag)
	}
	fs.StringVar(&o.index, "index", "", "`K` is the worker's id, if the job declares ids = \"index\"; "+
		"default the index of a container, else the number after the last dash of the identity")
	fs.StringVar(&o.run, "run", "",
		"`NAME` of this run, such as build/1234: it is not joined again once it has completed (MUSTER_RUN)")
	choose(cmd, fs, &o.start, "start", "start the command `WHEN`: joined, all (have joined) or barrier (all are live)",
		string(wrap.StartJoined), string(wrap.StartAll), string(wrap.StartBarrier))
	o.memberFlags.addTo(cmd)
	addGrace(fs, &o.grace)
	completeFlag(cmd, "job", func(ctx context.Context, _ []string, _ string) []string {
		return p.jobNames(ctx, o.searched())
	})
	_ = cmd.MarkFlagFilename("file", "hcl", "hcl.json")
	return cmd
}

func runWorker(ctx context.Context, p *process, o workerOptions) error {
	if err := resource.CheckName("job", o.job); err != nil {
		return usagef("muster worker --job NAME", "--job: %w", err)
	}
	if err := o.check("muster worker --job "+o.job, p.environ); err != nil {
		return err
	}
	c, err := p.workerConfig(o)
	if err != nil {
		return err
	}
	p.job = resource.Join(c.Worker.Root, o.job)
	return p.live(&c.Life, func() command.Result { return wrap.Run(ctx, c) }, func(err error) error {
		return withRemedy(err, []remedy{
			{nil, "start the worker again: it takes up its id", errorSet{worker.ErrSessionLost}},
			{nil, "muster status --root {root} lists the jobs there; if this one is missing, declare it, then: muster apply",
				errorSet{worker.ErrNoJob}},
		}, "{root}", c.Worker.Root)
	})
}

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

func (p *process) workerConfig(o workerOptions) (c wrap.Config, err error) {
	quiet := p.flags.quiet || len(o.command) == 0 // without a command, waitWithoutCommand prints it
	cfg, t, err := p.place(&o.placeFlags, job.KindName, o.job)
	if err != nil {
		return c, err
	}
	declared := job.Default()
	if o.declared {
		d, err := declaredAs(cfg, job.KindName, o.job, o.root)
		if err != nil {
			return c, err
		}
		declared = d.(job.Job)
		c.Create = func(ctx context.Context, s *zkconn.Session) error {
			return p.createJob(ctx, s, p.storeConfig(t, cfg.Home, cfg.Stack, cfg.ZooKeeper.ACL), declared, quiet)
		}
	}
	c.Life = p.life(o.lifeOptions, t, declared.Timeouts.Session)
	c.Start, c.OnLoss, c.Idle = wrap.Start(o.start), wrap.OnLoss(o.onLoss), p.waitWithoutCommand
	c.LocalIP = func(ctx context.Context) (net.IP, error) {
		ip, err := zkconn.LocalIP(ctx, t.servers)
		return ip, wrapDialError(err)
	}
	c.Unstable = p.warnUnstable
	c.Joined = func(m *worker.Member) {
		if !quiet {
			fmt.Fprintln(p.err, joinedAs(m))
		}
	}
	c.Worker, err = p.workerIdentity(o)
	c.Worker.Root, c.Worker.Job = o.root, o.job
	c.Worker.Waiting, c.Worker.Fits = p.waitingFor, o.fits
	return c, err
}

// fits refuses what a worker of a gang cannot be told.
func (o *workerOptions) fits(j job.Job) error {
	switch {
	case j.Gang == nil:
		return nil
	case len(o.command) == 0:
		return usagef("muster worker --job "+j.Name+" -- COMMAND", "the job is a gang, and its workers need a command")
	case o.startGiven:
		return usagef("leave --start out", "--start: the job is a gang, whose commands start when all are live")
	}
	return nil
}

// workerIdentity returns who joins. An empty identity becomes the address. The address is empty without --advertise.
func (p *process) workerIdentity(o workerOptions) (c worker.Config, err error) {
	if o.advertise != "" {
		host, port, err := wrap.ParseAddress(o.advertise)
		if err != nil {
			return c, usagef("muster worker --advertise 10.0.0.1:7000", "--advertise %w", err)
		}
		c.Info = znode.Worker{IP: host, Port: port}
	}
	if err := p.workerPlace(o, &c.Info); err != nil {
		return c, err
	}
	if o.index != "" {
		k, err := worker.ParseIndex(o.index)
		if err != nil {
			return c, usagef("muster worker --job NAME --index 0", "--index: %w", err)
		}
		c.Index = &k
	}
	named := o.identity
	if named == "" && o.index != "" && p.environ.value("MUSTER_IDENTITY") == "" {
		named = "worker-" + o.index
	}
	host, _ := os.Hostname() // an empty name is no stable identity
	identity, stable, err := worker.Identify(named, p.environ.value, host, c.Info.Address())
	switch {
	case err != nil:
		return c, usagef("muster worker --identity NAME", "%w", err)
	case stable:
		c.Identity = identity
	}
	c.FindIndex = func(identity string) (int, error) { return worker.FindIndex(p.environ.value, identity) }
	run, source := o.run, "--run"
	if run == "" {
		run, source = p.environ.value("MUSTER_RUN"), "MUSTER_RUN"
	}
	if run != "" {
		if err := job.CheckRun(run); err != nil {
			return c, usagef("muster worker --run 2026-11-21", "%s %q: %w", source, run, err)
		}
	}
	c.Run = run
	c.FailHeld = o.takeover == "fail"
	return c, nil
}

// workerPlace adds where the worker is, and its additional ports.
func (p *process) workerPlace(o workerOptions, to *znode.Worker) error {
	name := func(given, flag, variable, example string) (string, error) {
		source := flag
		if given == "" {
			given, source = p.environ.value(variable), variable
		}
		if given == "" {
			return "", nil
		}
		if err := znode.CheckPlace(given); err != nil {
			return "", usagef("muster worker --job NAME "+flag+" "+example, "%s: %w", source, err)
		}
		return given, nil
	}
	var err, centerErr error
	to.Node.Rack, err = name(o.rack, "--rack", "MUSTER_RACK", "r7")
	to.Node.Datacenter, centerErr = name(o.center, "--datacenter", "MUSTER_DATACENTER", "eu-1")
	if err = cmp.Or(err, centerErr); err != nil {
		return err
	}
	to.Ports, err = namedPorts(o.ports)
	return err
}

// namedPorts reads additional ports, each as NAME=PORT.
func namedPorts(all []string) (map[string]int, error) {
	var ports map[string]int
	next := "muster worker --job NAME --port metrics=9090"
	for _, given := range all {
		name, digits, _ := strings.Cut(given, "=")
		port, err := strconv.Atoi(digits)
		switch _, twice := ports[name]; {
		case err != nil:
			return nil, usagef(next, "--port %.100q is not NAME=PORT", given)
		case twice:
			return nil, usagef(next, "--port: two ports have the name %.100q", name)
		case ports == nil:
			ports = map[string]int{}
		}
		ports[name] = port
	}
	if err := znode.CheckPorts(ports); err != nil {
		return nil, usagef(next, "--port: %w", err)
	}
	return ports, nil
}

// createJob creates the job as an apply would, unless it exists.
func (p *process) createJob(ctx context.Context, s *zkconn.Session, c zkstate.Config, j job.Job, quiet bool) error {
	store, err := zkstate.NewStore(s, c)
	if err != nil {
		return err
	}
	o, err := store.Look(ctx, j.Path())
	if err != nil || o != nil {
		return err
	}
	err = store.Commit(ctx, plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
	switch {
	case errors.Is(err, plan.ErrMoved), errors.Is(err, plan.ErrAlreadyDone): // another worker has created it
		return nil
	case err == nil && !quiet:
		fmt.Fprintf(p.err, "created %s as %s declares it\n", j.Path(), j.At)
	}
	return err
}
