package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/resource"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/zkstate/zkconn"
)

// workerOptions of "muster worker".
type workerOptions struct {
	job, root           string
	dir                 string // of the configuration
	declared            bool   // --file is given: create the job as the configuration declares it
	vars                varFlags
	identity, advertise string
	run                 string
	start, takeover     string
	onLoss              string
	lifeOptions
}

// lifeOptions are what all commands have in common that run a command as a member of something.
type lifeOptions struct {
	grace, joinTimeout time.Duration
	http               string
	command            []string
	passCredentials    bool
	pauses             bool // SIGTSTP is not for the terminal: it means "take nothing more"
}

// check refuses durations; command is how this command is called.
func (o lifeOptions) check(command string) error {
	switch {
	case o.grace < 0:
		return usagef(command+" --grace 30s", "--grace %s: a duration is not negative", o.grace)
	case o.joinTimeout < 0:
		return usagef(command+" --join-timeout 2m", "--join-timeout %s: a duration is not negative", o.joinTimeout)
	}
	return nil
}

// life is what package wrap is told for all of them. The caller of release ends what it uses.
func (p *process) life(
	o lifeOptions, t target, session resource.Duration,
) (l wrap.Life, release func(), err error) {
	var more []os.Signal
	if o.pauses {
		more = append(more, syscall.SIGTSTP)
	}
	files, signals, release, err := p.standardStreams(more...)
	if err != nil {
		return l, nil, err
	}
	return wrap.Life{
		Command: o.command, Dir: p.flags.dir, Environ: p.commandEnviron(o.passCredentials), Files: files,
		Grace: o.grace, JoinTimeout: o.joinTimeout, HTTP: o.http, Guard: guardCommand(guardName), Serving: p.serving,
		Connect: func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error) {
			t := t
			t.timeout = timeout
			return p.connect(ctx, t)
		},
		SessionTimeout: time.Duration(session), Signals: signals, Log: p.log,
	}, release, nil
}

func newWorkerCmd(p *process) *cobra.Command {
	var o workerOptions
	cmd := &cobra.Command{
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
		Args: func(cmd *cobra.Command, args []string) error {
			return p.argumentError(cmd.Context(), requireDash(cmd, args, "muster worker --job NAME"))
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			return p.argumentError(cmd.Context(), p.startLong(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command, o.declared = args, cmd.Flags().Changed("file")
			return p.endWorker(cmd.Context(), runWorker(cmd.Context(), p, o))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return p.argumentError(cmd.Context(), flagError(cmd, nil, err))
	})
	fs := cmd.Flags()
	fs.StringVar(&o.job, "job", "", "`NAME` of the job")
	fs.StringVar(&o.root, "root", "", "znode `PATH` that the job is below (MUSTER_ROOT); default "+resource.DefaultRoot)
	fs.StringVarP(&o.dir, "file", "f", "",
		"create the job as the configuration in `DIR`, or one file, declares it, if it is missing")
	o.vars.addTo(fs)
	fs.StringVar(&o.identity, "identity", "",
		"`NAME` that survives a restart (MUSTER_IDENTITY); default the index of a container, else the address")
	fs.StringVar(&o.advertise, "advertise", "",
		"`HOST:PORT` at which other workers reach this one; default this machine and a free port")
	fs.StringVar(&o.run, "run", "",
		"`NAME` of this run, such as build/1234: it is not joined again once it has completed (MUSTER_RUN)")
	fs.StringVar(&o.start, "start", string(wrap.StartJoined),
		"start the command `WHEN`: joined, all (have joined) or barrier (all are live)")
	fs.StringVar(&o.takeover, "takeover", "wait", "`DO` that while an older process is this worker: wait or fail")
	fs.StringVar(&o.onLoss, "on-loss", string(wrap.LossRejoin),
		"`DO` that when the session is lost: rejoin, or stop, which kills the command at once")
	fs.DurationVar(&o.grace, "grace", 30*time.Second,
		"kill the command if it has not ended `DURATION` after it was asked to")
	fs.DurationVar(&o.joinTimeout, "join-timeout", 0,
		"wait `DURATION` for ZooKeeper, the job, a place and for all; default: what the job says")
	fs.StringVar(&o.http, "http", "", "serve /live, /ready and /metrics at `ADDR`; port 0 is a free port")
	addPassCredentials(fs, &o.passCredentials)
	p.completeWorker(cmd, &o)
	return cmd
}

// addPassCredentials adds the flag of all who run a command.
func addPassCredentials(fs *pflag.FlagSet, to *bool) {
	fs.BoolVar(to, "pass-credentials", false, "let the command have MUSTER_ZK_AUTH, MUSTER_REDIS_PASSWORD and their like")
}

// commandEnviron is the environment that a command is given.
func (p *process) commandEnviron(withCredentials bool) []string {
	if withCredentials {
		return p.environ
	}
	return wrap.WithoutCredentials(p.environ)
}

// requireDash refuses arguments before --: muster's flags and those of the command must be distinct.
func requireDash(cmd *cobra.Command, args []string, usage string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return usagef(usage+" -- "+args[0],
			"put -- before the command: %q stands before it", args[0])
	}
	return nil
}

func (o workerOptions) check() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"start", o.start, []string{string(wrap.StartJoined), string(wrap.StartAll), string(wrap.StartBarrier)}},
		{"takeover", o.takeover, []string{"wait", "fail"}},
		{"on-loss", o.onLoss, []string{string(wrap.LossRejoin), string(wrap.LossStop)}},
	} {
		if !slices.Contains(c.known, c.value) {
			return usagef(fmt.Sprintf("--%s %s", c.flag, c.known[0]),
				"--%s %q is none of %q", c.flag, c.value, c.known)
		}
	}
	if err := o.lifeOptions.check("muster worker"); err != nil {
		return err
	}
	if err := resource.CheckName("job", o.job); err != nil {
		return usagef("muster worker --job NAME", "--job: %w", err)
	}
	return nil
}

