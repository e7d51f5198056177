package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/spec"
)

// firstConfig is what init writes. STACK stands for the name of the stack.
//
//go:embed init.hcl
var firstConfig string

const firstFile = "jobs.hcl"

func newInitCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR | FILE]",
		Short: "Write a first configuration",
		Long: `Writes jobs.hcl into a directory, which it creates if it is missing, or the file
that is named: a first configuration with one job, and comments that say what to
change. It overwrites nothing: where a configuration is, it ends with 7.`,
		Example: `  muster init && muster plan
  muster init prod/
  muster init hello.hcl && muster apply hello.hcl`,
		Args:              argCount(0, 1, "one directory or file"),
		RunE:              func(_ *cobra.Command, args []string) error { return runInit(p, firstArg(args)) },
		ValidArgsFunction: completeConfig,
	}
}

func runInit(p *process, arg string) error {
	file, name := filepath.Join(arg, firstFile), ""
	switch {
	case strings.HasSuffix(arg, ".json") || spec.IsBeside(arg):
		return usagef("muster init jobs.hcl", "%s is no name of a file of HCL that declares jobs", arg)
	case isConfigFile(arg):
		file, name = arg, strings.TrimSuffix(filepath.Base(arg), ".hcl")
	default:
		if found := p.configurationIn(arg); found != "" {
			return alreadyThere(found)
		}
		dir, err := filepath.Abs(p.path(arg))
		if err != nil {
			return err
		}
		name = filepath.Base(dir)
	}
	if err := writeFirst(p.path(file), stackNamed(name)); errors.Is(err, fs.ErrExist) {
		return alreadyThere(p.path(file))
	} else if err != nil {
		return err
	}
	cfg, err := p.load(arg, nil)
	if err != nil {
		return err
	}
	p.called.config = arg // it is there only now
	if !p.flags.quiet {
		fmt.Fprintf(p.out, "Wrote %s: stack %s, %s.\n  next: %s\n", p.path(file), cfg.Stack, declaredCount(cfg),
			p.paste("muster plan"))
	}
	return nil
}

// writeFirst writes a first configuration into a new file, whose directory it creates, or nothing. The error is
// fs.ErrExist if there is something of that name.
func writeFirst(file, stack string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	err := createFile(file, []byte(strings.ReplaceAll(firstConfig, "STACK", stack)), nil)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		_ = os.Remove(file) // it was not written as a whole
	}
	return err
}

func alreadyThere(file string) error {
	return &problem{errDeclined, fmt.Errorf("%s is there already, and nothing is overwritten", file),
		"muster validate checks it; or name another directory or file"}
}

func stackNamed(name string) string {
	name = strings.Map(func(r rune) rune {
		if resource.CheckName("stack", "a"+string(r)) != nil {
			return '-'
		}
		return r
	}, name)
	name = strings.TrimLeft(name[:min(len(name), resource.MaxName)], "-_.")
	if resource.CheckName("stack", name) != nil {
		return "my-jobs"
	}
	return name
}
