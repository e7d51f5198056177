package cli

import (
	"context"

	"github.com/spf13/cobra"

	"muster/wrap"
	"muster/zkstate/znode"
)

func newStepCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "step NAME -- COMMAND ARGS...",
		Short: "Inside the script of an operation: do something once",
		Long: `Runs a command of an operation, and records it and its standard output, of at
most 64 KiB, if it ends with 0. In a later run of the operation the step is
skipped and its output printed again. If an earlier attempt has begun and was
not recorded, the command is run again, with MUSTER_STEP_AGAIN=1. A step is its
name and its command with arguments: the same twice in one run is an error. The
exit code is the command's.`,
		Example: `  muster step snapshot -- ./snapshot.sh "$day"
  where=$(muster step upload -- ./upload.sh "$day")`,
		Args: nameAndCommand("muster step NAME -- COMMAND", "muster step needs a name, -- and a command",
			"muster step takes one name before --", znode.CheckStep),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runStep(cmd.Context(), p, args[0], args[1:])
		},
	}
}

func runStep(ctx context.Context, p *process, name string, command []string) error {
	c, u, err := p.dutyClient("step", "")
	if err != nil {
		return err
	}
	of := wrap.RunOfOperation{
		Duty: u.Duty, Operation: p.environ.value(wrap.OperationVariable), Run: p.environ.value(wrap.RunVariable),
	}
	if of.Operation == "" || of.Run == "" {
		return usagef("muster op NAME -- SCRIPT", "muster step works inside the script of an operation, "+
			"and there is no %s here", wrap.RunVariable)
	}
	return p.runTask(ctx, command, holderError, func(ctx context.Context, t wrap.Task) wrap.Result {
		return c.RunStep(ctx, of, name, t, p.out)
	})
}
