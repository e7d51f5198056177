package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"muster/exitcode"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/wrap"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
)

func newDutyCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "duty NAME [-- COMMAND ARGS...]",
		Short: "Inside a member's command: say whether it holds a duty",
		Long: `Ends with 0 and prints the epoch if this member holds the duty now, and with 1
if not. With a command: runs it only while the duty is held. If the duty is
given to another member, the command gets SIGTERM, and SIGKILL after the drain
timeout of the group; if it is lost, it is killed. The exit code is the
command's.`,
		Example: `  if muster duty coordinator; then ./lead; fi
  muster duty coordinator -- ./lead`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == cmd.ArgsLenAtDash() {
				return usagef("muster duty NAME -- COMMAND", "there is no command after --")
			}
			return beforeDash(argCount(1, 1, "the name of a duty"))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runDuty(cmd.Context(), p, args[0], args[1:]) },
	}
}

func runDuty(ctx context.Context, p *process, duty string, argv []string) error {
	if err := group.CheckDutyName(duty); err != nil {
		return usagef("muster duty NAME", "%w", err)
	}
	c, err := p.inside("duty", "member", "muster member --group NAME -- COMMAND")
	if err != nil {
		return err
	}
	if len(argv) > 0 {
		return p.runTask(ctx, argv, dutyError, func(ctx context.Context, t wrap.DutyCommand) command.Result {
			return c.WhileHeld(ctx, duty, t)
		})
	}
	h, err := c.Held(ctx, duty)
	if err != nil {
		return dutyError(err)
	}
	fmt.Fprintln(p.out, h.Epoch)
	return nil
}

// endCommand returns what the result of a command sets as the exit code, and says on standard error why it is not 0.
func (p *process) endCommand(ctx context.Context, result command.Result) error {
	switch {
	case result.Err != nil && result.Code != 0: // it was not started
		p.printError(ctx, result.Err)
		return finding(result.Code)
	case result.Err != nil:
		return dutyError(result.Err)
	case result.Code != 0 && !p.flags.quiet:
		fmt.Fprintf(p.err, "muster: %s\n", result.Text)
	}
	return finding(result.Code)
}

// dutyError adds what a member's answer needs. That a duty is not held is an answer, and has no next step.
func dutyError(err error) error {
	if errors.Is(err, member.ErrNotHeld) {
		return finding(exitcode.Error)
	}
	return withRemedy(err, []remedy{{
		nil, "inside a member's command: the member has ended or joins again; anywhere else: muster status",
		errorSet{wrap.ErrUnavailable},
	}})
}

func newReadyCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Inside a member's command: from now on it may be given duties",
		Long: `Says that the member which runs the command may be given duties from now on.
It is for "muster member --ready explicit"; otherwise it changes nothing.`,
		Example: `  ./warm-up && muster ready && exec ./serve`,
		Args:    argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.inside("ready", "member", "muster member --group NAME -- COMMAND")
			if err != nil {
				return err
			}
			return dutyError(c.Ready(cmd.Context()))
		},
	}
}

type dutyFlags struct{ root, group, duty string }

func (o *dutyFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.group, "group", "", "read from ZooKeeper, of the group with this `NAME`")
	fs.StringVar(&o.duty, "duty", "", "`NAME` of the duty; default the one whose command this is")
	fs.StringVar(&o.root, "root", "", "znode `PATH` that the group is below (MUSTER_ROOT); default "+resource.DefaultRoot)
}

// dutyClient returns a client of the member whose duty's command runs this process. duty is another one; or empty.
func (p *process) dutyClient(command, duty string) (*wrap.Client, wrap.UseOf, error) {
	u := wrap.UseOf{Duty: duty}
	if own := p.environ.value(wrap.DutyVariable); duty == "" || duty == own {
		u.Duty = own
		if epoch := p.environ.value(wrap.EpochVariable); epoch != "" { // without it the member compares nothing
			var err error
			if u.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil || u.Epoch <= 0 {
				return nil, u, usagef("leave "+wrap.EpochVariable+" as the member has set it",
					"%s is %q, which is no epoch", wrap.EpochVariable, epoch)
			}
		}
	}
	socket := p.environ.value(wrap.SocketVariable)
	if socket == "" || u.Duty == "" {
		missing := wrap.SocketVariable
		if socket != "" {
			missing = wrap.DutyVariable
		}
		return nil, u, usagef("muster member --duties DIR runs the commands of duties; muster duty NAME -- COMMAND does, too",
			"muster %s works inside the command of a duty, and there is no %s here", command, missing)
	}
	if err := group.CheckDutyName(u.Duty); err != nil {
		return nil, u, usagef("muster "+command+" --help", "%w", err)
	}
	return wrap.NewClient(socket), u, nil
}

