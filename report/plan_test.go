package report_test

import (
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

func planText(t *testing.T, p plan.Plan, o report.Options) string {
	t.Helper()
	return text(t, func(b *strings.Builder) error { return report.Plan(b, p, o) })
}

// nothingToDo is a plan without changes, of jobs in several states and of what is not this stack's.
func nothingToDo() plan.Plan {
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
	return p
}

// noJobs is a plan of nothing: its sentence says which roots were searched.
func noJobs(roots []string, partial bool) plan.Plan {
	p := plan.Diff(plan.Want{Stack: stack}, plan.State{})
	p.Roots, p.Partial = roots, partial
	return p
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

// outcomes returns a plan of the sample's changes, and an outcome of each result for them.
func outcomes() (plan.Plan, []apply.Outcome) {
	p := sample()
	create, replace, remove := p.Rows[0], p.Rows[1], p.Rows[2]
	p.Rows = []plan.Row{create, replace, remove, create, remove, replace, create}
	return p, []apply.Outcome{
		{Row: create, Result: apply.Applied, Took: 12 * time.Millisecond},
		{Row: replace, Result: apply.Applied, Took: 12345 * time.Millisecond},
		{Row: remove, Result: apply.Refused,
			Err: fmt.Errorf("job %s: %w: a worker joined: 10.0.3.40:7000", remove.Path, plan.ErrMoved)},
		{Row: create, Result: apply.Failed, Err: errors.New("create /jobs/prod: no permission\x1b[2J")},
		{Row: remove, Result: apply.Unknown,
			Err: fmt.Errorf("job %s: %w: connection lost", remove.Path, plan.ErrUnknown)},
		{Row: replace, Result: apply.Waiting},
		{Row: create, Result: apply.NotStarted},
		{Row: create, Result: apply.AlreadyDone,
			Err: fmt.Errorf("job %s: %w: the job exists", create.Path, plan.ErrAlreadyDone)},
	}
}

func TestProgressReturnsTheWritersError(t *testing.T) {
	p, all := outcomes()
	progress := report.NewProgress(&fullDisk{60}, p, report.Options{})
	var err error
	for _, o := range all {
		err = progress.Line(o)
	}
	if !errors.Is(err, errFull) {
		t.Errorf("error = %v", err)
	}
}

// TestMarkdownOfAnyRunFitsAndCountsEveryDelete makes runs of up to 5,000 jobs with names, roots, keys and errors of any
// length. Each page is small enough. The first hundred jobs that are or would be deleted are named, as far as there is
// room, and the others counted. With MUSTER_SOAK=1 there are 480 runs.
func TestMarkdownOfAnyRunFitsAndCountsEveryDelete(t *testing.T) {
	runs := 24
	if os.Getenv("MUSTER_SOAK") != "" {
		runs = 480
	}
	var full atomic.Int32
	t.Run("runs", func(t *testing.T) {
		for seed := range uint64(runs) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if checkMarkdownOf(t, seed) {
					full.Add(1)
				}
			})
		}
	})
	if n := int(full.Load()); n == 0 || n == runs {
		t.Errorf("%d of %d runs had too many deletes to name: the test is to see both", n, runs)
	}
}

// checkMarkdownOf checks the report of a random run. It reports whether the run had too many deletes to name.
func checkMarkdownOf(t *testing.T, seed uint64) bool {
	t.Helper()
	left := regexp.MustCompile(`(?m)^- \*\*and (\d+) more, which the json report names\*\*$`)
	r, deletes := randomRun(rand.New(rand.NewPCG(seed, 0)), seed)
	got := string(makeReport(t, r, "markdown"))
	if len(got) > report.MaxMarkdown {
		t.Errorf("%d bytes, more than %d", len(got), report.MaxMarkdown)
	}
	if strings.Count(got, "<details>") != strings.Count(got, "</details>") {
		t.Error("a fold is left open")
	}
	more := 0
	for _, m := range left.FindAllStringSubmatch(got, -1) {
		n, _ := strconv.Atoi(m[1])
		more += n
	}
	named := namesIn(got)
	missing := 0
	for _, path := range deletes {
		if !named[path] {
			missing++
		}
	}
	if missing != more {
		t.Errorf("of %d deletes %d are not named, and it says %d", len(deletes), missing, more)
	}
	const most, oneLine = 100, 6_000
	if more > 0 && len(deletes)-missing < most && len(got) < report.MaxMarkdown-oneLine {
		t.Errorf("%d deletes are not named in %d bytes", more, len(got))
	}
	return more > 0
}

