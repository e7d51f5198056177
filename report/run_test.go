package report_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/view"
)

var update = flag.Bool("update", false, "rewrite the expected reports in testdata")

func extension(kind string) string {
	switch kind {
	case "junit":
		return "xml"
	case "markdown":
		return "md"
	case "prometheus":
		return "prom"
	}
	return kind
}

func TestReportsAreAsRecorded(t *testing.T) {
	for name, r := range runs() {
		for _, kind := range report.Formats() {
			t.Run(name+"_"+kind, func(t *testing.T) {
				got := makeReport(t, r, kind)
				asRecorded(t, name+"."+extension(kind), got)
				if again := makeReport(t, runs()[name], kind); !bytes.Equal(got, again) {
					t.Error("a second report of the same run is another")
				}
			})
		}
	}
}

func makeReport(t *testing.T, r report.Run, kind string) []byte {
	t.Helper()
	b, err := r.Make(kind)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnknownKind(t *testing.T) {
	if _, err := planRun().Make("pdf"); err == nil || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("error = %v", err)
	}
}

func TestReportsHoldNoControlCharacters(t *testing.T) {
	for name, r := range runs() {
		for _, kind := range report.Formats() {
			for i, c := range string(makeReport(t, r, kind)) {
				if c < 0x20 && c != '\n' || c >= 0x7f && c < 0xa0 || c == '\u202e' || c == '\ufffd' {
					t.Errorf("%s %s: %q at byte %d", name, kind, c, i)
				}
			}
		}
	}
}

func TestGitHubAnnotations(t *testing.T) {
	command := regexp.MustCompile(`^::(error|warning|notice) (file=[^:,]+,(line=\d+,)?)?title=[^:,]*::`)
	for name, r := range runs() {
		perKind := map[string]int{}
		for line := range strings.Lines(string(makeReport(t, r, "github"))) {
			m := command.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: not an annotation: %q", name, line)
				continue
			}
			perKind[m[1]]++
		}
		for kind, n := range perKind {
			if n > 10 {
				t.Errorf("%s: %d annotations of kind %s; GitHub shows 10", name, n, kind)
			}
		}
	}
}

// TestPageIsSelfContained: a browser fetches nothing else. The link to the run of the pipeline is only followed by who
// clicks on it.
func TestPageIsSelfContained(t *testing.T) {
	link := regexp.MustCompile(`<a href="https://ci\.example/[^"]*" rel="noreferrer">`)
	outside := regexp.MustCompile(`(?i)\b(src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttp`)
	for name, r := range runs() {
		page := link.ReplaceAllString(string(makeReport(t, r, "html")), "")
		if at := outside.FindString(page); at != "" {
			t.Errorf("%s: the page refers to something outside: %s", name, at)
		}
		if n := strings.Count(page, "<script"); n > 1 {
			t.Errorf("%s: %d scripts: something was not escaped", name, n)
		}
	}
}

// TestDriftFitsItsWidth: on a terminal no line is wider, not even that of the counts.
func TestDriftFitsItsWidth(t *testing.T) {
	r := driftRun()
	got := text(t, func(b *strings.Builder) error {
		return report.Drift(b, *r.Plan, *r.Drift, r.FailOn, report.Options{Servers: r.Servers, Took: r.Took, Width: 80})
	})
	if !strings.Contains(strings.Join(strings.Fields(got), " "), report.DriftCounts(*r.Drift)) {
		t.Errorf("no counts: %s", got)
	}
	for line := range strings.Lines(got) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("a line is wider than 80 columns: %s", line)
		}
	}
}

// TestTextsAreAsRecorded: what plan, drift, status, explain and history print, on a terminal and as JSON.
func TestTextsAreAsRecorded(t *testing.T) {
	for name, write := range texts(t) {
		t.Run(name, func(t *testing.T) {
			asRecorded(t, name+".txt", []byte(text(t, func(b *strings.Builder) error { return write(b) })))
		})
	}
}

