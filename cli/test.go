package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/spec"
	"muster/text"
)

type testOptions struct {
	vars   varFlags
	policy policyFlags
	run    string
	report string // junit=PATH
}

func newTestCmd(p *process) *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the tests of a configuration, offline",
		Long: `Runs the run blocks of the *.test.hcl files of a directory: each says what
stands in ZooKeeper, and what the plan for it must be. Nothing but files is
read. With --policy the policies judge these plans too.`,
		Example: `  muster test prod/
  muster test --run 'delete' --policy policies/ prod/`,
		Args: argCount(0, 1, "one directory"),
		RunE: func(_ *cobra.Command, args []string) error { return runTest(p, o, firstArg(args)) },
	}
	o.vars.addTo(cmd.Flags())
	o.policy.addTo(cmd)
	cmd.Flags().StringVar(&o.run, "run", "", "run only what fits `REGEX`")
	cmd.Flags().StringVar(&o.report, "report", "", "also write a report: junit=`PATH`")
	cmd.ValidArgsFunction = completeConfig
	return cmd
}

func runTest(p *process, o testOptions, dir string) error {
	fits, err := regexp.Compile(o.run)
	if err != nil {
		return usagef("muster test --run 'nightly|weekly'", "--run %s is no regular expression: %s", o.run, err)
	}
	file, isJUnit := strings.CutPrefix(o.report, "junit=")
	if o.report != "" && (!isJUnit || file == "" || isConfigFile(file)) {
		return usagef("muster test --report junit=tests.xml", "--report %s is not junit=PATH", o.report)
	}
	if file != "" && file != "-" {
		if err := checkOutput(p.path(file)); err != nil {
			return err
		}
	}
	policies, err := p.policies(o.policy)
	if err != nil {
		return err
	}
	opts, err := p.loadOptions(o.vars, time.Time{})
	if err != nil {
		return err
	}
	opts.Environ = nil // a test says the same everywhere
	tests, diags := spec.LoadTests(cmp.Or(p.path(dir), "."), opts)
	if diags.HasErrors() {
		return p.printDiagnostics("", diags)
	}
	cases := slices.DeleteFunc(tests.Cases, func(c *spec.Case) bool { return !fits.MatchString(c.Name) })
	if len(cases) == 0 {
		return usagef("muster test", "no run fits --run %s", o.run)
	}
	out := p.out
	if file == "-" {
		out = p.err
	}
	begun, failed := time.Now(), 0
	var results []report.Tested
	for _, c := range cases {
		at := time.Now()
		diags := tests.Run(c, policies)
		result := report.Tested{Name: c.Name, At: c.At, Took: time.Since(at)}
		if len(diags) > 0 {
			failed++
			var why strings.Builder
			_ = diags.Text(&why, false) // a Builder takes everything
			result.Failure = why.String()
			fmt.Fprintf(out, "--- FAIL: %s (%s)\n", text.Escape(c.Name), text.Escape(c.At))
			if err := diags.Text(out, p.color(out)); err != nil {
				return err
			}
			fmt.Fprintln(out)
		}
		results = append(results, result)
	}
	if file != "" {
		body, err := report.Tests(results, time.Since(begun))
		switch {
		case err != nil:
		case file == "-":
			_, err = p.out.Write(body)
		default:
			err = writeOutput(p.path(file), body)
		}
		if err != nil {
			return p.notWritten(fmt.Errorf("the junit report was not written: %w", err))
		}
	}
	if failed > 0 {
		fmt.Fprintf(out, "FAIL  %s, %d failed\n", text.Count(len(cases), "run"), failed)
		return errPrinted
	}
	if !p.flags.quiet {
		fmt.Fprintf(out, "ok    %s\n", text.Count(len(cases), "run"))
	}
	return nil
}
