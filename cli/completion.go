package cli

import (
	_ "embed"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// bashSuffix follows cobra's script for bash.
//
//go:embed completion.bash
var bashSuffix string

func newCompletionCmd(p *process) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that completes muster's commands in a shell",
		Long: `Prints a script that completes commands, flags and their values. The one for
bash needs the package bash-completion.`,
		Example: `  source <(muster completion bash)                           in ~/.bashrc
  muster completion zsh > "${fpath[1]}/_muster"
  muster completion fish > ~/.config/fish/completions/muster.fish`,
		ValidArgs: shells,
		Args:      argCount(1, 1, "the name of a shell: bash, zsh, fish or powershell"),
		RunE:      func(cmd *cobra.Command, args []string) error { return runCompletion(p, cmd.Root(), args[0]) },
	}
}

func runCompletion(p *process, root *cobra.Command, shell string) error {
	switch shell {
	case "bash":
		if err := root.GenBashCompletionV2(p.out, true); err != nil {
			return err
		}
		_, err := io.WriteString(p.out, bashSuffix)
		return err
	case "zsh":
		return root.GenZshCompletion(p.out)
	case "fish":
		return root.GenFishCompletion(p.out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(p.out)
	}
	return usagef("muster completion --help",
		"%q is not a shell that muster knows: bash, zsh, fish or powershell", shell)
}

// plainDescriptions takes the quotes out of what flags say. They mark a placeholder for the help; a shell shows them.
func plainDescriptions(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.PersistentFlags().VisitAll(plain)
	cmd.Flags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		plainDescriptions(c)
	}
}
