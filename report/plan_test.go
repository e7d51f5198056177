package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

func planText(t *testing.T, p plan.Plan, o report.Options) string {
	t.Helper()
	return text(t, func(b *strings.Builder) error { return report.Plan(b, p, o) })
}

func TestPlan(t *testing.T) {
	want := `muster plan · stack etl-prod · 127.0.0.1:2181 · roots /jobs/prod ·
  18 declared, 18 found, 41 ms

+   job.ingest["us"]         create                               jobs.hcl:29
      path          /jobs/prod/ingest-us
      workers       24
      because       no job znode

-/+ job.nightly              replace (stale delete, then create)  jobs.hcl:52
      joined        8 of 8, none live, 5 completed (will be forgotten)
      workers       8 -> 12
      because       workers have joined and none is live (apply makes sure for
                    30 s)

-   /jobs/prod/tmp-backfill  delete                               not declared
      because       owned by stack etl-prod, stale

!   job.report               blocked: 5 workers are live          jobs.hcl:71
      workers       8 -> 16  cannot change while they run
      live          10.0.3.11:7000, 10.0.3.12:7000, 3 more
      to proceed    muster terminate report && muster apply
                    or apply again after the run

  create   job.ingest["us"]
  replace  job.nightly
  delete   /jobs/prod/tmp-backfill
  blocked  job.report
Plan: 1 to create, 1 to replace, 1 to delete, 0 to update; 1 blocked, 0 left running, 15 unchanged.
`
	got := planText(t, sample(), report.Options{Servers: []string{"127.0.0.1:2181"}, Took: took})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
}

func TestPlanWithoutChanges(t *testing.T) {
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	for i, counts := range [][3]int{{4, 0, 4}, {4, 1, 3}, {4, 0, 3}, {0, 0, 0}} {
		j := declared(fmt.Sprint("j", i), 4)
		want.Declared = append(want.Declared, j)
		have.Found[j.Path()] = recorded(j, counts[0], counts[1], counts[2])
	}
	have.Found["/jobs/prod/theirs"] = resource.Observed{Foreign: true, Problem: "it holds neither a record nor a roll"}
	have.Found["/jobs/prod/secret"] = resource.Observed{Problem: "no permission to read /jobs/prod/secret"}
	p := plan.Diff(want, have)
	p.Partial, p.Unlisted = true, []string{"/old"}
	quiet := `muster plan · stack etl-prod · 4 declared, 6 found
Incomplete: --only or --skip left jobs out of this plan.
/old could not be listed: undeclared jobs there are not in this plan.

No changes. 4 jobs match their declarations (2 running, 1 degraded, 1 ready).
1 unchanged job is degraded: job.j2
2 znodes are unmanaged: not this stack's, never changed (--all lists them)
1 unmanaged znode could not be read: /jobs/prod/secret
muster explain /jobs/prod/secret lists what is there
Plan: 0 to create, 0 to replace, 0 to delete, 0 to update; 0 blocked, 0 left running, 4 unchanged.
`
	if d := cmp.Diff(quiet, planText(t, p, report.Options{})); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	all := planText(t, p, report.Options{All: true})
	for _, line := range []string{
		"    job.j0             unchanged  jobs.hcl:52\n" +
			"      status        running, 4 of 4 joined, 4 live, 0 completed\n",
		"      status        degraded, 4 of 4 joined, 3 live, 0 completed, 1 left\n",
		"    /jobs/prod/theirs  unmanaged  not declared\n" +
			"      because       not a job: it holds neither a record nor a roll\n",
	} {
		if !strings.Contains(all, line) {
			t.Errorf("with all rows, the plan does not say\n%s\nbut\n%s", line, all)
		}
	}
}

// TestNothingDeclaredNothingFound: the sentence says which roots were searched.
func TestNothingDeclaredNothingFound(t *testing.T) {
	for name, c := range map[string]struct {
		roots   []string
		partial bool
		want    string
	}{
		"searched": {[]string{"/a", "/b"}, false,
			"No job is declared, and none of stack etl-prod was found below /a, /b."},
		"nowhere": {nil, false, "No job is declared, and no root was searched: add roots = [...]"},
		"partial": {[]string{"/a"}, true, "--only or --skip left out every job of stack etl-prod."},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Diff(plan.Want{Stack: stack}, plan.State{})
			p.Roots, p.Partial = c.roots, c.partial
			got := strings.ReplaceAll(planText(t, p, report.Options{}), "\n", " ")
			if !strings.Contains(got, "No changes. "+c.want) {
				t.Errorf("plan:\n%s", got)
			}
		})
	}
}