// readDuty asks the member whose command this is, or with --group ZooKeeper.
func readDuty[T any](
	ctx context.Context, p *process, command string, o dutyFlags,
	ask func(*wrap.Client, context.Context, wrap.UseOf) (T, error),
	read func(ctx context.Context, s *zkconn.Session, root, g, duty string) (T, error),
) (found T, err error) {
	next := "muster " + command + " --group NAME --duty NAME"
	switch {
	case o.group == "" && o.root != "":
		return found, usagef(next, "--root needs --group")
	case o.group == "" && p.environ.value(wrap.SocketVariable) == "":
		return found, usagef(next, "outside the command of a duty, muster %s needs --group and --duty", command)
	case o.group == "":
		err = p.askHolder(command, o.duty, func(c *wrap.Client, u wrap.UseOf) (err error) {
			found, err = ask(c, ctx, u)
			return err
		})
		return found, err
	case o.duty == "":
		return found, usagef(next, "--group needs --duty: which duty of the group")
	}
	root, name, duty, err := p.dutyPath(o.group+"/"+o.duty, o.root)
	if err != nil {
		return found, err
	}
	s, err := p.connect(ctx, p.target(target{timeout: time.Duration(group.Default().Timeouts.Session)}))
	if err != nil {
		return found, err
	}
	defer s.Close()
	d, err := (&searchScope{p: p, session: s}).findDuty(ctx, resource.Join(root, name)+"/"+duty)
	if err != nil {
		return found, err
	}
	found, err = read(ctx, s, root, d.group.Record.Generation, duty)
	return found, holderError(err)
}

// newDutyListCmd completes "list", which prints what readDuty returns: rows writes a line for each, with tabs.
func newDutyListCmd[T any](
	p *process, cmd *cobra.Command, ask func(*wrap.Client, context.Context, wrap.UseOf) (T, error),
	read func(ctx context.Context, s *zkconn.Session, root, g, duty string) (T, error), rows func(io.Writer, T),
) *cobra.Command {
	var o dutyFlags
	var asJSON bool
	cmd.Use, cmd.Args = "list", argCount(0, 0, "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := readDuty(cmd.Context(), p, cmd.Parent().Name()+" list", o, ask, read)
		switch {
		case err != nil:
			return err
		case asJSON:
			return p.printJSON(found)
		}
		t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		rows(t, found)
		return t.Flush()
	}
	o.addTo(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

// askHolder calls ask with a client of the member whose duty's command runs this process, and explains its answer.
func (p *process) askHolder(command, duty string, ask func(*wrap.Client, wrap.UseOf) error) error {
	c, u, err := p.dutyClient(command, duty)
	if err != nil {
		return err
	}
	return holderError(ask(c, u))
}

func holderError(err error) error {
	return withRemedy(err, []remedy{
		{nil, "end: another process has the duty, or will have it", errorSet{member.ErrNotHeld}},
		{nil, "inside a duty's command: the member has ended or joins again; anywhere else give --group and --duty",
			errorSet{wrap.ErrUnavailable}},
		{nil, "muster state list", errorSet{member.ErrNoKey}},
		{nil, "muster state list shows what can be removed; or keep it elsewhere, and save where it is",
			errorSet{member.ErrStateTooLarge}},
		{nil, "save it again, or: muster state rm KEY", errorSet{member.ErrStateDamaged}},
		{nil, "wait until the other muster op ends", errorSet{member.ErrOperationBusy}},
		{nil, "run the script that opened it; or --adopt it; or: muster op abort NAME", errorSet{member.ErrOtherScript}},
		{nil, "muster op list", errorSet{member.ErrNoOperation}},
		{nil, "muster op list; muster op abort NAME", errorSet{member.ErrOperationLimit}},
		{nil, "the muster op of this script has ended: run it again", errorSet{member.ErrOperationOver}},
		{errUsage, "give one of the two steps another name", errorSet{member.ErrStepTwice}},
		{nil, "let the command save it elsewhere, and print where; or: muster step NAME -- sh -c 'COMMAND >&2'",
			errorSet{member.ErrOutputTooLarge}},
		{nil, "let what goes on after the command write elsewhere, such as >/dev/null", errorSet{wrap.ErrOutputGoesOn}},
		{errUsage, "muster --help", errorSet{wrap.ErrRequest}},
	})
}
