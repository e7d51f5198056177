package report_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

// regions is a run whose for_each has so many instances. Each goes from 4 to 5 workers, and the first to 9.
func regions(n int) report.Run {
	r := run("plan", 2)
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	for i := range n {
		key := fmt.Sprintf("r%04d", i)
		j := declared("ingest-"+key, 5, func(j *job.Job) {
			j.Address, j.At = fmt.Sprintf("job.ingest[%q]", key), "jobs.hcl:29"
			if i == 0 {
				j.Workers = 9
			}
		})
		want.Declared = append(want.Declared, j)
		have.Found[j.Path()] = recorded(declared(j.Name, 4), 0, 0, 0)
	}
	p := plan.Diff(want, have)
	r.Plan = &p
	return r
}

// TestEqualChangesAreOneEntry: in text, markdown, HTML and annotations, changes that are equal but for the key of one
// for_each are one entry with their number, what changes, and a few of the keys. With All each is an entry.
func TestEqualChangesAreOneEntry(t *testing.T) {
	r := regions(4981)
	text := planText(t, *r.Plan, report.Options{})
	for _, line := range []string{
		"\n-/+ 4,980 × job.ingest[\"…\"]  replace (delete, then create)  jobs.hcl:29\n",
		"\n      keys          \"r0001\", \"r0002\", \"r0003\" and 4977 more (--all shows each)\n",
		"\n  replace  4,980 × job.ingest[\"…\"]: workers 4 -> 5\n",
		"\n  replace  job.ingest[\"r0000\"]\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the plan does not have the line %q:\n%.2000s", line, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 25 {
		t.Errorf("the plan has %d lines", n)
	}
	if all := planText(t, *r.Plan, report.Options{All: true}); strings.Count(all, "\n-/+ job.ingest") != 4981 {
		t.Error("with All the plan does not show each")
	}
	for kind, parts := range map[string][]string{
		"markdown": {
			"\n- 4,980 × `job.ingest[\"…\"]`: `workers 4 -> 5`; ", "\n- `job.ingest[\"r0000\"]`: `workers 4 -> 9`; ",
			"| 0 | 4981 | 0 |", "**replace (4981)**",
		},
		"html": {
			`4,980 × job.ingest[&#34;…&#34;]`, `<dt>workers</dt><dd>4 -&gt; 5</dd>`, `<dt>workers</dt><dd>4 -&gt; 9</dd>`,
			`<summary>all 4980</summary>`, `>job.ingest[&#34;r4980&#34;]<`, `data-count="4980"`, `4981 replace`,
		},
		"github": {"4,980 × job.ingest[\"…\"]: workers 4 -> 5: "},
	} {
		got := string(makeReport(t, r, kind))
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("the %s report does not have %q:\n%.3000s", kind, part, got)
			}
		}
	}
}

// TestWhatIsNotEqualHasItsOwnEntry: rows that are deletes, of another block, or of another reason.
func TestWhatIsNotEqualHasItsOwnEntry(t *testing.T) {
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	add := func(name, address string, live int) {
		j := declared(name, 5, func(j *job.Job) { j.Address = address })
		want.Declared = append(want.Declared, j)
		have.Found[j.Path()] = recorded(declared(name, 4), live, live, 0)
	}
	add("a1", `job.a["1"]`, 0)
	add("a2", `job.a["2"]`, 3)
	add("b1", `job.b["1"]`, 0)
	add("c", `job.c`, 0)
	for _, name := range []string{"gone1", "gone2"} {
		j := declared(name, 4, func(j *job.Job) { j.Address = fmt.Sprintf("job.gone[%q]", name) })
		have.Found[j.Path()] = recorded(j, 0, 0, 0)
	}
	text := planText(t, plan.Diff(want, have), report.Options{})
	if strings.Contains(text, "×") {
		t.Errorf("something was joined:\n%s", text)
	}
}
