package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/cli"
	"muster/sim/needs"
	"muster/sim/soak"
)

// runGit runs git in a tree, as somebody who always is the same.
func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(needs.Program(t, "git", "git"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@localhost", "GIT_AUTHOR_DATE=2026-11-21T02:00:00Z",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@localhost", "GIT_COMMITTER_DATE=2026-11-21T02:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// checkout copies this tree as it is now. It is outside of git until it is committed.
func checkout(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "src")
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	names, err := list.Output()
	if err != nil { // it is a tree without git
		names = nil
		err = filepath.WalkDir("..", func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && !strings.HasPrefix(path, "../dist/") && path != "../muster" {
				names = append(names, strings.TrimPrefix(path, "../")+"\x00"...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		copyFile(t, filepath.Join("..", name), filepath.Join(dir, name))
	}
	return dir
}

// copyFile copies a file, unless it was deleted and that is not committed.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, body, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// commitAll makes a tree a repository with one commit, and maybe a tag.
func commitAll(t *testing.T, dir, tag string) {
	t.Helper()
	runGit(t, dir, "init", "-q")
	runGit(t, dir, "add", "-A")
	runGit(t, dir, "commit", "-q", "-m", "all")
	if tag != "" {
		runGit(t, dir, "tag", tag)
	}
}

// builder is the program that make release runs.
type builder struct{ program string }

func newBuilder(t *testing.T) builder {
	t.Helper()
	b := builder{filepath.Join(t.TempDir(), "release")}
	if out, err := exec.Command("go", "build", "-o", b.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return b
}

// run runs it in a tree and returns what it printed.
func (b builder) run(t *testing.T, dir, umask string, env []string, args ...string) (string, error) {
	t.Helper()
	// The limit is for a busy machine whose Go has compiled nothing yet.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	args = append([]string{"-c", "umask " + umask + ` && exec "$0" "$@"`, b.program}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun is run that has to succeed; it returns the files that were written.
func (b builder) mustRun(t *testing.T, dir, umask string, env []string, args ...string) map[string][]byte {
	t.Helper()
	if out, err := b.run(t, dir, umask, env, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return treeOf(t, filepath.Join(dir, "dist"))
}

// treeOf returns the files of a directory by name.
func treeOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// elsewhere is another machine as far as a build can see it.
func elsewhere(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	dirs := strings.Split(string(out), "\n")
	if err != nil || len(dirs) < 3 {
		t.Fatalf("go env: %v: %q", err, out)
	}
	if soak.Long() {
		dirs[0] = t.TempDir() // everything is compiled again
	}
	return []string{
		"GOCACHE=" + dirs[0], "GOMODCACHE=" + dirs[1], "GOPATH=" + dirs[2], "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(),
		"TZ=Asia/Tokyo", "LC_ALL=de_DE.UTF-8", "LANG=de_DE.UTF-8", "USER=nobody", "LOGNAME=nobody", "HOSTNAME=elsewhere",
	}
}

// TestReleaseIsReproducible builds a release twice, in two directories and environments, and uses it. In make test it
// is one for this machine; with MUSTER_SOAK=1 one for every platform, with nothing compiled before.
func TestReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("go", "run", nfpm, "--version").CombinedOutput(); err != nil {
		needs.Missing(t, "nfpm, which Go's module proxy has: %v: %s", err, out)
	}
	b := newBuilder(t)
	args := []string{"-platforms", "linux/" + runtime.GOARCH}
	if soak.Long() {
		args = nil
	}
	here, there := checkout(t), checkout(t)
	commitAll(t, here, "v"+cli.Version)
	commitAll(t, there, "v"+cli.Version)
	first := b.mustRun(t, here, "022", []string{"TZ=UTC", "LC_ALL=C", "GOFLAGS=-buildvcs=false"}, args...)
	second := b.mustRun(t, there, "077", elsewhere(t), args...)
	same(t, first, second)
	dist := filepath.Join(here, "dist")
	mustOutput(t, dist, "sha256sum", "-c", "--strict", "SHA256SUMS")
	if n := bytes.Count(first["SHA256SUMS"], []byte("\n")); n != len(first)-1 {
		t.Errorf("SHA256SUMS has %d lines for %d files", n, len(first)-1)
	}
	name := "muster_" + cli.Version + "_linux_" + runtime.GOARCH
	mustOutput(t, dist, "tar", "-xpf", name+".tar.gz")
	t.Run("archive", func(t *testing.T) {
		t.Parallel()
		useArchive(t, filepath.Join(dist, name))
	})
	for _, format := range []string{"deb", "rpm"} {
		found, err := filepath.Glob(filepath.Join(dist, "*."+format))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", format, err)
		}
		slices.SortFunc(found, func(a, _ string) int { // this machine's first
			if strings.Contains(a, runtime.GOARCH) || strings.Contains(a, machine()) {
				return -1
			}
			return 1
		})
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			usePackage(t, format, found[0])
		})
	}
}

// machine is what rpm calls this machine.
func machine() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

// same compares two builds.
func same(t *testing.T, first, second map[string][]byte) {
	t.Helper()
	if len(first) != len(second) || len(first) == 0 {
		t.Errorf("%d and %d files", len(first), len(second))
	}
	for name, body := range first {
		if !bytes.Equal(body, second[name]) {
			t.Errorf("%s differs: %d and %d bytes", name, len(body), len(second[name]))
		}
	}
}

// mustOutput runs a program that has to succeed.
func mustOutput(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
