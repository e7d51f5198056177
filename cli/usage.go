package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/docs"
	"muster/resource"
	"muster/text"
)

const helpWidth = 80 // columns

// insideGroup is the group of commands for the inside of a command that muster runs. The first screen leaves it out.
const insideGroup = "Inside a command that muster runs:"

// addCommands adds to root a group of commands, which the first screen lists below its title.
func addCommands(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

func help(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasParent() {
		helpRoot(w, cmd)
		return
	}
	cmd.InitDefaultHelpFlag() // cobra adds it to a command that runs, and "muster help COMMAND" runs another
	fmt.Fprintf(w, "%s\n\nUsage:\n", strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short+".")))
	if cmd.Runnable() && !cmd.HasAvailableSubCommands() || strings.Contains(cmd.Use, " ") {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND [flags]\n\nCommands:\n", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			listCommand(w, c)
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", flagUsages(cmd.LocalFlags()))
	}
	fmt.Fprint(w, "\nThe flags of all commands: muster help flags\n")
}

// helpRoot is the first screen.
func helpRoot(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, "%s\n", root.Long)
	for _, g := range root.Groups() {
		if g.ID != insideGroup {
			helpGroup(w, root, g.ID)
		}
	}
	fmt.Fprint(w, `
One command:          muster COMMAND --help
Inside one, or flags: muster help inside, muster help flags
`)
}

func helpGroup(w io.Writer, root *cobra.Command, title string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for _, c := range root.Commands() {
		if c.GroupID == title {
			listCommand(w, c)
		}
	}
}

func listCommand(w io.Writer, c *cobra.Command) {
	if c.IsAvailableCommand() {
		fmt.Fprintf(w, "  %-11s %s\n", c.Name(), c.Short)
	}
}

var optionalValue = regexp.MustCompile(`(--\S+) (\S+)\[="[^"]*"\]`)

// flagUsages lists flags. One whose value may be left out is --lines[=FORMAT]: a space before the value would be wrong.
func flagUsages(fs *pflag.FlagSet) string {
	return optionalValue.ReplaceAllStringFunc(fs.FlagUsagesWrapped(helpWidth), func(s string) string {
		return fmt.Sprintf("%-*s", len(s), optionalValue.ReplaceAllString(s, "$1[=$2]"))
	})
}

func newHelpCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | inside | flags]",
		Short: "Explain a command",
		Long:  "Explains a command, lists those for the inside of a command, or the flags of all.",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch strings.Join(args, " ") {
			case "inside":
				fmt.Fprint(p.out, "These ask the worker or the member that runs the command.\n")
				helpGroup(p.out, cmd.Root(), insideGroup)
				return nil
			case "flags":
				_, err := fmt.Fprintf(p.out, "Flags of all commands:\n%s", flagUsages(cmd.Root().PersistentFlags()))
				return err
			}
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), args[len(args)-1])
			}
			help(p.out, topic)
			return nil
		},
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	if next, ok := docs.Words[name]; ok {
		return usagef(next, "unknown command %q", name)
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	near := cmp.Or(append([]string{text.Nearest(name, names)}, root.SuggestionsFor(name)...)...)
	if near != "" {
		return usagef("muster "+near, "unknown command %q: did you mean %q?", name, near)
	}
	return usagef("muster --help", "unknown command %q", name)
}

// flagError returns a usage problem with a flag. It suggests a flag and names the help.
func flagError(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasParent() { // in "muster plna --out x" the command is wrong, not the flag
		if name := firstWord(cmd, args); name != "" {
			return unknownCommand(cmd, name)
		}
	}
	next := cmd.CommandPath() + " --help"
	var prob *problem
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &prob):
		return prob
	case errors.As(err, &unknown):
		short := unknown.GetSpecifiedShortnames()
		if short == "f" && strings.Contains(cmd.Use, "DIR") { // of status, explain and others
			return usagef(next, "unknown flag -f: the directory or the file is an argument: %s DIR", cmd.CommandPath())
		}
		if short != "" {
			return usagef(next, "unknown flag -%s", short)
		}
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	case errors.As(err, &missing):
		return usagef(next, "--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &invalid):
		hint := map[string]string{
			"int":      "write a whole number",
			"duration": "write a number and a unit, such as 30s or 2m",
			"bool":     "write true or false",
		}[invalid.GetFlag().Value.Type()]
		return usagef(next, "--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), cmp.Or(hint, invalid.Unwrap().Error()))
	}
	return usagef(next, "%s", err)
}

