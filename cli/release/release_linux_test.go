package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"muster/cli"
	"muster/sim/needs"
	"muster/sim/rig"
)

// mustRun runs a script of the shell that has to succeed, and returns what it printed.
func mustRun(t *testing.T, dir string, env []string, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-euc", script, "bash"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", script, args, err, out)
	}
	return string(out)
}

// checkout copies this tree as it is now. It is outside of git until it is tagged.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustRun(t, "../..", nil, `
		if [ -e .git ]; then git ls-files -zco --exclude-standard; else find . -type f -not -path './dist/*' -print0; fi |
			tar --null --ignore-failed-read -cf - -T - 2>/dev/null | tar -xf - -C "$1"`, dir)
	return dir
}

// tag makes a tree a repository with one commit, which is the same each time, and the tag of this version.
func tag(t *testing.T, dir string) {
	t.Helper()
	needs.Program(t, "git", "git")
	mustRun(t, dir, []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@localhost", "GIT_AUTHOR_DATE=2026-11-21T02:00:00Z",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@localhost", "GIT_COMMITTER_DATE=2026-11-21T02:00:00Z",
	}, `git init -q; git add -A; git commit -qm all; git tag "$1"`, "v"+cli.Version)
}

// release runs release.sh in a tree, and returns the checksums of what it writes.
func release(t *testing.T, dir, umask string, env ...string) string {
	t.Helper()
	platforms := "linux/" + runtime.GOARCH
	if rig.Long() {
		platforms = "" // all
	}
	mustRun(t, dir, env, `
		umask "$1"; rm -rf dist; ./cli/release/release.sh $2; cd dist
		sha256sum -c --strict --quiet SHA256SUMS; test "$(wc -l <SHA256SUMS)" = "$(ls | grep -vc SUMS)"`, umask, platforms)
	sums, err := os.ReadFile(filepath.Join(dir, "dist", "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return string(sums)
}

// elsewhere is another machine as far as a build can see it.
func elsewhere(t *testing.T) []string {
	t.Helper()
	dirs := strings.Fields(mustRun(t, ".", nil, "go env GOCACHE GOMODCACHE GOPATH"))
	if rig.Long() {
		dirs[0] = t.TempDir() // everything is compiled again
	}
	return []string{
		"GOCACHE=" + dirs[0], "GOMODCACHE=" + dirs[1], "GOPATH=" + dirs[2], "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(),
		"TZ=Asia/Tokyo", "LC_ALL=de_DE.UTF-8", "LANG=de_DE.UTF-8", "USER=nobody", "LOGNAME=nobody", "HOSTNAME=elsewhere",
		"GOFLAGS=-buildvcs=false",
	}
}

// TestReleaseIsReproducible builds a release twice, in two directories and environments, and uses it. In make test it
// is one for this machine; with MUSTER_SOAK=1 one for every platform, with nothing compiled before.
func TestReleaseIsReproducible(t *testing.T) {
	here, there := checkout(t), checkout(t)
	if rig.Long() {
		if got := release(t, there, "077"); !strings.Contains(got, "  muster_"+cli.Version+"-dev_linux_") {
			t.Errorf("a tree without git gives\n%s", got)
		}
	}
	tag(t, here)
	tag(t, there)
	first := release(t, here, "022", "TZ=UTC", "LC_ALL=C")
	if second := release(t, there, "077", elsewhere(t)...); first != second {
		t.Errorf("here\n%s\nelsewhere\n%s", first, second)
	}
	dist := filepath.Join(here, "dist")
	t.Run("archive", func(t *testing.T) { useArchive(t, dist, "muster_"+cli.Version+"_linux_"+runtime.GOARCH) })
	t.Run("deb", func(t *testing.T) {
		file := filepath.Join(dist, "muster_"+cli.Version+"-1_"+runtime.GOARCH+".deb")
		usePackage(t, needs.Program(t, "dpkg", "dpkg"), []string{"-i", file}, []string{"-r", "muster"})
	})
	t.Run("rpm", func(t *testing.T) {
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		file := filepath.Join(dist, "muster-"+cli.Version+"-1."+machine+".rpm")
		usePackage(t, needs.Program(t, "rpm", "rpm"), []string{"-i", file}, []string{"-e", "muster"})
	})
}

// introducesItself checks how the binary of a tagged commit introduces itself.
func introducesItself(t *testing.T, binary string) {
	t.Helper()
	released := regexp.MustCompile(`^muster ` + regexp.QuoteMeta(cli.Version) + ` [0-9a-f]{12} \(go\S+, \S+\)\n$`)
	if got := mustRun(t, ".", nil, `"$1" version`, binary); !released.MatchString(got) {
		t.Errorf("version: %q", got)
	}
}

// useArchive unpacks an archive, and uses it as somebody would who has nothing else of muster.
func useArchive(t *testing.T, dist, name string) {
	modes := mustRun(t, dist, nil, `
		tar -xpf "$1.tar.gz"
		tar -tvf "$1.tar.gz" --numeric-owner | awk '{ print $1, $2 }' | sort -u`, name)
	if modes != "-rw-r--r-- 0/0\n-rwxr-xr-x 0/0\ndrwxr-xr-x 0/0\n" {
		t.Errorf("the archive has these modes and owners:\n%s", modes)
	}
	dir := filepath.Join(dist, name)
	introducesItself(t, filepath.Join(dir, "muster"))
	mustRun(t, dir, nil, `for file; do test -s "$file"; done`,
		"README.md", "CHANGELOG.md", "docs/install.md", "docs/diagnostics/M1001.md", "examples/one-job.hcl",
		"completions/bash/muster", "completions/zsh/_muster", "completions/fish/muster.fish", "man/man1/muster-plan.1")
	if tests := mustRun(t, dir, nil, `find . -name '*_test.go' -o -name testdata`); tests != "" {
		t.Errorf("the archive has tests:\n%s", tests)
	}
	componentsAreLinked(t, dir)
	if out := mustRun(t, dir, nil, "./examples/demo.sh"); !strings.Contains(out,
		"\n# done: no process and no file is left\n") {
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
	want := []string{"std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, m.Path+"@"+m.Version)
	}
	body, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	type component struct{ Name, Version string }
	var doc struct {
		Metadata   struct{ Component component }
		Components []component
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range doc.Components {
		got = append(got, c.Name+"@"+strings.TrimPrefix(c.Version, "go"))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || doc.Metadata.Component != (component{"muster", cli.Version}) {
		t.Errorf("%+v, %q, want %q", doc.Metadata.Component, got, want)
	}
}

// usePackage installs a package into a folder, uses what it installs, and removes it.
func usePackage(t *testing.T, manager string, install, remove []string) {
	root := t.TempDir()
	manage := append(needs.Unshare(t, []string{"--mount"}, "true"), manager, "--root="+root)
	mustRun(t, root, nil, `"$@"`, append(slices.Clone(manage), install...)...)
	introducesItself(t, filepath.Join(root, "usr/bin/muster"))
	bashFindsCompletion(t, root)
	page := mustRun(t, root, []string{"MANPATH=" + filepath.Join(root, "usr/share/man"), "MANWIDTH=80", "LC_ALL=C.UTF-8"},
		`"$1" muster-plan`, needs.Program(t, "man", "man-db"))
	if !strings.Contains(page, "--detailed-exitcode") || !strings.Contains(page, "MUSTER-PLAN(1)") {
		t.Errorf("man muster-plan:\n%s", page)
	}
	mustRun(t, root, nil, `"$@"`, append(slices.Clone(manage), remove...)...)
	if left := mustRun(t, root, nil, `find . -type f -path '*/usr/*muster*'`); left != "" {
		t.Errorf("these are left:\n%s", left)
	}
}

// bashFindsCompletion: bash-completion loads the script by the name of the command when it is first needed.
func bashFindsCompletion(t *testing.T, root string) {
	t.Helper()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		needs.Missing(t, "%v (apt-get install bash-completion)", err)
	}
	got := mustRun(t, root, []string{"XDG_DATA_DIRS=" + filepath.Join(root, "usr/share")},
		`bash --norc -c 'source "$0"; _completion_loader muster; complete -p muster' "$1"`, library)
	if !strings.Contains(got, "-F __muster_escaped muster\n") {
		t.Errorf("bash completes muster with %q", got)
	}
}

// TestImageIsReproducible writes the files of the image twice, from a tree without git. Another program builds it from
// the Dockerfile.
func TestImageIsReproducible(t *testing.T) {
	const list = `
		cd "$1"
		find . -mindepth 1 -printf '%P %M %l\n' | sort
		find . -type f -print0 | sort -z | xargs -0 sha256sum`
	tree := checkout(t)
	write := func(umask string, env ...string) (dir, listed string) {
		dir = t.TempDir()
		mustRun(t, tree, append(env, "DIST="+dir), `umask "$1"; ./cli/release/release.sh image`, umask)
		return dir, mustRun(t, filepath.Join(dir, "image"), nil, list, ".")
	}
	dir, ours := write("022")
	if _, second := write("077", elsewhere(t)...); ours != second {
		t.Errorf("first\n%s\nthen\n%s", ours, second)
	}
	got := mustRun(t, dir, nil, "image/usr/local/bin/muster version")
	if !strings.HasPrefix(got, "muster "+cli.Version+"-dev ") {
		t.Errorf("a tree without git gives %s", got)
	}
	unshare := needs.Unshare(t, []string{"--mount"}, "true")
	out := mustRun(t, dir, []string{"LC_ALL=C"}, strings.Join(unshare, " ")+` bash -euc '
		engine() { "$0" --root "$1/root" --runroot "$1/run" --storage-driver vfs "${@:2}"; }
		build() { engine "$1" build --isolation chroot -t localhost/built -f "$2" "$1/image" >/dev/null; }
		build "$@"
		run="{{with .OCIv1.Config}}{{.User}} {{.Env}} {{.Entrypoint}}{{end}}"
		engine "$1" inspect --type image --format "$run" localhost/built
		echo
		container=$(engine "$1" from localhost/built)
		bash -euc "$3" bash "$(engine "$1" mount "$container")"' "$@"`,
		needs.Program(t, "buildah", "buildah"), dir, mustRun(t, "../..", nil, `printf '%s' "$PWD/Dockerfile"`), list)
	if want := "65534:65534 [PATH=/usr/local/bin] [muster]\n" + ours; !strings.HasSuffix(out, want) {
		t.Errorf("the Dockerfile builds\n%s\nwant\n%s", out, want)
	}
}
