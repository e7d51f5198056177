package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/spec"
)

type reportFlags struct {
	targets []reportTarget
	json    bool // as a json report on standard output
}

// reportTarget is the kind of a report and where it goes; "-" is standard output.
type reportTarget struct{ kind, path string }

func (f *reportFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().Func("report", "also write a report, `KIND=PATH`: "+
		strings.Join(report.Formats(), ", ")+"; PATH - is standard output; may be repeated", f.add)
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON, as --report json=- does")
	completeReports(cmd)
}

func (f *reportFlags) add(s string) error {
	kind, path, ok := strings.Cut(s, "=")
	switch {
	case !ok || path == "":
		return errors.New("write KIND=PATH, such as markdown=plan.md")
	case !slices.Contains(report.Formats(), kind):
		return fmt.Errorf("%q is no kind of report: %s", kind, meant(kind, report.Formats()))
	case isConfigFile(path):
		return fmt.Errorf("%s is the name of configuration", path)
	case path == "-" && f.toStdout():
		return errors.New("only one report can go to standard output")
	}
	same := func(t reportTarget) bool { return filepath.Clean(t.path) == filepath.Clean(path) }
	if slices.ContainsFunc(f.targets, same) {
		return fmt.Errorf("only one report can go to %s", path)
	}
	f.targets = append(f.targets, reportTarget{kind, path})
	return nil
}

func (f reportFlags) toStdout() bool {
	return slices.ContainsFunc(f.targets, func(t reportTarget) bool { return t.path == "-" })
}

// newRun starts the data of a command's reports. arg is its configuration or plan file.
func (p *process) newRun(command, arg string) *report.Run {
	config := filepath.Clean(p.path(arg))
	run := &report.Run{
		Command: command, Version: version().Version, Started: time.Now(), Kinds: declarable(), Config: config,
	}
	if absolute, err := filepath.Abs(config); err == nil {
		run.Config = absolute
	}
	if dir := filepath.ToSlash(filepath.Clean(p.path(p.configDir(arg)))); dir != "." {
		run.Dir = dir
	}
	return run
}

// withReports runs a command and writes its reports, even if the command failed. The command fills in run; withReports
// adds how it ended. If a report goes to standard output, what the command prints goes to standard error; with --json
// only what apply prints, since it may ask.
func (p *process) withReports(ctx context.Context, f reportFlags, run *report.Run, command func() error) error {
	switch {
	case f.json && f.toStdout():
		return usagef("give the report a file", "--json and a report cannot both go to standard output")
	case f.json:
		f.targets = append(slices.Clip(f.targets), reportTarget{"json", "-"})
	case len(f.targets) == 0:
		return command()
	}
	for _, t := range f.targets {
		if t.path == "-" {
			continue
		}
		if err := checkOutput(p.path(t.path)); err != nil {
			return err
		}
	}
	stdout := p.out
	switch {
	case f.json && run.Command != "apply":
		p.out = &stream{w: io.Discard}
	case f.toStdout():
		p.out = p.err
	}
	err := command()
	p.out = stdout
	run.Took = time.Since(run.Started)
	p.writeReports(ctx, f, run, err, false)
	if exitCode(ctx, p.withWriteErrors(err)) != run.ExitCode { // an error of writing changed it
		p.writeReports(ctx, f, run, err, true)
	}
	return err
}

// writeReports adds to run how the command ended, and writes each report. To rewrite is to write all of them again,
// except for one on standard output, so that those that can be written tell of those that cannot.
func (p *process) writeReports(ctx context.Context, f reportFlags, run *report.Run, err error, rewrite bool) {
	run.ExitCode = exitCode(ctx, p.withWriteErrors(err))
	run.Problems = slices.Clone(run.Judged)
	denies := func(p report.Problem) bool { return p.Policy != "" && !p.Warning }
	if !errors.Is(err, errDeclined) || !slices.ContainsFunc(run.Judged, denies) { // else Judged says it all
		run.Problems = append(run.Problems, p.problems(ctx, err)...)
	}
	run.Given = p.given()
	for _, lost := range p.writeErrors() {
		run.Problems = append(run.Problems, report.Problem{Summary: lost.Error(), Next: p.paste(nextStep(lost))})
	}
	var unwritten []error
	for _, t := range f.targets {
		body, err := run.Make(t.kind)
		switch {
		case err != nil:
		case t.path == "-" && !rewrite:
			_, err = p.out.Write(body)
		case t.path != "-":
			err = writeOutput(p.path(t.path), body)
		}
		if err != nil {
			unwritten = append(unwritten, p.notWritten(fmt.Errorf("the %s report was not written: %w", t.kind, err)))
		}
	}
	if !rewrite {
		p.reportErrors = unwritten
	}
}

// problems returns what a report says about err. Its readers do not see standard error.
func (p *process) problems(ctx context.Context, err error) []report.Problem {
	var found finding
	var stopped Stopped
	var diags diagnosticsError
	switch {
	case errors.As(err, &diags):
		var all []report.Problem
		for _, d := range diags {
			all = append(all, diagnosticProblem(d))
		}
		return all
	case errors.As(context.Cause(ctx), &stopped):
		return []report.Problem{{Summary: stopped.Error()}}
	case err == nil || errors.As(err, &found):
		return nil
	}
	return []report.Problem{{Summary: strings.TrimSpace(err.Error()), Next: p.paste(nextStep(err))}}
}

// diagnosticProblem returns d with its place. The detail is the source line with carets, as it is printed.
func diagnosticProblem(d spec.Diagnostic) report.Problem {
	var text bytes.Buffer
	_ = spec.Diagnostics{d}.Text(&text, false) // a buffer takes everything
	_, detail, _ := strings.Cut(text.String(), "\n")
	prob := report.Problem{
		Warning: d.Severity == spec.Warning, Code: d.Code, Summary: d.Summary, Detail: strings.Trim(detail, "\n"),
	}
	if d.Range != nil && strings.Contains(d.Range.Filename, ".hcl") { // not --var, nor MUSTER_VAR_x
		prob.At = fmt.Sprintf("%s:%d", d.Range.Filename, d.Range.Start.Line)
	}
	return prob
}
