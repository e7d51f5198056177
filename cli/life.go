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
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/resource"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

// lifeOptions are what "muster worker", "muster member", "muster executor" and "muster watcher" have in common.
type lifeOptions struct {
	placeFlags
	identity           string
	grace, joinTimeout time.Duration
	http               string
	command            []string
	passCredentials    bool
}

// addTo adds the flags but for --grace, --root and --file. noun is what is joined; the others say what is particular to
// a flag.
func (o *lifeOptions) addTo(fs *pflag.FlagSet, noun, identity, joinTimeout, http string) {
	fs.StringVar(&o.identity, "identity", "", "`NAME` "+identity)
	fs.DurationVar(&o.joinTimeout, "join-timeout", 0,
		"wait `DURATION` for ZooKeeper, the "+joinTimeout+"; default: what the "+noun+" says")
	fs.StringVar(&o.http, "http", "", "serve /live, /ready"+http+" at `ADDR`; port 0 is a free port")
	addPassCredentials(fs, &o.passCredentials)
}

// memberFlags are those of "muster worker" and "muster member", whose identity outlives a process.
type memberFlags struct{ takeover, onLoss string }

func (o *memberFlags) addTo(cmd *cobra.Command) {
	choose(cmd, cmd.Flags(), &o.takeover, "takeover", "`DO` that while an older process has this identity: wait or fail",
		"wait", "fail")
	choose(cmd, cmd.Flags(), &o.onLoss, "on-loss",
		"`DO` that when the session is lost: rejoin, or stop, which kills the command at once and is what a gang does",
		string(wrap.LossRejoin), string(wrap.LossStop))
}

func addGrace(fs *pflag.FlagSet, to *time.Duration) {
	fs.DurationVar(to, "grace", 30*time.Second, "kill the command if it has not ended `DURATION` after it was asked to")
}

// check takes the root from the environment if no flag has set it, and refuses wrong values; command is how this
// command is called. The root stays empty if nothing names one.
func (o *lifeOptions) check(command string, e environ) error {
	o.root = cmp.Or(o.root, e.value("MUSTER_ROOT"))
	if o.root != "" {
		if err := resource.CheckRoot(o.root); err != nil {
			return usagef(command+" --root "+meantRoot(o.root), "root: %w", err)
		}
	}
	switch {
	case o.grace < 0:
		return usagef(command+" --grace 30s", "--grace %s: a duration is not negative", o.grace)
	case o.joinTimeout < 0:
		return usagef(command+" --join-timeout 2m", "--join-timeout %s: a duration is not negative", o.joinTimeout)
	}
	return nil
}

// lifeCmd completes a command that joins something and runs a command as that. Its last line on standard error says
// whose the exit code is, also if the arguments are wrong.
func (p *process) lifeCmd(
	cmd *cobra.Command, arguments cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error,
) *cobra.Command {
	refuse := func(cmd *cobra.Command, err error) error {
		if err != nil {
			return p.endWorker(cmd.Context(), err)
		}
		return nil
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return refuse(cmd, arguments(cmd, args)) }
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error { return refuse(cmd, p.startLong(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return refuse(cmd, flagError(cmd, nil, err)) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return p.endWorker(cmd.Context(), run(cmd, args)) }
	return cmd
}

// life is what the flags and the environment say of a life. t is the ZooKeeper, session the timeout of its first
// session.
func (p *process) life(o lifeOptions, t target, session resource.Duration) wrap.Life {
	return wrap.Life{
		Command: o.command, Dir: p.flags.dir, Environ: p.commandEnviron(o.passCredentials),
		JoinTimeout: o.joinTimeout, Grace: o.grace, HTTP: o.http,
		Guard: guardCommand(guardName), GuardGroups: guardCommand(guardGroupsName),
		Serving: func(addr net.Addr) { p.say("health is served at http://%s", addr) }, // the system may have chosen the port
		Log:     p.log, SessionTimeout: time.Duration(session),
		Connect: func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error) {
			t := t
			t.timeout = timeout
			return p.connect(ctx, t)
		},
	}
}

// live calls run with the streams and the signals of this process in l, and explains its error.
func (p *process) live(
	l *wrap.Life, run func() command.Result, explain func(error) error, more ...os.Signal,
) error {
	files, signals, release, err := p.streams(more...)
	if err != nil {
		return err
	}
	defer release()
	l.Files, l.Signals = files, signals
	result := run()
	if errors.Is(result.Err, wrap.ErrHealth) {
		result.Err = badAddress("--http", l.HTTP, result.Err)
	}
	result.Err = p.withHint(explain(result.Err))
	return &workerResult{result}
}

type workerResult struct{ command.Result }

func (e *workerResult) Error() string { return e.Text }

func addPassCredentials(fs *pflag.FlagSet, to *bool) {
	fs.BoolVar(to, "pass-credentials", false, "let the command have MUSTER_ZK_AUTH, MUSTER_REDIS_PASSWORD and their like")
}

func (p *process) commandEnviron(withCredentials bool) []string {
	if withCredentials {
		return p.environ
	}
	return command.WithoutCredentials(p.environ)
}

// requireDash refuses arguments before --: muster's flags and those of the command must be distinct.
func requireDash(usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
			return usagef(usage+" -- "+args[0], "put -- before the command: %q stands before it", args[0])
		}
		return nil
	}
}

