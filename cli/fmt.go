package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"muster/spec"
	"muster/text"
)

type fmtOptions struct {
	check, recursive bool
}

func newFmtCmd(p *process) *cobra.Command {
	var o fmtOptions
	cmd := &cobra.Command{
		Use:   "fmt [PATH…|-]",
		Short: "Format HCL files",
		Long: `Formats the *.hcl files of a directory (default: the current one), or the files
named, and prints the names of those it changed. "-" formats standard input to
standard output. Only white space changes.`,
		Example: `  muster fmt
  muster fmt --check --recursive        in a pipeline: shows a diff and exits 2`,
		RunE: func(_ *cobra.Command, args []string) error { return runFmt(p, o, args) },
	}
	cmd.Flags().BoolVar(&o.check, "check", false, "write nothing; show what would change and exit 2")
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "r", false, "also the directories below")
	return cmd
}

func runFmt(p *process, o fmtOptions, args []string) error {
	if len(args) == 0 {
		args = []string{"."}
	}
	var result error // the worst so far
	for _, arg := range args {
		files, err := []string{arg}, error(nil)
		if arg != "-" {
			files, err = p.hclFiles(arg, o.recursive)
		}
		if err != nil {
			return err
		}
		for _, name := range files {
			result = worse(result, p.formatFile(name, o))
		}
	}
	return result
}

// worse returns the worse of two outcomes: an error, then a finding, then nil.
func worse(a, b error) error {
	var found finding
	if a == nil || errors.As(a, &found) && b != nil {
		return b
	}
	return a
}

// formatFile formats a file in place, or standard input to standard output. With --check it shows what would change.
func (p *process) formatFile(name string, o fmtOptions) error {
	shown := name
	if name == "-" {
		shown = "<stdin>"
	}
	src, diags, err := p.readSource(name)
	var out []byte
	if err == nil && !diags.HasErrors() {
		out, diags = spec.Format(src, shown)
	}
	switch {
	case err != nil:
		return err
	case diags.HasErrors():
		return p.printDiagnostics("", diags)
	case o.check && !bytes.Equal(src, out):
		parts := strings.Split(string(diff.Diff(shown, src, shown+" (formatted)", out)), "\t")
		fmt.Fprint(p.out, strings.Join(text.Each(parts, text.EscapeLines), "\t")) // tabs stay
		return foundDifferences
	case o.check:
	case name == "-":
		_, err = p.out.Write(out)
	case !bytes.Equal(src, out):
		if err = writeFile(p.path(name), out); err == nil && !p.flags.quiet {
			fmt.Fprintln(p.out, text.Escape(name))
		}
	}
	return err
}

// readSource reads a file as named on the command line; "-" is standard input. Of a large input it reads enough to find
// that it is too large.
func (p *process) readSource(name string) ([]byte, spec.Diagnostics, error) {
	if name == "-" {
		src, err := io.ReadAll(io.LimitReader(p.in, spec.MaxFile+1))
		return src, nil, err
	}
	src, diags := spec.ReadSource(p.path(name), name)
	return src, diags, nil
}

// hclFiles returns the HCL files of a directory in order, or the file that arg names.
func (p *process) hclFiles(arg string, recursive bool) ([]string, error) {
	info, err := os.Stat(p.path(arg))
	if err != nil || !info.IsDir() {
		return []string{arg}, err
	}
	var files []string
	err = filepath.WalkDir(p.path(arg), func(name string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(p.path(arg), name)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case rel == ".":
		case d.IsDir() && (!recursive || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(d.Name(), ".hcl") && !strings.HasPrefix(d.Name(), "."):
			files = append(files, filepath.Join(arg, rel))
		}
		return nil
	})
	return files, err
}
