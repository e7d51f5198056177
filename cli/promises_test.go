package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEveryPromiseHasItsTests: each test that docs/acceptance.md names exists, as a function or as a script.
func TestEveryPromiseHasItsTests(t *testing.T) {
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		all.WriteString(read(t, file))
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \| [^|]*\|$`).
		FindAllStringSubmatch(read(t, "../docs/acceptance.md"), -1)
	for i, row := range rows {
		tests := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1)
		if row[1] != strconv.Itoa(i+1) || len(tests) == 0 {
			t.Errorf("row %d is about point %s, with %d tests", i+1, row[1], len(tests))
		}
		for _, test := range tests {
			if _, err := os.Stat("testdata/script/" + test[1] + ".txtar"); err != nil &&
				!strings.Contains(all.String(), "\nfunc "+test[1]+"(") {
				t.Errorf("point %s: there is no %s", row[1], test[1])
			}
		}
	}
	if len(rows) != 18 {
		t.Errorf("%d points", len(rows))
	}
}
