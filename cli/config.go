package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"muster/spec"
	"muster/text"
)

// varFlags are --var and --var-file, in the order in which they were given: a later one wins.
type varFlags []spec.VarInput

func (v *varFlags) addTo(fs *pflag.FlagSet) {
	fs.Var(&varValue{to: v}, "var", "set a variable: `NAME=VALUE`; may be repeated")
	fs.Var(&varValue{to: v, file: true}, "var-file", "set the variables in `FILE`; may be repeated")
}

// varValue is one of the two flags.
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

// load reads the configuration in dir ("" is where muster was started). Errors are printed as diagnostics; what is
// left to say is the code.
func (p *process) load(dir string, vars varFlags) (*spec.Config, error) {
	return p.loadAt(dir, vars, time.Time{})
}

// loadAt is load for a command to which ignored drift may have expired by now.
func (p *process) loadAt(dir string, vars varFlags, now time.Time) (*spec.Config, error) {
	cfg, diags, err := p.parse(dir, vars, now)
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, p.said(p.path(dir), diags)
	}
	return cfg, nil
}

// parse is loadAt without printing.
func (p *process) parse(dir string, vars varFlags, now time.Time) (*spec.Config, spec.Diagnostics, error) {
	dir = p.path(dir)
	if dir == "" {
		dir = "."
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, nil, notDirectory(dir)
	}
	auth, err := p.credentials()
	if err != nil {
		return nil, nil, err
	}
	opts := spec.Options{Environ: p.environ, Version: Version, Now: now, HasCredentials: len(auth) > 0}
	for _, v := range vars {
		if v.File != "" {
			v.File = p.path(v.File)
		}
		opts.Vars = append(opts.Vars, v)
	}
	cfg, diags := spec.Load(dir, opts)
	return cfg, diags, nil
}

// notDirectory refuses a file where a configuration is wanted.
func notDirectory(file string) error {
	return usagef("name its directory: "+filepath.Dir(file), "%s is a file: a configuration is a directory of *.hcl files", file)
}

// said prints diagnostics about the configuration in dir and returns them as an error for which nothing is left to print.
func (p *process) said(dir string, diags spec.Diagnostics) error {
	if err := seenFrom(dir, diags).Text(p.err, p.color(p.err)); err != nil {
		return err
	}
	return diagnosed(diags)
}

// seenFrom names the files of diagnostics as seen from where muster was started, so that an editor finds them. What is not a file
// of the configuration in dir, such as MUSTER_VAR_x, keeps its name.
func seenFrom(dir string, diags spec.Diagnostics) spec.Diagnostics {
	name := func(file string) string {
		at := filepath.Join(dir, file)
		if _, err := os.Stat(at); err != nil || filepath.IsAbs(file) {
			return file
		}
		return at
	}
	diags = slices.Clone(diags)
	for i := range diags {
		d := &diags[i]
		if d.Range != nil {
			r := *d.Range
			r.Filename = name(r.Filename)
			d.Range = &r
		}
		d.Related = slices.Clone(d.Related)
		for j := range d.Related {
			d.Related[j].Range.Filename = name(d.Related[j].Range.Filename)
		}
		d.Values = slices.Clone(d.Values)
		for j, v := range d.Values {
			if file, line, ok := strings.Cut(v.From, ":"); ok {
				d.Values[j].From = name(file) + ":" + line
			}
		}
	}
	return diags
}

// diagnosed is diagnostics that are on the screen.
type diagnosed spec.Diagnostics

func (d diagnosed) Error() string { return text.Count(len(d), "diagnostic") }
func (d diagnosed) Unwrap() error { return errSaid }

// configured reports whether there is a configuration where muster was started. An empty file is none: a shell makes one
// before muster export writes to it.
func (p *process) configured() bool {
	for _, pattern := range []string{"*.hcl", "*.hcl.json"} {
		names, _ := filepath.Glob(filepath.Join(p.path("."), pattern))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Size() == 0 {
				continue
			}
			if name = filepath.Base(name); !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".vars.hcl") {
				return true
			}
		}
	}
	return false
}
