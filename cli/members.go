package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"muster/text"
	"muster/wrap"
)

type membersOptions struct{ live, json bool }

func newMembersCmd(p *process) *cobra.Command {
	var o membersOptions
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Inside a worker's command: list the workers of its job",
		Long: `Lists the id and the address of everybody who has joined, or of who is live now,
in the order of the ids.`,
		Example: `  muster members --live
  muster members | awk '{print $2}'`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.askWorker("members", func(c *wrap.Client) error { return runMembers(cmd.Context(), p, c, o) })
		},
	}
	cmd.Flags().BoolVar(&o.live, "live", false, "only who is live now")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	return cmd
}

func runMembers(ctx context.Context, p *process, c *wrap.Client, o membersOptions) error {
	found, err := c.Members(ctx, o.live)
	if err != nil {
		return err
	}
	if o.json {
		return p.printJSON(found)
	}
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, w := range found.Members {
		address := text.Escape(w.Address())
		if w.Problem != "" { // its id is known, and no more
			address = "?"
		}
		fmt.Fprintf(t, "%d\t%s", w.ID, address)
		if w.Identity != "" {
			fmt.Fprintf(t, "\t%s", text.Escape(w.Identity))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
