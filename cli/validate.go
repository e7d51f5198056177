package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/spec"
	"muster/text"
)

type validateOptions struct {
	vars varFlags
	json bool
}

func newValidateCmd(p *process) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate [DIR | FILE]",
		Short: "Check a configuration without touching ZooKeeper",
		Long: `Checks the *.hcl files of a directory, or one file alone, and reports every
error in one run.
"muster explain M1203" says more about one, by its code.`,
		Args: argCount(0, 1, "one directory or file"),
		RunE: func(_ *cobra.Command, args []string) error { return runValidate(p, o, firstArg(args)) },
	}
	o.vars.addTo(cmd.Flags())
	cmd.ValidArgsFunction = completeConfig
	cmd.Flags().BoolVar(&o.json, "json", false, "print the findings as JSON")
	return cmd
}

func runValidate(p *process, o validateOptions, dir string) error {
	cfg, diags, err := p.parse(dir, o.vars, time.Time{})
	if err != nil {
		return err
	}
	switch {
	case o.json:
		err = diags.JSON(p.out)
	case len(diags) > 0:
		err = withDirectory(p.path(p.configDir(dir)), diags).Text(p.err, p.color(p.err))
	}
	switch {
	case err != nil:
		return err
	case diags.HasErrors():
		return errPrinted
	case !o.json && !p.flags.quiet:
		fmt.Fprintf(p.out, "Valid: stack %s, %s.\n", cfg.Stack, declaredCount(cfg))
	}
	return nil
}

// declaredCount counts what is declared, by kind: "1 group and 2 jobs".
func declaredCount(cfg *spec.Config) string {
	var kinds []string
	for _, d := range cfg.Declared() {
		kinds = append(kinds, d.Kind().Name)
	}
	return cmp.Or(text.CountEach(kinds), "0 jobs")
}
