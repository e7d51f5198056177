package cli

import (
	"embed"
	"fmt"
	"io"
	"path"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Version is the version of the source tree: the one that was released last, or that is in the making. The go command
// adds the tag and the commit to the binary.
const Version = "0.1.0"

// VersionOf returns the version of a binary. It is Version only if the binary was built from the commit with that tag,
// in git and without changes. Any other is not that release, and its version says so: 0.1.0-dev comes before 0.1.0.
func VersionOf(info *debug.BuildInfo) string {
	if info.Main.Version == "v"+Version {
		return Version
	}
	return Version + "-dev"
}

// versionInfo is what "version --json" prints.
type versionInfo struct {
	FormatVersion string `json:"format_version"`
	Version       string `json:"version"`
	Revision      string `json:"revision,omitempty"` // the git commit; empty if it was built outside of git
	Modified      bool   `json:"modified,omitempty"` // it was built with changes that are not in the commit
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

func newVersionCmd(p *process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  argCount(0, 0, ""),
		RunE:  func(*cobra.Command, []string) error { return runVersion(p, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func runVersion(p *process, asJSON bool) error {
	v := version()
	if asJSON {
		return p.printJSON(v)
	}
	if v.Revision != "" {
		v.Version += " " + v.Revision[:min(12, len(v.Revision))]
	}
	if v.Modified {
		v.Version += " modified"
	}
	fmt.Fprintf(p.out, "muster %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return nil
}

func version() versionInfo {
	v := versionInfo{
		FormatVersion: "1.0", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	v.Version = VersionOf(info)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

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

// schemas are the JSON Schemas of what muster writes for other programs.
//
//go:embed schema/*.schema.json
var schemas embed.FS

const schemaSuffix = ".schema.json"

func newSchemaCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "schema plan|apply|drift|history|validate|event",
		Short: "Print the JSON Schema of a document that muster writes",
		Long: `Prints the JSON Schema (draft 2020-12) of a saved plan, which is also what "plan
--format json" prints, of the json report of apply or drift, of what
"history --json" or "validate --json" prints, or of a line of
"reconcile --events".`,
		Example:   `  muster schema plan > plan.schema.json`,
		ValidArgs: schemaNames(),
		Args:      argCount(1, 1, "the name of a document: "+strings.Join(schemaNames(), ", ")),
		RunE:      func(_ *cobra.Command, args []string) error { return runSchema(p, args[0]) },
	}
}

func schemaNames() []string {
	return []string{"apply", "drift", "event", "history", "plan", "validate"}
}

func runSchema(p *process, name string) error {
	body, err := schemas.ReadFile(path.Join("schema", name+schemaSuffix))
	if err != nil {
		return usagef("muster schema --help", "there is no schema of %q: %s", name, strings.Join(schemaNames(), ", "))
	}
	_, err = p.out.Write(body)
	return err
}
