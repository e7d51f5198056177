package report_test

import (
	"crypto/sha512"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

const many = 5000

// largeRun is a plan of 5,000 rows that all need attention: so many deletes, named by name, and blocked jobs.
func largeRun(deletes int, name func(i int) string) report.Run {
	r := run("plan", 2)
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	for i := range deletes {
		j := declared(name(i), 3)
		have.Found[j.Path()] = recorded(j, 3, 0, 0)
	}
	for i := range many - deletes {
		j := declared(fmt.Sprintf("team-%d-customer-facing-ingest-%04d", i%7, i), 8, func(j *job.Job) {
			j.Address = fmt.Sprintf("job.ingest[%q]", fmt.Sprintf("customer-facing-%04d", i))
			j.At = "jobs.hcl:" + strconv.Itoa(i)
		})
		want.Declared = append(want.Declared, j)
		have.Found[j.Path()] = recorded(declared(j.Name, 4), 4, 0, 4)
	}
	p := plan.Diff(want, have)
	r.Plan = &p
	return r
}

// namesIn are the names in the lists of a page.
func namesIn(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`").FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

// TestMarkdownFitsAndNamesAHundredDeletes, and counts the others. Very long names are fewer.
func TestMarkdownFitsAndNamesAHundredDeletes(t *testing.T) {
	for name, c := range map[string]struct {
		deletes, named int
		name           func(i int) string
	}{
		"no_deletes": {0, 0, nil},
		"a_few":      {12, 12, func(i int) string { return fmt.Sprintf("tmp-backfill-%d", i) }},
		"all":        {many, 100, func(i int) string { return fmt.Sprintf("tmp-backfill-%04d", i) }},
		"all_long": {many, 100, func(i int) string {
			return fmt.Sprintf("%x", sha512.Sum512([]byte{byte(i), byte(i >> 8)}))[:120]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := string(makeReport(t, largeRun(c.deletes, c.name), "markdown"))
			if len(got) > report.MaxMarkdown {
				t.Errorf("%d bytes, more than %d", len(got), report.MaxMarkdown)
			}
			named, n := namesIn(got), 0
			for i := range c.deletes {
				if named["/jobs/prod/"+c.name(i)] {
					n++
				}
			}
			if n != c.named {
				t.Errorf("%d of %d deletes are named, not %d, in\n%.2000s", n, c.deletes, c.named, got)
			}
			more := fmt.Sprintf("- **and %d more, which the json report names**\n", c.deletes-c.named)
			if says := strings.Contains(got, more); says != (c.deletes > c.named) {
				t.Errorf("it says %q: %v", more, says)
			}
			if strings.Count(got, "```")%2 != 0 || strings.Count(got, "<details>") != strings.Count(got, "</details>") {
				t.Error("a fence or a fold is left open")
			}
		})
	}
}

func TestEveryKindOfALargeRunIsQuick(t *testing.T) {
	r := largeRun(2500, func(i int) string { return fmt.Sprintf("tmp-%04d", i) })
	for _, row := range r.Plan.Rows {
		if row.Action() == plan.Delete {
			r.Outcomes = append(r.Outcomes, apply.Outcome{Row: row, Result: apply.Applied, Took: time.Millisecond})
		}
	}
	r.Command = "apply"
	for _, kind := range report.Kinds() {
		start := time.Now()
		n := len(makeReport(t, r, kind))
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s took %s", kind, took)
		}
		if kind == "markdown" && n > report.MaxMarkdown {
			t.Errorf("markdown has %d bytes", n)
		}
	}
}
