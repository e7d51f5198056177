package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/resource"
	"muster/spec"
	"muster/text"
)

// varFlags are --var and --var-file in the order given. A later one wins.
type varFlags []spec.VarInput

func (v *varFlags) addTo(fs *pflag.FlagSet) {
	fs.Var(&varValue{to: v}, "var", "set a variable: `NAME=VALUE`; may be repeated")
	fs.Var(&varValue{to: v, file: true}, "var-file", "set the variables in `FILE`; may be repeated")
}

type varValue struct {
	to   *varFlags
	file bool
}

func (v *varValue) String() string { return "" }
func (v *varValue) Type() string   { return "input" }

func (v *varValue) Set(s string) error {
	switch {
	case v.file && s == "":
		return errors.New("write the name of a file")
	case v.file:
		*v.to = append(*v.to, spec.VarInput{File: s})
	case !strings.Contains(s, "="):
		return errors.New("write NAME=VALUE")
	default:
		*v.to = append(*v.to, spec.VarInput{Flag: s})
	}
	return nil
}

// load reads the configuration that an argument names: a directory, or one file; "" is the current directory. It prints
// the diagnostics of a configuration with errors, and returns an error that only sets the exit code.
func (p *process) load(arg string, vars varFlags) (*spec.Config, error) {
	return p.loadAt(arg, vars, time.Time{})
}

// loadAt is load for a command that refuses ignores that have expired by now.
func (p *process) loadAt(arg string, vars varFlags, now time.Time) (*spec.Config, error) {
	cfg, diags, err := p.parse(arg, vars, now)
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, p.printDiagnostics(p.path(p.configDir(arg)), diags)
	}
	return cfg, nil
}

// configDir returns the directory of the configuration that an argument names: file names in it are relative to that.
func (p *process) configDir(arg string) string {
	if info, err := os.Stat(p.path(arg)); arg != "" && err == nil && !info.IsDir() {
		return filepath.Dir(arg)
	}
	return arg
}

func (p *process) parse(arg string, vars varFlags, now time.Time) (*spec.Config, spec.Diagnostics, error) {
	if info, err := os.Stat(p.path(arg)); err == nil && !info.IsDir() && !isConfigFile(arg) {
		return nil, nil, usagef("name one; a saved plan is for muster show FILE and muster apply FILE",
			"%s is no configuration: that is a directory of *.hcl files, or one such file", arg)
	}
	opts, err := p.loadOptions(vars, now)
	if err != nil {
		return nil, nil, err
	}
	cfg, diags := spec.Load(p.path(arg), opts)
	return cfg, diags, nil
}

func (p *process) loadOptions(vars varFlags, now time.Time) (spec.Options, error) {
	auth, err := p.credentials()
	o := spec.Options{
		Environ: p.environ, Version: version().Version, Now: now,
		HasCredentials: len(auth) > 0 || p.envSASL("mechanism") != "",
	}
	for _, v := range vars {
		v.File = p.pathIfAny(v.File)
		o.Vars = append(o.Vars, v)
	}
	return o, err
}

// printDiagnostics prints diagnostics about the configuration in dir. It returns them as an error that only sets the
// exit code.
func (p *process) printDiagnostics(dir string, diags spec.Diagnostics) error {
	if err := diags.TextNaming(p.err, p.color(p.err), inDirectory(dir)); err != nil {
		return err
	}
	return diagnosticsError(diags)
}

// inDirectory returns how a file of the configuration in dir is called, so that an editor finds it. It leaves names
// alone that are no file in dir, such as MUSTER_VAR_x.
func inDirectory(dir string) func(file string) string {
	return func(file string) string {
		at := filepath.Join(dir, file)
		if _, err := os.Stat(at); err != nil || filepath.IsAbs(file) {
			return file
		}
		return at
	}
}

type diagnosticsError spec.Diagnostics

func (d diagnosticsError) Error() string { return text.Count(len(d), "diagnostic") }
func (d diagnosticsError) Unwrap() error { return errPrinted }

func (p *process) hasConfiguration() bool { return p.configurationIn(".") != "" }

// configurationIn returns a file of the configuration in a directory; empty if there is none. An empty file does not
// count: the shell makes one before "muster export > jobs.hcl" runs.
func (p *process) configurationIn(dir string) string {
	for _, pattern := range []string{"*.hcl", "*.hcl.json"} {
		names, _ := filepath.Glob(filepath.Join(p.path(dir), pattern))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Size() == 0 {
				continue
			}
			if base := filepath.Base(name); !strings.HasPrefix(base, ".") && !spec.IsBeside(base) {
				return name
			}
		}
	}
	return ""
}

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
		err = diags.TextNaming(p.err, p.color(p.err), inDirectory(p.path(p.configDir(dir))))
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
	kinds := text.Each(cfg.Declared, func(d resource.Declaration) string { return d.Kind().Name })
	return cmp.Or(text.CountEach(kinds), "0 jobs")
}