// workerResult is the result of a worker that was run.
type workerResult struct{ wrap.Result }

func (e *workerResult) Error() string { return e.Text }

func runWorker(ctx context.Context, p *process, o workerOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	c, t, session, err := p.workerConfig(o)
	if err != nil {
		return err
	}
	life, release, err := p.life(o.lifeOptions, t, session)
	if err != nil {
		return err
	}
	defer release()
	c.Life, c.Idle, c.Start, c.OnLoss = life, p.waitWithoutCommand, wrap.Start(o.start), wrap.OnLoss(o.onLoss)
	result := wrap.Run(ctx, c)
	switch {
	case errors.Is(result.Err, wrap.ErrHealth):
		result.Err = badAddress("--http", o.http, result.Err)
	case errors.Is(result.Err, worker.ErrSessionLost):
		result.Err = &problem{nil, result.Err, "start the worker again: it takes up its id"}
	case errors.Is(result.Err, worker.ErrNoJob):
		result.Err = &problem{nil, result.Err, "muster status --root " + c.Worker.Root +
			" lists the jobs there; if this one is missing, declare it, then: muster apply"}
	}
	return &workerResult{result}
}

// catchSignals delivers signals, and these besides, to the worker instead of main: a second SIGTERM must not end this
// process before it has killed the command. The function it returns ends that.
func catchSignals(more ...os.Signal) (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 16)
	caught := slices.DeleteFunc(append(wrap.Signals(), more...), func(sig os.Signal) bool {
		return sig == syscall.SIGHUP && signal.Ignored(sig) // nohup stays in force
	})
	signal.Reset(caught...)
	signal.Notify(signals, caught...)
	return signals, func() { signal.Stop(signals) }
}

// standardStreams returns the standard streams as files that a command can inherit, and the signals that it is to get;
// see catchSignals.
func (p *process) standardStreams(
	more ...os.Signal,
) (files []*os.File, signals <-chan os.Signal, release func(), err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	files = []*os.File{null, null, null}
	for i, stream := range []any{p.in, p.out.w, p.err.w} {
		if f, ok := stream.(*os.File); ok {
			files[i] = f
		}
	}
	signals, stop := catchSignals(more...)
	return files, signals, func() { stop(); _ = null.Close() }, nil
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

// serving prints where health is served: the system may have chosen the port.
func (p *process) serving(addr net.Addr) {
	if !p.flags.quiet {
		fmt.Fprintf(p.err, "health is served at http://%s\n", addr)
	}
}

func joinedAs(m *worker.Member) string {
	return fmt.Sprintf("joined %s as worker %d of %d: %s", m.Job.Path(), m.ID, m.Job.Workers, m.Identity)
}

// argumentError prints the last line of a worker whose arguments are wrong. Nil stays nil.
func (p *process) argumentError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return p.endWorker(ctx, err)
}

// endWorker prints the last line on standard error. It says whether the exit code is the command's or muster's, because
// both may be the same number.
func (p *process) endWorker(ctx context.Context, err error) error {
	e := new(workerResult)
	if !errors.As(err, &e) {
		e = &workerResult{wrap.Result{Err: err}}
	}
	code := e.Code
	if code == 0 && e.Err != nil {
		code = exitCode(ctx, e.Err)
	}
	over := errors.Is(e.Err, worker.ErrDone) || errors.Is(e.Err, worker.ErrCompleted)
	whose, why := "muster's", cmp.Or(e.Text, "no command was started")
	switch {
	case e.Drained:
	case e.Err == nil:
		whose = "the command's"
	case over || e.Code != 0: // the last line says why
		why = e.Err.Error() + "; " + why
	default:
		p.printError(ctx, e.Err)
	}
	if over || code != 0 || !p.flags.quiet {
		line := fmt.Sprintf("exit %d is %s: %s", code, whose, why)
		if !p.record(ctx, slog.LevelInfo, line, "exit", code) {
			fmt.Fprintf(p.err, "muster: %s\n", text.EscapeLines(line))
		}
	}
	return finding(code)
}