// randomRun is a run of plan, apply or drift, and the paths that it deletes.
func randomRun(rnd *rand.Rand, seed uint64) (report.Run, []string) {
	r := run([]string{"plan", "apply", "drift"}[seed%3], rnd.IntN(9))
	root := "/" + strings.Repeat("deep/", rnd.IntN(50)) + "jobs"
	name := randomNames(rnd)
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	for range rnd.IntN(30) {
		have.Unlisted = append(have.Unlisted, "/"+strings.Repeat("@", rnd.IntN(500)))
	}
	n := rnd.IntN(many)
	undeclared := rnd.Float64()
	for i := range n {
		j := declared(name(i), 1+rnd.IntN(9), func(j *job.Job) {
			j.Root = root
			key := strings.Repeat([]string{"k", "`", "_"}[rnd.IntN(3)], rnd.IntN(60))
			j.Address = fmt.Sprintf("job.x[%q]", key+strconv.Itoa(i))
		})
		if rnd.Float64() > undeclared {
			want.Declared = append(want.Declared, j)
		}
		if rnd.IntN(3) > 0 {
			j.Workers = 4
			have.Found[j.Path()] = recorded(j, 4, 0, rnd.IntN(2)*rnd.IntN(4))
		}
	}
	p := plan.Diff(want, have)
	r.Plan = &p
	for range rnd.IntN(25) {
		r.Problems = append(r.Problems,
			report.Problem{Summary: strings.Repeat([]string{"x", "`"}[rnd.IntN(2)], rnd.IntN(5_000))})
	}
	switch r.Command {
	case "apply":
		r.Outcomes = randomOutcomes(rnd, p)
	case "drift":
		d := p.Drift(nil)
		r.Drift, r.FailOn = &d, plan.FailingKinds()
	}
	var deletes []string
	for _, row := range p.Rows {
		if row.Action() == plan.Delete {
			deletes = append(deletes, row.Path)
		}
	}
	return r, deletes
}

// randomNames returns names of random length. They are numbered, numbered with gaps, or made of random letters.
func randomNames(rnd *rand.Rand) func(i int) string {
	style, width := rnd.IntN(3), 1+rnd.IntN(resource.MaxName-10)
	return func(i int) string {
		switch style {
		case 0:
			return fmt.Sprintf("n%s%d", strings.Repeat("x", width), i)
		case 1:
			return fmt.Sprintf("n%s%d", strings.Repeat("x", width), 3*i)
		}
		b := make([]byte, width)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz._-"[rnd.IntN(29)]
		}
		return fmt.Sprintf("n%s%d", b, i)
	}
}

// randomOutcomes returns an outcome with a random result for each change. Errors may be very long.
func randomOutcomes(rnd *rand.Rand, p plan.Plan) []apply.Outcome {
	var all []apply.Outcome
	for _, row := range p.Rows {
		if !row.Action().Changes() {
			continue
		}
		result := apply.Results()[rnd.IntN(len(apply.Results()))]
		o := apply.Outcome{Row: row, Result: result, Took: time.Duration(rnd.IntN(1e9))}
		switch o.Result {
		case apply.Refused:
			o.Err = fmt.Errorf("job %s: %w: a worker joined", row.Path, plan.ErrMoved)
		case apply.Failed, apply.Unknown:
			o.Err = errors.New(strings.Repeat("`*", rnd.IntN(40)*rnd.IntN(40)))
		}
		all = append(all, o)
	}
	return all
}

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
	for _, kind := range report.Formats() {
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