func texts(t *testing.T) map[string]func(w io.Writer) error {
	r, at := driftRun(), report.Options{Now: hour(0)}
	detail := func(one view.Resource, o report.Options) func(io.Writer) error {
		return func(w io.Writer) error { return report.Detail(w, one, o) }
	}
	status := func(all ...view.Resource) func(io.Writer) error {
		return func(w io.Writer) error { return errors.Join(report.Status(w, all, at), report.StatusJSON(w, all)) }
	}
	explain := func(r plan.Row, stack string, e report.Explanation) func(io.Writer) error {
		return func(w io.Writer) error {
			return errors.Join(report.Explain(w, r, stack, e, at), report.ExplainJSON(w, r, e))
		}
	}
	duty := func(i int) func(io.Writer) error {
		j, origins := shopDetail(), map[string]string{"cron.nightly-report.schedule": "groups.hcl:9"}
		duty, at := j.Group.Duties[i], report.Options{Now: noon}
		if duty.Type == group.Cron {
			duty.Runs = append([]view.Run{failedTick()}, duty.Runs...)
		}
		return func(w io.Writer) error {
			err := report.ExplainDuty(w, j.Path, &j.Observed, *j.Group, duty, origins, at)
			for _, r := range duty.Runs {
				err = errors.Join(err, report.ExplainRun(w, j.Path+"/"+duty.Name, r, at))
			}
			return err
		}
	}
	applies := func(all []history.Found, o report.Options) func(io.Writer) error {
		return func(w io.Writer) error {
			return errors.Join(report.History(w, all, o), report.LastApplies(w, all, o), report.HistoryJSON(w, all))
		}
	}
	planned := func(p plan.Plan, o report.Options) func(io.Writer) error {
		return func(w io.Writer) error { return report.Plan(w, p, o) }
	}
	progress := func(w io.Writer) error {
		p, all := outcomes()
		lines := report.NewProgress(w, p, report.Options{})
		for _, o := range all {
			if err := lines.Line(o); err != nil {
				return err
			}
		}
		return nil
	}
	odd, silent, paused := shopDetail(), shopDetail(), shopDetail()
	odd.Group.Duties = oddCrons(odd.Group.Duties)
	silent.Group.Passed, silent.Group.Silent = []string{"old"}, ago(3*time.Minute)
	paused.Group.Duties = paused.Group.Duties[:1]
	stopping := view.Resource{Path: "/apps/shop", Observed: foundGroup(shop("shop"), 2, 1)}
	stopping.Observed.Record.State = resource.StateTerminating
	lastRun := view.Resource{Path: "/jobs/prod/nightly", Observed: recorded(declared("nightly", 8), 0, 0, 0)}
	_ = job.SetLastRun(lastRun.Observed.Record, job.Run{ID: "n-7", Generation: "g0", Completed: "2026-01-02T03:04:05Z"})
	queueRow := plan.Row{Path: "/queues/primes", Old: new(primes(t, 2).Observed), Reason: plan.NotOurs}
	groups := groupPlan()
	groups.Rows[1].Old.Members = []string{"10.0.3.11:7000", "10.0.3.12:7000", "10.0.3.13:7000"}
	return map[string]func(io.Writer) error{
		"drift": func(w io.Writer) error {
			return report.Drift(w, *r.Plan, *r.Drift, r.FailOn, report.Options{Servers: r.Servers, Took: r.Took})
		},
		"plan":               planned(sample(), report.Options{Servers: []string{"127.0.0.1:2181"}, Took: took}),
		"status":             status(append(statusOfGroups(), append(jobs(), primes(t, 2), shopDetail())...)...),
		"plan_nothing_to_do": planned(nothingToDo(), report.Options{}),
		"plan_all":           planned(nothingToDo(), report.Options{All: true}),
		"plan_no_jobs":       planned(noJobs([]string{"/a", "/b"}, false), report.Options{}),
		"plan_nowhere":       planned(noJobs(nil, false), report.Options{}),
		"plan_partial":       planned(noJobs([]string{"/a"}, true), report.Options{}),
		"progress":           progress,
		"summary": func(w io.Writer) error {
			_, all := outcomes()
			return errors.Join(report.ApplySummary(w, all, report.Options{}), report.ApplySummary(w, all[:2], report.Options{}))
		},
		"status_nothing":     status(),
		"job_forming":        detail(formingJob(), at),
		"job_last_run":       detail(lastRun, report.Options{}),
		"group":              detail(shopDetail(), report.Options{Now: noon}),
		"group_watched":      detail(shopDetail(), report.Options{}), // changes only when something happens
		"group_odd_crons":    detail(odd, report.Options{Now: noon}),
		"group_silent":       detail(silent, report.Options{Now: noon}),
		"group_silent_piped": detail(silent, report.Options{}),
		"group_idle":         detail(idleGroup(), report.Options{Now: noon}),
		"group_paused":       detail(paused, report.Options{Now: noon}),
		"group_stopping":     detail(stopping, report.Options{}),
		"queue":              detail(primes(t, 22), report.Options{Width: 120, Now: hour(0)}),
		"explain_job":        explain(explainedJob()),
		"explain_no_config":  explain(sample().Rows[2], "", report.Explanation{}),
		"explain_group":      explain(groups.Rows[1], stack, report.Explanation{Resource: shopDetail()}),
		"explain_queue":      explain(queueRow, "", report.Explanation{Resource: primes(t, 2)}),
		"explain_cron":       duty(5),
		"explain_leader":     duty(4),
		"history":            applies(foundApplies(), report.Options{Now: time.Date(2026, 1, 31, 4, 7, 6, 0, time.UTC)}),
		"history_color":      applies(foundApplies()[2:3], report.Options{Color: true, Width: 200}),
		"history_entry": func(w io.Writer) error {
			var errs []error
			for _, a := range foundApplies() {
				errs = append(errs, report.HistoryEntry(w, a, report.Options{}))
			}
			return errors.Join(errs...)
		},
		"history_long":      applies(longApply(), report.Options{Width: 80}),
		"history_long_room": applies(longApply(), report.Options{Width: 320}),
	}
}

