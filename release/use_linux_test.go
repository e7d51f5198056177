package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/cli"
	"muster/sim/needs"
)

// released is how the binary of a tagged commit introduces itself.
var released = regexp.MustCompile(`^muster ` + regexp.QuoteMeta(cli.Version) + ` [0-9a-f]{12} \(go\S+, \S+\)\n$`)

// useArchive uses an unpacked archive as somebody would who has nothing else of muster.
func useArchive(t *testing.T, dir string) {
	if got := mustOutput(t, dir, "./muster", "version"); !released.MatchString(got) {
		t.Errorf("version: %q", got)
	}
	modes := make(map[string]bool)
	owners := mustOutput(t, filepath.Dir(dir), "tar", "-tvf", dir+".tar.gz", "--numeric-owner")
	for line := range strings.Lines(owners) {
		modes[strings.Join(strings.Fields(line)[:2], " ")] = true
	}
	if len(modes) != 3 || !modes["drwxr-xr-x 0/0"] || !modes["-rw-r--r-- 0/0"] || !modes["-rwxr-xr-x 0/0"] {
		t.Errorf("the archive has these modes and owners: %v", modes)
	}
	for _, name := range []string{
		"README.md", "CHANGELOG.md", "docs/install.md", "docs/diagnostics/M1001.md", "examples/one-job.hcl",
		"completions/bash/muster", "completions/zsh/_muster", "completions/fish/muster.fish", "man/man1/muster-plan.1",
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	componentsAreLinked(t, dir)
	out := mustOutput(t, dir, "./examples/demo.sh")
	if !strings.Contains(out, "\n# done: no process and no file is left\n") {
		t.Errorf("the demo:\n%s", out)
	}
}

// componentsAreLinked: the bill of materials has the modules that are in the binary, and no others.
func componentsAreLinked(t *testing.T, dir string) {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(dir, "muster"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	body, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct {
			URL string `json:"purl"`
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	for _, c := range doc.Components {
		if !strings.HasPrefix(c.URL, "pkg:golang/std@") {
			got = append(got, c.URL)
		}
	}
	if !slices.Equal(got, want) || len(got)+1 != len(doc.Components) || doc.Metadata.Component.Version != cli.Version {
		t.Errorf("version %s, %q, want %q", doc.Metadata.Component.Version, got, want)
	}
}

// usePackage installs a package into a folder, uses what it installs, and removes it.
func usePackage(t *testing.T, format, file string) {
	root := t.TempDir()
	asRoot := needs.Unshare(t, []string{"--mount"}, "true")
	manage := func(deb, rpm []string) {
		t.Helper()
		args := map[string][]string{
			"deb": append([]string{needs.Program(t, "dpkg", "dpkg"), "--root=" + root}, deb...),
			"rpm": append([]string{needs.Program(t, "rpm", "rpm"), "--root=" + root}, rpm...),
		}[format]
		args = append(slices.Clone(asRoot), args...)
		mustOutput(t, root, args[0], args[1:]...)
	}
	manage([]string{"-i", file}, []string{"-i", file})
	if got := mustOutput(t, root, filepath.Join(root, "usr/bin/muster"), "version"); !released.MatchString(got) {
		t.Errorf("version: %q", got)
	}
	bashFindsCompletion(t, root)
	page := mustOutput(t, root, "env", "MANPATH="+filepath.Join(root, "usr/share/man"), "MANWIDTH=80", "LC_ALL=C.UTF-8",
		needs.Program(t, "man", "man-db"), "muster-plan")
	if !strings.Contains(page, "--detailed-exitcode") || !strings.Contains(page, "MUSTER-PLAN(1)") {
		t.Errorf("man muster-plan:\n%s", page)
	}
	manage([]string{"-r", "muster"}, []string{"-e", "muster"})
	for name := range treeOf(t, root) {
		if strings.HasPrefix(name, "usr/share/doc/muster") || filepath.Base(name) == "muster" {
			t.Errorf("%s is left", name)
		}
	}
}

// bashFindsCompletion: bash-completion loads the script by the name of the command when it is first needed.
func bashFindsCompletion(t *testing.T, root string) {
	t.Helper()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		needs.Missing(t, "%v (apt-get install bash-completion)", err)
	}
	got := mustOutput(t, root, "env", "XDG_DATA_DIRS="+filepath.Join(root, "usr/share"), "bash", "--norc", "-c",
		"source "+library+"; _completion_loader muster; complete -p muster")
	if !strings.Contains(got, "-F __muster_escaped muster\n") {
		t.Errorf("bash completes muster with %q", got)
	}
}
