package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
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
		return printJSON(p.out, v)
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

// printJSON prints v with indentation and a newline at the end.
func printJSON(p *stream, v any) error {
	enc := json.NewEncoder(p)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