// run holds what all runs of the tests have in common.
func run(command string, code int) report.Run {
	return report.Run{
		Kinds:   []resource.Kind{job.Kind()},
		Command: command, Config: "prod", Dir: "deploy/prod", Version: "0.1.0",
		Servers: []string{"zk1:2181", "zk2:2181"},
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 41 * time.Millisecond, ExitCode: code,
	}
}

func planRun() report.Run {
	r := run("plan", 2)
	p := sample()
	p.ID = "1234"
	r.Plan = &p
	r.Problems = []report.Problem{{
		Warning: true, Code: "M1405", At: "jobs.hcl:3", Summary: "everything is open to anyone", Detail: "3 | acl",
		Next: "acl = [...]",
	}}
	r.Saved = &planfile.Saved{Created: r.Started, Plan: p}
	return r
}

func applyRun() report.Run {
	r := run("apply", 4)
	p := sample()
	create, replace, remove := p.Rows[0], p.Rows[1], p.Rows[2]
	r.Plan = &p
	r.Outcomes = []apply.Outcome{
		{Row: create, Result: apply.Applied, Took: 12 * time.Millisecond},
		{Row: replace, Result: apply.Waiting},
		{Row: remove, Result: apply.Refused, Took: 3 * time.Millisecond,
			Err: fmt.Errorf("job %s: %w: a worker joined: 10.0.3.40:7000", remove.Path, plan.ErrMoved)},
	}
	r.By = "runner@build-7"
	r.Who = history.Who{Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=2"}
	return r
}

// driftRun has a finding of each kind, an ignored one, an unlisted root and an unreadable job.
func driftRun() report.Run {
	named := func(name string, at int) job.Job {
		return declared(name, 4, func(j *job.Job) { j.At = fmt.Sprintf("jobs.hcl:%d", at) })
	}
	old := func(name string, joined, done, live int, edits ...func(*resource.Record)) resource.Observed {
		o := recorded(named(name, 0), joined, done, live)
		o.Record.By, o.Record.Applied = "ci@runner", "2026-03-01T00:00:00Z"
		for _, edit := range edits {
			edit(o.Record)
		}
		return o
	}
	p := plan.Diff(plan.Want{Stack: stack, Declared: declarations(
		named("clean", 1), named("gone", 2), named("died", 3), named("edited", 4), named("limping", 5),
		named("covered", 6), named("relabelled", 7), named("hidden", 8),
		declared("due", 8, func(j *job.Job) { j.Labels = map[string]string{"team": "data"} }),
	)}, plan.State{Ensemble: "e1", Unlisted: []string{"/jobs/old"}, Found: map[string]resource.Observed{
		"/jobs/prod/clean":   old("clean", 4, 0, 4),
		"/jobs/prod/died":    old("died", 4, 1, 0),
		"/jobs/prod/limping": old("limping", 4, 0, 3),
		"/jobs/prod/edited":  old("edited", 0, 0, 0, editJob(func(j *job.Job) { j.Workers = 40 })),
		"/jobs/prod/due":     old("due", 0, 0, 0),
		"/jobs/prod/relabelled": old("relabelled", 0, 0, 0, func(r *resource.Record) {
			editJob(func(j *job.Job) { j.Labels = map[string]string{"a": "b"} })(r)
			r.Sign()
		}),
		"/jobs/prod/covered": {Foreign: true, Problem: "12 bytes that are no roll"},
		"/jobs/prod/left":    old("left", 0, 0, 0),
		"/jobs/prod/theirs":  old("theirs", 0, 0, 0, func(r *resource.Record) { r.Stack = "other"; r.Sign() }),
		"/jobs/prod/hidden":  {Problem: "no permission to read it"},
	}})
	p.Roots = []string{"/jobs/old", "/jobs/prod"}
	d := p.Drift([]resource.Ignore{{
		Address: "job.relabelled", Fields: []string{"labels"}, Until: "2027-01-31", Reason: "OPS-1412 | relabelling",
		At: "drift.hcl:3",
	}})
	r := run("drift", 2)
	r.Plan, r.Drift, r.FailOn = &p, &d, plan.FailingKinds()
	return r
}

func failedRun() report.Run {
	r := run("plan", 1)
	r.Problems = []report.Problem{
		{Code: "M1203", At: "jobs.hcl:31", Summary: "workers must be a whole number from 1 to 20000",
			Detail: "31 |   workers = 1.5\n   |             ^^^ this is 1.5", Next: "wrap it: ceil(1.5)"},
		{Code: "M1101", At: "jobs.hcl:40", Summary: "a job of this name is declared twice"},
	}
	return r
}

// nasty is text with control sequences and markup of every format.
const nasty = "a|b<script>alert('x')</script>&amp;`````\n::error file=x::%0A\x1b[31m\"\\ -->@all]]>{{.}}\u202e\xff"

// nastyRun has nasty text in every place that a user or ZooKeeper fills.
func nastyRun() report.Run {
	evil := declared("evil", 3, func(j *job.Job) {
		j.Address, j.At = `job.x["`+nasty+`"]`, "a,b:%\n.hcl:7"
		j.Labels = map[string]string{"k|" + nasty: nasty}
	})
	have := plan.State{Found: map[string]resource.Observed{
		"/jobs/prod/evil":     {Foreign: true, Problem: nasty},
		"/jobs/prod/" + nasty: recorded(declared("tmp", 2), 0, 0, 0),
	}}
	p := plan.Diff(plan.Want{Stack: stack, Declared: declarations(evil)}, have)
	p.Stack, p.Roots, p.Unlisted = nasty, []string{nasty}, []string{nasty}
	r := run("plan", 3)
	r.Config, r.Servers, r.Dir = nasty, []string{nasty}, nasty
	r.Plan = &p
	r.Problems = []report.Problem{{Code: nasty, At: nasty, Summary: nasty, Detail: nasty, Next: nasty}}
	r.Saved = &planfile.Saved{Created: r.Started, Plan: p}
	return r
}

// nastyApply has nasty text in the errors of a server.
func nastyApply() report.Run {
	r := nastyRun()
	r.Command = "apply"
	r.By, r.Who = nasty, history.Who{Actor: nasty, CI: nasty, Commit: nasty, URL: "https://ci.example/(<x>)?a=|`&b=*_"}
	for _, row := range r.Plan.Rows {
		r.Outcomes = append(r.Outcomes, apply.Outcome{Row: row, Result: apply.Failed, Err: errors.New(nasty)})
	}
	return r
}

func runs() map[string]report.Run {
	return map[string]report.Run{
		"plan": planRun(), "apply": applyRun(), "drift": driftRun(), "failed": failedRun(),
		"nasty": nastyRun(), "nasty_apply": nastyApply(),
	}
}

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

// TestNoWorkflowCommands: no label, znode name, worker or problem makes a line that a pipeline takes for a command,
// however the terminal's width breaks it.
func TestNoWorkflowCommands(t *testing.T) {
	const evil = "::error::x ::add-mask::y ##[error]z ##vso[task.complete]"
	live := recorded(declared("live", 8), 8, 0, 1)
	live.Members = []string{evil}
	want := plan.Want{Stack: stack, Declared: declarations(
		declared("new", 1, func(j *job.Job) { j.Labels = map[string]string{evil: evil} }), declared("live", 16),
	)}
	p := plan.Diff(want, plan.State{Found: map[string]resource.Observed{
		"/jobs/prod/live": live, "/jobs/prod/foreign": {Foreign: true, Problem: evil},
		"/jobs/prod/" + evil: recorded(declared("tmp", 2), 0, 0, 0),
	}})
	p.Roots, p.Unlisted = []string{evil}, []string{evil}
	for width := range 120 {
		out := text(t, func(b *strings.Builder) error {
			return report.Plan(b, p, report.Options{Width: width, All: true, Servers: []string{evil}})
		})
		if !strings.Contains(out, `add-mask`) || !strings.Contains(out, "task.complete") {
			t.Fatalf("it is not shown:\n%s", out)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}

// TestPasteRepeatsWhatWasGiven: a command in a next step has what the user gave right behind its name, and nothing else
// in the step changes.
func TestPasteRepeatsWhatWasGiven(t *testing.T) {
	given := report.Given{
		"apply":     {Words: "-C prod"},
		"terminate": {Words: "-C prod --servers zk:2181", Root: "--root /jobs/prod"},
		"state":     {},
		"state rm":  {Words: "-C prod"},
		"worker":    {Words: "--servers zk:2181", Root: "--root /jobs/prod"},
	}
	for step, want := range map[string]string{
		"muster apply": "muster apply -C prod",
		"muster terminate report && muster apply, or apply again after the run": "muster terminate -C prod --servers " +
			"zk:2181 --root /jobs/prod report && muster apply -C prod, or apply again after the run",
		"muster apply; muster apply":           "muster apply -C prod; muster apply -C prod",
		"(muster apply makes it)":              "(muster apply -C prod makes it)",
		"muster state rm KEY":                  "muster state rm -C prod KEY",
		"muster state":                         "muster state",
		"muster terminate /jobs/a":             "muster terminate -C prod --servers zk:2181 /jobs/a",
		"muster terminate '/jobs/a b'":         "muster terminate -C prod --servers zk:2181 '/jobs/a b'",
		"muster worker --job a --root /r -- C": "muster worker --servers zk:2181 --job a --root /r -- C",
		"muster worker a; --root /r":           "muster worker --servers zk:2181 --root /jobs/prod a; --root /r",
		"muster apply --help":                  "muster apply --help",
		"muster dance; mustered apply":         "muster dance; mustered apply",
		"another muster applies it":            "another muster applies it",

		// A name is never taken for a command.
		"muster apply 'x; muster apply'":      "muster apply -C prod 'x; muster apply'",
		`muster apply 'it'\''s muster apply'`: `muster apply -C prod 'it'\''s muster apply'`,
		"it's; muster apply":                  "it's; muster apply -C prod",
		"":                                    "",
	} {
		if d := cmp.Diff(want, given.Paste(step)); d != "" {
			t.Errorf("%q (-want +got):\n%s", step, d)
		}
	}
	if got := report.Given(nil).Paste("muster apply"); got != "muster apply" {
		t.Errorf("nothing was given, and it became %q", got)
	}
}

// TestStepLinesKeepCommandsWhole: a step that does not fit has a line for each thing that can be done.
func TestStepLinesKeepCommandsWhole(t *testing.T) {
	const long = "muster terminate -C somewhere/far/away --servers zk-1:2181,zk-2:2181 report && muster apply"
	for step, want := range map[string][]string{
		"muster apply":             {"muster apply"},
		long:                       {long},
		long + ", or apply again":  {long, "or apply again"},
		"ask; " + long + " 'a; b'": {"ask", long + " 'a; b'"},
		long + ";":                 {long},
		"a, b, or c: " + long:      {"a, b", "or c: " + long},
		"declare it with protect = false, apply, and then remove the declaration again": {
			"declare it with protect = false, apply, and then remove the declaration again",
		},
	} {
		if d := cmp.Diff(want, report.StepLines(step, 60)); d != "" {
			t.Errorf("%q (-want +got):\n%s", step, d)
		}
	}
}
