package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/sim/needs"
)

// previous builds muster from the commit in testdata/previous. It returns the path of the
// binary.
func previous(t *testing.T) string {
	t.Helper()
	git := needs.Program(t, "git", "git")
	commit := strings.TrimSpace(read(t, "testdata/previous"))
	source, err := exec.Command(git, "-C", "..", "archive", commit).Output()
	if err != nil {
		needs.Missing(t, "no commit %s in this copy of the repository: %v (git fetch --unshallow)", commit, err)
	}
	dir := t.TempDir()
	untar := exec.Command(needs.Program(t, "tar", "tar"), "-x", "-C", dir)
	untar.Stdin = bytes.NewReader(source)
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	binary := filepath.Join(dir, "muster-previous")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", binary, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0") // as make build, so that its build cache is used
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", commit, err, out)
	}
	return binary
}
