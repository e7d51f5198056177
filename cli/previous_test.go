package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/sim/needs"
	"muster/zkstate"
)

// previous builds muster from the commit in testdata/previous, the last one with the layout before the present one. It
// returns the path of the binary.
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

// firstApply: jobs that the previous muster made are in the index after the first apply of this one, also if it changes
// nothing. From then on no block that is removed is out of sight.
func firstApply(t *testing.T, old string) {
	f := fixture{dir: t.TempDir(), root: "/upgrade-" + zkstate.NewID()[:12]}
	declare := func(roots ...string) {
		t.Helper()
		hcl := fmt.Sprintf("muster {\n  stack = \"tests\"\n  home  = %q\n}\n", f.root+"-home")
		for i, root := range roots {
			hcl += fmt.Sprintf("job \"j%d\" {\n  root    = %q\n  workers = 1\n}\n", i, root)
		}
		if err := os.WriteFile(filepath.Join(f.dir, "main.hcl"), []byte(hcl), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, there := f.root, f.root+"-b"
	declare(here, there)
	older := f.command(servers.Connect(), "apply", "--yes")
	older.Path = old
	expect(t, result(older), 0, "2 created")

	expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "No changes.")
	expect(t, result(f.command(servers.Connect(), "apply", "--yes")), 0, "No changes.")
	declare(here)
	expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 2, there+"/j1  delete")
	expect(t, result(f.command(servers.Connect(), "drift")), 2, "orphan  "+there+"/j1")
	expect(t, result(f.command(servers.Connect(), "apply", "--yes")), 0, "1 deleted")
	got := result(f.command(servers.Connect(), "plan", "--detailed-exitcode"))
	expect(t, got, 0, "No changes.")
	if strings.Contains(got.stdout, there) {
		t.Errorf("it still looks in %s:\n%s", there, got.stdout)
	}

	// The older one goes on beside the history, which is below the index.
	declare(here, there)
	older = f.command(servers.Connect(), "apply", "--yes")
	older.Path = old
	expect(t, result(older), 0, "1 created")
	expect(t, result(f.command(servers.Connect(), "history")), 0, "1 deleted")
	expect(t, result(f.command(servers.Connect(), "plan", "--detailed-exitcode")), 0, "No changes.")
}
