package report_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

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
