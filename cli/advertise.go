package cli

import (
	"github.com/spf13/cobra"

	"muster/wrap"
)

func newAdvertiseCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "advertise HOST:PORT",
		Short: "Inside a worker's command: tell the others another address",
		Long: `Says at which address the other workers reach this one from now on, for a
command that chooses its port when it runs. "muster members" shows it. HOST is
an IP, or a name that the others can resolve. What MASTER_ADDR and the roll say
does not change in commands that run already.`,
		Example: `  muster advertise "$(hostname -f):$port"`,
		Args:    argCount(1, 1, "an address, as HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := wrap.ParseAddress(args[0]); err != nil {
				return usagef("muster advertise 10.0.0.1:7000", "%w", err)
			}
			return p.askWorker("advertise", func(c *wrap.Client) error {
				return c.Advertise(cmd.Context(), wrap.Advertise{Address: args[0]})
			})
		},
	}
}