// meant names the word that was probably meant, or all.
func meant(word string, all []string) string {
	if near := text.Nearest(word, all); near != "" {
		return "did you mean " + near + "?"
	}
	return strings.Join(all, ", ")
}

func unknownFlag(cmd *cobra.Command, name string) error {
	next := cmd.CommandPath() + " --help"
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := text.Nearest(name, names); near != "" {
		return usagef(next, "unknown flag --%s: did you mean --%s?", name, near)
	}
	return usagef(next, "unknown flag --%s", name)
}

// firstWord returns the first of args that is neither a flag of root nor the value of one.
func firstWord(root *cobra.Command, args []string) string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.AddFlagSet(root.PersistentFlags())
	_ = fs.Parse(args) // only the words are wanted
	return fs.Arg(0)
}

// argCount checks that there are low to high positional arguments. what is their name in the error.
func argCount(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		next := cmd.CommandPath() + " --help"
		switch {
		case len(args) < low:
			return usagef(next, "%s needs %s", cmd.CommandPath(), what)
		case len(args) > high && high == 0:
			return usagef(next, "%s takes no argument, and %q is one", cmd.CommandPath(), args[0])
		case len(args) > high:
			return usagef(next, "%s takes %s and nothing more: %q is too much", cmd.CommandPath(), what, args[high])
		}
		return nil
	}
}

// newNounCmd makes the command of a noun, such as "muster queue", which only holds the commands about it.
func newNounCmd(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd.CommandPath()+" --help", "%s has no command %q", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// beforeDash checks the arguments before --.
func beforeDash(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args = args[:dash]
		}
		return check(cmd, args)
	}
}

// refuseEmpty refuses empty arguments and blank values of flags: they probably come from a shell variable that is not
// set, and a default would not be what the user meant. Exempt are a worker's command after --, requests for
// completions, whose last word may be empty, and --fail-on, which may name nothing.
func refuseEmpty(cmd *cobra.Command, args []string) error {
	if cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd {
		return nil
	}
	next := "is a variable of the shell not set? " + cmd.CommandPath() + " --help"
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		args = args[:n]
	}
	if slices.Contains(args, "") {
		return usagef(next, "an argument is empty")
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		} else if f.Value.Type() != "string" {
			return
		}
		blank := slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" })
		if blank || len(values) == 0 && f.Name != "fail-on" {
			err = usagef(next, "the value of --%s is empty", f.Name)
		}
	})
	return err
}

func firstArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// badRoot is the problem of a root that cannot be one. It names the one that was probably meant.
func badRoot(root string, err error) error {
	return usagef("--root "+meantRoot(root), "root: %w", err)
}

func meantRoot(root string) string {
	if meant := "/" + strings.Trim(root, "/"); resource.CheckRoot(meant) == nil {
		return text.ShellWord(meant)
	}
	return resource.DefaultRoot
}

func checkStacks(stacks []string) error {
	for _, stack := range stacks {
		if err := resource.CheckName("stack", stack); err != nil {
			return usagef("muster history --all shows the stacks", "--stack %q: %w", stack, err)
		}
	}
	return nil
}

// badAddress is the problem of who cannot listen at the address of a flag. An address that is taken is not the fault
// of the command line: later the same command may succeed.
func badAddress(flag, address string, err error) error {
	name := flag + " " + address
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &problem{nil, fmt.Errorf("%s: %w", name, err),
			"another process listens there: end it, or take a free port: " + flag + " 127.0.0.1:0"}
	case errors.Is(err, fs.ErrPermission):
		return usagef("a port from 1024 on needs no permission: "+flag+" 127.0.0.1:8090", "%s: %w", name, err)
	}
	return usagef("give "+flag+" an address of this machine, such as 127.0.0.1:8090", "%s: %w", name, err)
}
