package golden

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHouseRules: no Go file is too long, no test sleeps, and only package needs skips a test.
func TestHouseRules(t *testing.T) {
	const longest = 400
	sleeps, skips := regexp.MustCompile(`\btime\.Sleep\(`), regexp.MustCompile(`\b[tbf]\.(Skip|SkipNow|Skipf)\(`)
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && e.Name() != "..":
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(body, []byte("// Code generated")) {
			return nil
		}
		if n := bytes.Count(body, []byte("\n")); n > longest {
			t.Errorf("%s has %d lines, more than %d", path, n, longest)
		}
		if skips.Match(body) && filepath.Dir(path) != "../needs" {
			t.Errorf("%s skips: a test that cannot run here asks package needs, which does not hide it", path)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if sleeps.Match(body) {
			t.Errorf("%s sleeps: wait for the fact, not for the clock", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
