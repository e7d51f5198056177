package text_test

import (
	"strings"
	"testing"

	"muster/text"
)

func TestTable(t *testing.T) {
	rows := [][]string{
		{"job", "status", "last run"},
		{"/jobs/prod/etl-of-all-regions", "running", "2026-11-22 by somebody with a long name"},
		{"/jobs/日本", "ready\x1b", "-"},
	}
	whole := "job                            status     last run\n" +
		"/jobs/prod/etl-of-all-regions  running    2026-11-22 by somebody with a long name\n" +
		"/jobs/日本                     ready\\x1b  -\n"
	if got := text.Table(rows, 0); got != whole {
		t.Errorf("without a terminal:\n%s", got)
	}
	for columns := 1; columns < 100; columns++ {
		got := text.Table(rows, columns)
		for line := range strings.Lines(got) {
			if w := text.Width(strings.TrimSuffix(line, "\n")); w > max(columns, 12) {
				t.Errorf("%d columns, not %d: %s", w, columns, line)
			}
		}
		if fits := got == whole; fits != (columns >= 81) {
			t.Errorf("%d columns:\n%s", columns, got)
		}
	}
	want := "job               status     last run\n" +
		"/jobs/prod/etl-…  running    2026-11-22 …\n" +
		"/jobs/日本        ready\\x1b  -\n"
	if got := text.Table(rows, 41); got != want {
		t.Errorf("with 41 columns:\n%s", got)
	}
	if got := text.Table(append(rows[:1:1], []string{"and 2 more of them"}), 20); got !=
		"job  status\nand 2 more of them\n" {
		t.Errorf("with a line across:\n%s", got)
	}
	if got := text.Table(nil, 80); got != "" {
		t.Errorf("without rows: %q", got)
	}
}
