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

// expand expands the names of a list as bash does: {0001..0003} and {a,b}.
func expand(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`").FindAllStringSubmatch(text, -1) {
		for _, n := range expandOne(m[1]) {
			names[n] = true
		}
	}
	return names
}

func expandOne(s string) []string {
	open := strings.IndexByte(s, '{')
	if open < 0 {
		return []string{s}
	}
	depth, start, end := 0, open+1, 0
	var parts []string
	for i := open; i < len(s) && end == 0; i++ {
		switch s[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				parts = append(parts, s[start:i])
				end = i + 1
			}
		}
	}
	if from, to, ok := strings.Cut(parts[0], ".."); ok && len(parts) == 1 {
		parts = nil
		low, _ := strconv.Atoi(from)
		high, _ := strconv.Atoi(to)
		for n := low; n <= high; n++ {
			parts = append(parts, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	var all []string
	for _, p := range parts {
		for _, e := range expandOne(p + s[end:]) {
			all = append(all, s[:open]+e)
		}
	}
	return all
}

func TestMarkdownFitsAndNamesEveryDelete(t *testing.T) {
	regions := []string{"eu-west", "us-east", "ap-south", "sa-east"}
	for name, c := range map[string]struct {
		deletes int
		name    func(i int) string
	}{
		"no_deletes": {0, nil},
		"a_few":      {12, func(i int) string { return fmt.Sprintf("tmp-backfill-%d", i) }},
		"a_thousand_names": {1000, func(i int) string {
			return fmt.Sprintf("x%x-%s", i*2654435761%65536, regions[i%4])
		}},
		"all_numbered":            {many, func(i int) string { return fmt.Sprintf("tmp-backfill-%04d", i) }},
		"all_numbered_not_padded": {many, func(i int) string { return "tmp-backfill-" + strconv.Itoa(i) }},
		"all_in_regions":          {many, func(i int) string { return fmt.Sprintf("ingest-%s-%d", regions[i%4], i) }},
		"all_with_gaps":           {many, func(i int) string { return fmt.Sprintf("ingest-%05d", 3*i) }},
		"all_short_and_irregular": {many, func(i int) string {
			return fmt.Sprintf("job-%s-%x", regions[i%4], 65536+i*40503%65536)
		}},
		"all_numbers_then_regions": {many, func(i int) string { return fmt.Sprintf("n%04d.%s", i/4, regions[i%4]) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := largeRun(c.deletes, c.name)
			got := string(makeReport(t, r, "markdown"))
			if len(got) > report.MaxMarkdown {
				t.Errorf("%d bytes, more than %d", len(got), report.MaxMarkdown)
			}
			named := expand(got)
			missing := 0
			for i := range c.deletes {
				if !named["/jobs/prod/"+c.name(i)] {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("%d of %d deletes are not named in\n%.2000s", missing, c.deletes, got)
			}
			if strings.Count(got, "```")%2 != 0 || strings.Count(got, "<details>") != strings.Count(got, "</details>") {
				t.Error("a fence or a fold is left open")
			}
		})
	}
}

// TestMarkdownCountsWhatItCannotName: no expression covers the names, since they are long and have no prefix in common.
func TestMarkdownCountsWhatItCannotName(t *testing.T) {
	r := largeRun(many, func(i int) string {
		return fmt.Sprintf("%x", sha512.Sum512([]byte{byte(i), byte(i >> 8)}))[:120]
	})
	got := string(makeReport(t, r, "markdown"))
	if len(got) > report.MaxMarkdown {
		t.Errorf("%d bytes", len(got))
	}
	m := regexp.MustCompile(`and (\d+) more, which there is no room to name`).FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("it does not say that names are missing:\n%.500s", got)
	}
	if more, _ := strconv.Atoi(m[1]); len(expand(got))+more < many {
		t.Errorf("%d named and %s missing are less than %d", len(expand(got)), m[1], many)
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