// catchSignals delivers signals, and these besides, to the worker instead of main: a second SIGTERM must not end this
// process before it has killed the command. The function it returns ends that.
func catchSignals(more ...os.Signal) (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 16)
	caught := slices.DeleteFunc(append(command.Signals(), more...), func(sig os.Signal) bool {
		return sig == syscall.SIGHUP && signal.Ignored(sig) // nohup stays in force
	})
	signal.Reset(caught...)
	signal.Notify(signals, caught...)
	return signals, func() { signal.Stop(signals) }
}

// streams returns the standard streams as files that a command can inherit, and the signals that it gets: see
// catchSignals. release ends that.
func (p *process) streams(more ...os.Signal) (
	files []*os.File, signals <-chan os.Signal, release func(), err error,
) {
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
	return files, signals, func() {
		stop()
		_ = null.Close()
	}, nil
}

// warnUnstable says that an identity, which nobody has given, may be another one after a restart.
func (p *process) warnUnstable(identity string) {
	p.say("the identity is %s, which a restart may change: give --identity", identity)
}

// endWorker prints the last line on standard error. It says whether the exit code is the command's or muster's, because
// both may be the same number.
func (p *process) endWorker(ctx context.Context, err error) error {
	e := new(workerResult)
	if !errors.As(err, &e) {
		e = &workerResult{command.Result{Err: err}}
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

// guardName is a hidden command: the process between a member and the command of a duty.
const guardName = "guard-command"

func newGuardCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:                guardName + " FILE ARGS...",
		Short:              "For muster itself: end a command when its member is frozen or dead",
		Hidden:             true,
		DisableFlagParsing: true,
		PersistentPreRunE:  func(*cobra.Command, []string) error { return nil },
		Args:               argCount(2, 1<<20, "a file and its arguments"),
		RunE: func(_ *cobra.Command, args []string) error {
			files, signals, release, err := p.streams()
			if err != nil {
				return err
			}
			defer release()
			return finding(command.Guard(args[0], args[1:], p.environ, files, signals))
		},
	}
}

// guardGroupsName is a hidden command: the process beside a worker or an executor that ends its commands with it.
const guardGroupsName = "guard-groups"

func newGuardGroupsCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:               guardGroupsName,
		Short:             "For muster itself: end the commands of a process that has died",
		Hidden:            true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		Args:              argCount(0, 0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			signals, release := catchSignals(syscall.SIGTSTP)
			defer release()
			command.GuardGroups(p.in, signals)
			return nil
		},
	}
}

// guardCommand calls this program as a guard. It must be this very program, also if its file has been replaced.
func guardCommand(name string) []string {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", name}
	}
	self, err := os.Executable()
	if err != nil {
		self = filepath.Clean(os.Args[0])
	}
	return []string{self, name}
}
