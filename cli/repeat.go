package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/report"
	"muster/text"
)

// called is how muster was called, as far as a next step has to repeat it.
type called struct {
	cmd     *cobra.Command
	config  string   // the directory or file of the configuration; "" is the current directory
	servers []string // that the configuration declares, if they are used
}

// note remembers how muster was called.
func (p *process) note(cmd *cobra.Command, args []string) {
	p.called.cmd = cmd
	if f := cmd.Flags().Lookup("file"); f != nil {
		p.called.config = f.Value.String()
	}
	if arg := firstArg(args); takesConfig(cmd) && arg != "" {
		if file, err := p.isPlanFile(arg); err == nil && !file {
			p.called.config = arg
		}
	}
}

// takesConfig reports whether the argument of cmd names a configuration.
func takesConfig(cmd *cobra.Command) bool { return strings.HasSuffix(cmd.Use, "DIR | FILE]") }

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

// repeatFor returns what c has to repeat: the configuration if c reads one, and how to reach ZooKeeper if c does. A
// worker, a member and the like may run on other machines, so they get what the configuration says of ZooKeeper.
func (p *process) repeatFor(c *cobra.Command) report.Repeat {
	var r report.Repeat
	var words []string
	add := func(flag, value string) {
		if value != "" {
			words = append(words, strings.TrimSpace(flag+" "+text.ShellWord(value)))
		}
	}
	servers := p.flags.servers
	below := c.Flags().Lookup("root") != nil
	switch reads := c.Flags().Lookup("file") != nil && c.Name() != "worker"; {
	case takesConfig(c):
		add("-C", p.flags.dir)
		add("", p.called.config)
		p.addVars(add)
	case reads:
		add("-C", p.flags.dir)
		add("-f", p.called.config)
		p.addVars(add)
	case below && len(servers) == 0:
		servers = p.called.servers
	case !below:
		return r
	}
	if c.Name() != "validate" { // it does not connect
		add("--servers", strings.Join(servers, ","))
		add("--tls-ca", p.flags.tlsCA)
		add("--tls-cert", p.flags.tlsCert)
		add("--tls-key", p.flags.tlsKey)
	}
	if f := p.called.cmd.Flags().Lookup("root"); below && f != nil && f.Changed {
		r.Root = "--root " + text.ShellWord(f.Value.String())
	}
	r.Words = strings.Join(words, " ")
	return r
}

// addVars adds the variables that this command was given.
func (p *process) addVars(add func(flag, value string)) {
	f := p.called.cmd.Flags().Lookup("var")
	if f == nil {
		return
	}
	given, _ := f.Value.(*varValue)
	for _, v := range *given.to {
		add("--var", v.Flag)
		add("--var-file", v.File)
	}
}

// given lists those of the named flags that were given, and their values, as one types them.
func given(fs *pflag.FlagSet, names ...string) (words []string) {
	for _, name := range names {
		f := fs.Lookup(name)
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case !f.Changed:
		case isList:
			for _, value := range list.GetSlice() {
				words = append(words, "--"+name, value)
			}
		case f.Value.Type() != "bool":
			words = append(words, "--"+name, f.Value.String())
		case f.Value.String() == "true":
			words = append(words, "--"+name)
		}
	}
	return words
}