// TestPlanFitsItsWidth: no line is wider than the terminal, except with a single long word, and the line of counts.
func TestPlanFitsItsWidth(t *testing.T) {
	p := sample()
	longest := declared(strings.Repeat("n", resource.MaxName), 3, func(j *job.Job) {
		j.Labels = map[string]string{"team": strings.Repeat("a word and ", 20)}
	})
	p.Rows = append(p.Rows, plan.Row{Path: longest.Path(), New: &longest, Reason: plan.NotThere})
	for _, width := range []int{1, 20, 40, 60, 80, 120, 200} {
		for line := range strings.Lines(planText(t, p, report.Options{All: true, Width: width})) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasSuffix(line, " ") {
				t.Errorf("width %d: space at the end of %q", width, line)
			}
			if utf8.RuneCountInString(line) <= max(width, 60) || strings.HasPrefix(line, "Plan:") {
				continue
			}
			words := strings.Fields(line)
			if len(words[len(words)-1]) < width/2 && len(words) > 3 {
				t.Errorf("width %d: %q has %d columns", width, line, utf8.RuneCountInString(line))
			}
		}
	}
}

func TestColorOnlyAddsSequences(t *testing.T) {
	plain := planText(t, sample(), report.Options{All: true})
	colored := planText(t, sample(), report.Options{All: true, Color: true})
	if strings.Contains(plain, "\x1b") {
		t.Error("a plan without colour holds an escape sequence")
	}
	for _, want := range []string{
		"\x1b[32m+\x1b[0m   ", "\x1b[31m-\x1b[0m/\x1b[32m+\x1b[0m ", "\x1b[31m-\x1b[0m   ", "\x1b[33m!\x1b[0m   ",
	} {
		if !strings.Contains(colored, want) {
			t.Errorf("colour: no %q", want)
		}
	}
	if d := cmp.Diff(plain, regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colored, "")); d != "" {
		t.Errorf("colour moves text (-plain +coloured):\n%s", d)
	}
}

func TestControlCharactersAreEscaped(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\u202egnp\u200b\x00\r\n\xff\u2028z"
	j := declared("x", 4, func(j *job.Job) {
		j.Address, j.At, j.Labels = evil, evil, map[string]string{evil: evil}
	})
	o := recorded(j, 4, 0, 2)
	editJob(func(j *job.Job) { j.Labels = nil })(o.Record)
	o.Record.Stack = evil
	o.Members, o.Strangers, o.Companions, o.Problem = []string{evil}, []string{evil}, []string{evil}, evil
	for _, reason := range plan.Reasons() {
		p := plan.Plan{Stack: evil, Roots: []string{evil}, Unlisted: []string{evil}, Rows: []plan.Row{
			{Path: "/x/" + evil, Old: &o, New: j, Reason: reason},
			{Path: "/y/" + evil, Old: &o, Reason: plan.Undeclared},
		}}
		got := planText(t, p, report.Options{All: true, Servers: []string{evil}})
		for _, r := range got {
			if r != '\n' && (r < ' ' || strings.ContainsRune("\u009b\u202e\u200b\u2028\x7f\ufffd", r)) {
				t.Fatalf("%s: %q in\n%q", reason, r, got)
			}
		}
		if !strings.Contains(got, `a\x1b[2J\x9b31m\u202egnp\u200b\x00\x0d\x0a\xff\u2028z`) {
			t.Errorf("%s: the escaped text is not there:\n%s", reason, got)
		}
	}
}

// fullDisk is a writer with room for n bytes.
type fullDisk struct{ n int }

var errFull = errors.New("no space left")

func (f *fullDisk) Write(b []byte) (int, error) {
	if len(b) > f.n {
		n := f.n
		f.n = 0
		return n, errFull
	}
	f.n -= len(b)
	return len(b), nil
}

func TestWritersErrorIsReturned(t *testing.T) {
	var p plan.Plan
	for range 100 {
		p.Rows = append(p.Rows, sample().Rows...)
	}
	for _, room := range []int{0, 100, 5000} {
		if err := report.Plan(&fullDisk{room}, p, report.Options{All: true}); !errors.Is(err, errFull) {
			t.Errorf("%d bytes of room: error = %v", room, err)
		}
	}
	if err := report.Plan(io.Discard, p, report.Options{}); err != nil {
		t.Error(err)
	}
}

func TestPlanTextIsDeterministic(t *testing.T) {
	var first bytes.Buffer
	for range 5 {
		var b bytes.Buffer
		if err := report.Plan(&b, sample(), report.Options{All: true}); err != nil {
			t.Fatal(err)
		}
		if first.Len() == 0 {
			first = b
		}
		if d := cmp.Diff(first.String(), b.String()); d != "" {
			t.Errorf("two texts of one plan (-first +later):\n%s", d)
		}
	}
}
