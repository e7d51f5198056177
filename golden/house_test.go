package golden

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHouseRules: no Go file is too long or too wide, no test sleeps, and only package needs skips a test.
func TestHouseRules(t *testing.T) {
	const longest, widest = 800, 120
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
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
		if generated.Match(body) {
			return nil
		}
		if n := bytes.Count(body, []byte("\n")); n > longest {
			t.Errorf("%s has %d lines, more than %d", path, n, longest)
		}
		for i, line := range strings.Split(string(body), "\n") {
			if n := utf8.RuneCountInString(line); n > widest {
				t.Errorf("%s:%d has %d columns, more than %d", path, i+1, n, widest)
			}
		}
		if skips.Match(body) && filepath.Dir(path) != "../sim/needs" {
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
