package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestPoint10MarkdownOfFiveThousandJobs: the report has 60,000 bytes at most and names every delete.
func TestPoint10MarkdownOfFiveThousandJobs(t *testing.T) {
	t.Parallel()
	const most, deletes, all = 60_000, 300, 5000
	f := newFixture(t, 0, "")
	jobs := func(n int, prefix string) string {
		return fmt.Sprintf(`job %q {
  for_each = toset(flatten([for a in range(%d / 100) : [for i in range(100) : "%s-${a * 100 + i}"]]))
  root     = %q
  name     = each.key
  workers  = 8
  labels   = { team = "data", purpose = "a text that takes some room in every row" }
}
`, prefix, n, prefix, f.root)
	}
	f.write(t, 0, jobs(deletes, "gone"))
	f.mustRun(t, "apply", "--yes")
	f.write(t, 0, jobs(all-deletes, "new"))
	report := filepath.Join(t.TempDir(), "plan.md")
	want := fmt.Sprintf("Plan: %d to create, 0 to replace, %d to delete", all-deletes, deletes)
	expect(t, result(f.command(servers.Connect(), "plan", "--report", "markdown="+report)), 0, want)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > most || len(text) < most/2 {
		t.Errorf("%d bytes, want up to %d", len(text), most)
	}
	for i := range deletes {
		name := regexp.MustCompile(fmt.Sprintf(`%s/gone-%d\D`, regexp.QuoteMeta(f.root), i))
		if !name.Match(text) {
			t.Errorf("%s is not named", name)
		}
	}
}
