package cli

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/report"
	"muster/text"
)

type globalFlags struct {
	dir                    string
	servers                []string
	tlsCA, tlsCert, tlsKey string
	color                  string
	logLevel, logFormat    string
	noInput, quiet         bool
}

func (g *globalFlags) addTo(root *cobra.Command) {
	fs := root.PersistentFlags()
	fs.StringVarP(&g.dir, "chdir", "C", "", "work as if started in `DIR`")
	fs.StringSliceVar(&g.servers, "servers", nil, "ZooKeeper as `LIST` of host:port, with commas (MUSTER_SERVERS)")
	fs.StringVar(&g.tlsCA, "tls-ca", "", "trust the certificates in `FILE` (MUSTER_TLS_CA)")
	fs.StringVar(&g.tlsCert, "tls-cert", "", "my certificate is in `FILE` (MUSTER_TLS_CERT)")
	fs.StringVar(&g.tlsKey, "tls-key", "", "my key is in `FILE` (MUSTER_TLS_KEY)")
	choose(root, fs, &g.color, "color", "use colour: `WHEN` is auto, always or never", "auto", "always", "never")
	fs.StringVar(&g.logLevel, "log-level", "",
		"log from `LEVEL` on: off, error, warn, info or debug (MUSTER_LOG); default error, "+
			"of a process that stays, such as a worker, info")
	completeWith(root, "log-level", "off", "error", "warn", "info", "debug")
	choose(root, fs, &g.logFormat, "log-format", "write on standard error in `FORMAT` text or json", "text", "json")
	fs.BoolVar(&g.noInput, "no-input", false, "never ask (MUSTER_INPUT=0)")
	fs.BoolVarP(&g.quiet, "quiet", "q", false, "say nothing when all is well")
	_ = root.MarkPersistentFlagDirname("chdir")
}

type choice struct {
	to    *string
	flag  string
	words []string
}

// choose adds to fs, the flags of cmd, one that takes one of these words, the first by default, and completes them.
func choose(cmd *cobra.Command, fs *pflag.FlagSet, to *string, flag, usage string, words ...string) {
	*to = words[0]
	fs.Var(choice{to, flag, words}, flag, usage)
	completeWith(cmd, flag, words...)
}

func (c choice) String() string { return *c.to }
func (c choice) Type() string   { return "string" }

// Set leaves a blank word to refuseEmpty, which says more.
func (c choice) Set(word string) error {
	if !slices.Contains(c.words, word) && strings.TrimSpace(word) != "" {
		return usagef(fmt.Sprintf("--%s %s", c.flag, c.words[0]), "--%s %q is none of %q", c.flag, word, c.words)
	}
	*c.to = word
	return nil
}

