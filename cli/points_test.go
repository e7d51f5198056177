package cli_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryPointHasItsTests compares docs/acceptance.md with the tests that have the number of a point in their name.
func TestEveryPointHasItsTests(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \| [^|]*\|$`)
	rows := row.FindAllStringSubmatch(read(t, "../docs/acceptance.md"), -1)
	listed := map[string][]string{}
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is about point %s", i+1, row[1])
		}
		for _, test := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			listed[row[1]] = append(listed[row[1]], test[1])
		}
	}
	found := testsOfPoints(t)
	for _, tests := range []map[string][]string{listed, found} {
		for _, names := range tests {
			slices.Sort(names)
		}
	}
	if d := cmp.Diff(listed, found); d != "" || len(listed) != 18 {
		t.Errorf("%d points in docs/acceptance.md (-listed there +there are):\n%s", len(listed), d)
	}
}

// testsOfPoints returns the tests with the number of a point in their name, by that number.
func testsOfPoints(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if name, ok := strings.CutSuffix(e.Name(), ".txtar"); ok && filepath.Base(filepath.Dir(path)) == "script" {
			if m := regexp.MustCompile(`^point_(\d\d)_`).FindStringSubmatch(name); m != nil {
				n := strings.TrimLeft(m[1], "0")
				found[n] = append(found[n], name)
			}
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)Point(\d\d)\w*)\(`)
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			n := strings.TrimLeft(m[2], "0")
			found[n] = append(found[n], m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
