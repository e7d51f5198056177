package cli

import (
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.inside("ready", "member", "muster member --group NAME -- COMMAND")
			if err != nil {
				return err
			}
			return dutyError(c.Ready(cmd.Context()))
		},
	}
}
