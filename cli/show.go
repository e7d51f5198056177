package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/plan/planfile"
	"muster/report"
	"muster/text"
)

type showOptions struct{ json, all bool }

func newShowCmd(p *process) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show PLANFILE",
		Short: "Show a saved plan",
		Long:  `Shows a plan that "muster plan --out" saved. It needs no network.`,
		Args:  argCount(1, 1, "one plan file"),
		RunE:  func(_ *cobra.Command, args []string) error { return runShow(p, o, args[0]) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	cmd.Flags().BoolVar(&o.all, "all", false, "list what is unchanged and unmanaged too")
	return cmd
}

func runShow(p *process, o showOptions, file string) error {
	saved, err := readPlan(p.path(file))
	if err != nil {
		return err
	}
	if o.json {
		return p.printSaved(saved)
	}
	return p.showSaved(saved, o.all)
}

// showSaved prints a saved plan, and when it was made.
func (p *process) showSaved(s planfile.Saved, all bool) error {
	created, version := s.Created.Format(time.RFC3339), text.Escape(s.MusterVersion)
	fmt.Fprintf(p.out, "Saved %s by muster %s as plan %s.\n", created, version, s.Plan.ID)
	opts := p.layout()
	opts.All, opts.Servers = all, s.Servers
	return report.Plan(p.out, s.Plan, opts)
}
