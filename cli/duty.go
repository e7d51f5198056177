package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"muster/exitcode"
	"muster/member"
	"muster/resource/group"
	"muster/wrap"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDuty(cmd.Context(), p, args[0], args[1:])
		},
	}
}

func runDuty(ctx context.Context, p *process, duty string, command []string) error {
	if err := group.CheckDutyName(duty); err != nil {
		return usagef("muster duty NAME", "%w", err)
	}
	c, err := p.inside("duty", "member", "muster member --group NAME -- COMMAND")
	if err != nil {
		return err
	}
	if len(command) > 0 {
		return p.runTask(ctx, command, dutyError, func(ctx context.Context, t wrap.Task) wrap.Result {
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
func (p *process) endCommand(ctx context.Context, result wrap.Result) error {
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
	return explain(err, []remedy{{
		nil, "inside a member's command: the member has ended or joins again; anywhere else: muster status",
		of{wrap.ErrUnavailable},
	}})
}