func completeWith(cmd *cobra.Command, flag string, words ...string) {
	// It fails only if the flag does not exist. The tests of completion would show that.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// start runs before every command: it checks the global flags and opens the log.
func (p *process) start(cmd *cobra.Command, args []string) error {
	return p.startAt(cmd, args, slog.LevelError)
}

// startLong is start for a process that stays: it also says what goes on, such as that a connection is lost. With
// --quiet it says only what is wrong.
func (p *process) startLong(cmd *cobra.Command, args []string) error {
	if p.flags.quiet {
		return p.startAt(cmd, args, slog.LevelWarn)
	}
	return p.startAt(cmd, args, slog.LevelInfo)
}

func (p *process) startAt(cmd *cobra.Command, args []string, byDefault slog.Level) error {
	if err := refuseEmpty(cmd, args); err != nil {
		return err
	}
	g := &p.flags
	if info, err := os.Stat(cmp.Or(g.dir, ".")); g.dir != "" && (err != nil || !info.IsDir()) {
		return usagef("give -C a directory that is there", "-C %s: there is no such directory", g.dir)
	}
	if strings.Contains(strings.Join(g.servers, ",")+p.environ.value("MUSTER_SERVERS"), "@") { // next steps repeat them
		return usagef("write host:port,host:port; MUSTER_ZK_AUTH takes credentials",
			"the address of a ZooKeeper server has no @, and no user and password before it")
	}
	p.note(cmd, args)
	g.logLevel = cmp.Or(g.logLevel, p.environ.value("MUSTER_LOG"))
	level, ok := map[string]slog.Level{
		"off": slog.LevelError + 100, "": byDefault, "error": slog.LevelError, "warn": slog.LevelWarn,
		"info": slog.LevelInfo, "debug": slog.LevelDebug,
	}[strings.ToLower(g.logLevel)]
	if !ok {
		return usagef("--log-level off, error, warn, info or debug", "log level %q is not known", g.logLevel)
	}
	p.log = slog.New(p.logHandler(level))
	return nil
}

// color reports whether a stream gets colour. The first that is set decides: --color, NO_COLOR, FORCE_COLOR, TERM=dumb
// or no TERM. Otherwise a terminal gets colour.
func (p *process) color(w io.Writer) bool {
	switch {
	case p.flags.color != "auto":
		return p.flags.color == "always"
	case p.environ.value("NO_COLOR") != "":
		return false
	case p.environ.value("FORCE_COLOR") != "":
		return true
	case slices.Contains([]string{"", "dumb"}, p.environ.value("TERM")):
		return false
	}
	return isTerminal(w)
}

func (p *process) layout() report.Options {
	return report.Options{Color: p.color(p.out), Width: width(p.out), Given: p.given()}
}

// noPromptReason says why muster cannot ask the user. It is empty if it can.
func (p *process) noPromptReason() string {
	switch ci := strings.ToLower(p.environ.value("CI")); {
	case p.flags.noInput:
		return "--no-input forbids asking"
	case p.environ.value("MUSTER_INPUT") == "0":
		return "MUSTER_INPUT=0 forbids asking"
	case ci != "" && ci != "0" && ci != "false":
		return "CI is set, which forbids asking"
	case !isTerminal(p.in):
		return "there is no terminal to ask at"
	}
	return ""
}

// path returns a file name of the command line or the environment, relative to -C.
func (p *process) path(name string) string {
	if filepath.IsAbs(name) || p.flags.dir == "" {
		return name
	}
	return filepath.Join(p.flags.dir, name)
}

// pathIfAny is path for a file that need not be named: empty stays empty.
func (p *process) pathIfAny(name string) string {
	if name == "" {
		return ""
	}
	return p.path(name)
}

// called is how muster was called, as far as a next step has to repeat it.
type called struct {
	cmd     *cobra.Command
	config  string   // the directory or file of the configuration; "" is the current directory
	servers []string // that the configuration declares, if they are used
}

func (p *process) note(cmd *cobra.Command, args []string) {
	p.called.cmd = cmd
	if f := cmd.Flags().Lookup("file"); f != nil {
		if !f.Changed { // it stays so: what was typed may ask for more than where to look
			_ = f.Value.Set(p.environ.value("MUSTER_FILE"))
		}
		p.called.config = f.Value.String()
	}
	if arg := firstArg(args); takesConfig(cmd) && arg != "" {
		if file, err := p.isPlanFile(arg); err == nil && !file {
			p.called.config = arg
		}
	}
}

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
	takesPart := slices.Contains([]string{"worker", "member", "executor", "watcher", "follow"}, c.Name())
	switch reads := c.Flags().Lookup("file") != nil && !takesPart; {
	case reads || takesConfig(c):
		add("-C", p.flags.dir)
		flag := "-f"
		if takesConfig(c) {
			flag = ""
		}
		add(flag, p.called.config)
		if f := p.called.cmd.Flags().Lookup("var"); f != nil {
			for _, v := range *f.Value.(*varValue).to {
				add("--var", v.Flag)
				add("--var-file", v.File)
			}
		}
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
