package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newReadyCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Inside a member's command: from now on it may be given duties",
		Long: `Says that the member which runs the command may be given duties from now on.
It is for "muster member --ready explicit"; otherwise it changes nothing.`,
		Example: `  ./warm-up && muster ready && exec ./serve`,
		Args:    argCount(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runReady(cmd.Context(), p) },
	}
}

func runReady(ctx context.Context, p *process) error {
	c, err := p.memberClient("ready")
	if err != nil {
		return err
	}
	return dutyError(c.Ready(ctx))
}
