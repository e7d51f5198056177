package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"muster/sim/needs"
)

// TestStrangersFile: in a directory where everybody may put files, a file is refused that neither the user nor the
// owner of the directory has put there. Elsewhere the directory decides who may do so.
func TestStrangersFile(t *testing.T) {
	const me, other, third = 1000, 1001, 1002
	shared := fs.ModeSticky | 0o777
	for _, test := range []struct {
		file, dir int
		mode      fs.FileMode
		want      bool
	}{
		{other, third, shared, true},
		{other, third, fs.ModeSticky | 0o775, true},
		{other, other, shared, false},
		{other, me, shared, true},
		{me, third, shared, false},
		{other, third, 0o777, false},
		{other, third, fs.ModeSticky | 0o755, false},
	} {
		if got := isStrangers(test.file, test.dir, me, test.mode); got != test.want {
			t.Errorf("a file of %d in a directory of %d, %s: %v", test.file, test.dir, test.mode, got)
		}
	}
}

// TestOutputInASharedDirectory: neither a plan nor a report replaces what somebody else has put into such a directory,
// whatever it is: it would have the mode that the other one chose, or be where a link leads.
func TestOutputInASharedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Missing(t, "only root can make files of somebody else")
	}
	dir, mine := t.TempDir(), t.TempDir()
	file, link, own := filepath.Join(dir, "plan.json"), filepath.Join(dir, "link.json"), filepath.Join(dir, "own.json")
	err := errors.Join(os.Chmod(dir, 0o777|fs.ModeSticky), os.Chown(dir, 12, 12), os.WriteFile(file, []byte("old"), 0o666),
		os.Chown(file, 13, 13), os.Symlink(filepath.Join(mine, "new"), link), os.Lchown(link, 13, 13),
		os.WriteFile(own, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if err := writeOutput(path, []byte("new")); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", path, err)
		}
	}
	entries, _ := os.ReadDir(mine)
	if got, _ := os.ReadFile(file); string(got) != "old" || len(entries) > 0 {
		t.Errorf("it was written: %q, %v", got, entries)
	}
	for _, path := range []string{own, filepath.Join(dir, "new.json")} {
		if err := writeOutput(path, []byte("new")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
