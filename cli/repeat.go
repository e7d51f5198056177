package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/text"
)

// called is how muster was called, as far as a next step has to repeat it.
type called struct {
	cmd     *cobra.Command
	config  string   // the argument that names the configuration; "" is the current directory
	isDir   bool     // config names a directory, not a file
	stack   string   // of the configuration that was read
	servers []string // that this configuration declares, if they are used
}

// note remembers how muster was called.
func (p *process) note(cmd *cobra.Command, args []string) {
	p.called.cmd = cmd
	if arg := firstArg(args); takesConfig(cmd) && arg != "" {
		if file, err := p.isPlanFile(arg); err == nil && !file {
			p.called.config, p.called.isDir = arg, !isConfigFile(arg)
		}
	}
}

// takesConfig reports whether an argument of cmd may name a configuration.
func takesConfig(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, "DIR") }

// paste completes the commands in a next step, so that they can be pasted into a shell: they repeat what this command
// was given.
func (p *process) paste(step string) string { return p.given().Paste(step) }

// given returns what next steps repeat, by the name of the command.
func (p *process) given() report.Given {
	g := report.Given{}
	if p.called.cmd == nil {
		return g
	}
	root := p.called.cmd.Root()
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			g[strings.TrimPrefix(sub.CommandPath(), root.Name()+" ")] = p.repeatFor(sub)
			add(sub)
		}
	}
	add(root)
	return g
}

// repeatFor returns what c has to repeat: the configuration if c reads one, and how to reach ZooKeeper if it connects.
func (p *process) repeatFor(c *cobra.Command) report.Repeat {
	readsConfig, below := c.Flags().Lookup("var") != nil, c.Flags().Lookup("root") != nil
	if !readsConfig && !below {
		return report.Repeat{}
	}
	var words []string
	add := func(flag, value string) {
		if value != "" {
			words = append(words, strings.TrimSpace(flag+" "+text.ShellWord(value)))
		}
	}
	dir := p.flags.dir
	if !takesConfig(c) && p.called.isDir {
		dir = p.path(p.called.config)
	}
	if readsConfig {
		add("-C", dir)
	}
	if takesConfig(c) {
		add("", p.called.config)
	}
	servers := p.flags.servers
	if knows := readsConfig && (takesConfig(c) || p.called.config == "" || p.called.isDir); !knows && len(servers) == 0 {
		servers = p.called.servers
	}
	if c.Name() != "validate" {
		add("--servers", strings.Join(servers, ","))
		add("--tls-ca", p.from(dir, p.flags.tlsCA))
		add("--tls-cert", p.from(dir, p.flags.tlsCert))
		add("--tls-key", p.from(dir, p.flags.tlsKey))
	}
	if readsConfig {
		for _, v := range p.calledVars() {
			add("--var", v.Flag)
			add("--var-file", p.from(dir, v.File))
		}
	}
	if c.Flags().Lookup("stack") != nil && p.called.config != "" && !p.called.isDir {
		add("--stack", p.called.stack)
	}
	r := report.Repeat{Words: strings.Join(words, " ")}
	if f := p.called.cmd.Flags().Lookup("root"); below && f != nil && f.Changed {
		r.Root = "--root " + text.ShellWord(f.Value.String())
	}
	return r
}

// calledVars returns the variables that this command was given.
func (p *process) calledVars() varFlags {
	f := p.called.cmd.Flags().Lookup("var")
	if f == nil {
		return nil
	}
	v, _ := f.Value.(*varValue)
	return slices.Clone(*v.to)
}

// from returns the name of a file of the command line as it is relative to dir, for "-C dir".
func (p *process) from(dir, name string) string {
	if name == "" || filepath.IsAbs(name) || dir == p.flags.dir {
		return name
	}
	if to, err := filepath.Rel(dir, p.path(name)); err == nil {
		return to
	}
	return name
}
