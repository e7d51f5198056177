package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/text"
)

var friday = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// planOf is a plan with a create, an update, a delete and a group that is unchanged.
func planOf(t testing.TB) plan.Plan {
	t.Helper()
	one := func(name string) job.Job {
		j := job.Default()
		j.Name, j.Root, j.Address, j.Workers = name, "/jobs", "job."+name, 4
		j.Labels = map[string]string{"team": "data"}
		return j
	}
	g := group.Default()
	g.Name, g.Root, g.Address = "shop", "/apps", "group.shop"
	g.Add(group.NewDuty(group.Leader, "main"))
	b := one("b")
	b.Labels = map[string]string{"team": "data", "tier": "x"}
	was := one("b")
	was.Timeouts.Barrier = resource.Duration(time.Minute)
	have := plan.State{Found: map[string]resource.Observed{}}
	for _, d := range []resource.Declaration{was, one("gone"), g} {
		r := &resource.Record{Stack: "etl-prod", Home: resource.DefaultHome, State: resource.StateOpen}
		if err := r.Declare(d); err != nil {
			t.Fatal(err)
		}
		have.Found[d.ID().Path()] = resource.Observed{Record: r}
	}
	return plan.Diff(plan.Want{
		Stack: "etl-prod", Home: resource.DefaultHome, Declared: []resource.Declaration{one("a"), b, g},
	}, have)
}

// policiesOf writes a file of policies and loads it.
func policiesOf(t testing.TB, body string) (*Policies, Diagnostics) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.policy.hcl")
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	return LoadPolicies([]string{file})
}

// TestWhatPoliciesSee: each condition holds of planOf, and each policy that negates it denies.
func TestWhatPoliciesSee(t *testing.T) {
	for _, condition := range []string{
		`plan.stack == "etl-prod" && plan.home == "/.muster" && !plan.partial`,
		`plan.now == "2026-11-27T12:00:00Z" && plan.weekday == "Friday"`,
		`join(" ", keys(plan.rows)) == "/jobs/gone group.shop job.a job.b"`,
		`plan.rows["job.a"].action == "create" && plan.rows["job.a"].reason == "missing"`,
		`plan.rows["job.a"].before == null && plan.rows["job.a"].after.workers == 4`,
		`plan.rows["job.a"].after.timeouts.barrier == "5m" || seconds(plan.rows["job.a"].after.timeouts.barrier) > 0`,
		`plan.rows["job.a"].after.gang == null && plan.rows["job.a"].after.name == "a"`,
		`plan.rows["job.b"].changes["timeouts.barrier"].before == "1m" && plan.rows["job.b"].action == "update"`,
		`plan.rows["job.b"].changes["labels.tier"].after == "x"`,
		`plan.rows["job.b"].changes["labels.tier"].before == null`,
		`plan.rows["/jobs/gone"].after == null && plan.rows["/jobs/gone"].before.root == "/jobs"`,
		`plan.rows["/jobs/gone"].labels.team == "data" && plan.rows["/jobs/gone"].kind == "job"`,
		`plan.rows["/jobs/gone"].status == "ready" && plan.rows["/jobs/gone"].live == 0`,
		`plan.rows["group.shop"].before == plan.rows["group.shop"].after && plan.rows["group.shop"].joined == 0`,
		`plan.rows["group.shop"].after.leader.main.versions == "" && length(plan.rows["group.shop"].after.cron) == 0`,
		`null != plan.rows["job.a"].after && length([for r in plan.rows : r if r.before != null]) == 3`,
		`formatdate("YYYY", timeadd(plan.now, "24h")) == "2026" && timecmp(plan.now, "2026-11-27T13:00:00+01:00") == 0`,
	} {
		for _, negated := range []bool{false, true} {
			expr := condition
			if negated {
				expr = "!(" + condition + ")"
			}
			ps, ds := policiesOf(t, `policy "p" {
				enforce {
					condition     = `+expr+`
					error_message = "no"
				}
			}`)
			if ds.HasErrors() {
				t.Fatalf("%s: %v", expr, ds)
			}
			want := ""
			if negated {
				want = codePolicyDenies + " no"
			}
			v := ps.Judge(planOf(t), friday)
			if got := summaries(v.Diagnostics); got != want || (v.Denied != "") != negated {
				t.Errorf("%s: %s", expr, got)
			}
		}
	}
}

const enforce = "enforce {\n condition = false\n error_message = \"no\"\n}"

// casesOf cuts a text at the lines of three dashes. What follows the first line of a case is HCL.
func casesOf(cases string) (all [][2]string) {
	for one := range strings.SplitSeq(strings.TrimSpace(cases), "\n---\n") {
		first, hcl, _ := strings.Cut(one, "\n")
		all = append(all, [2]string{first, strings.NewReplacer(
			"ENFORCE", enforce,
			"ASSERT", "assert {\n condition = true\n error_message = \"no\"\n}",
		).Replace(hcl)})
	}
	return all
}

// TestVerdicts: which rows are denied, and by which codes. What cannot be evaluated is denied.
func TestVerdicts(t *testing.T) {
	for _, c := range casesOf(`
/jobs/a /jobs/b /jobs/gone M2101
ENFORCE
---
/jobs/gone M2101
operations = ["delete"]
ENFORCE
---
/jobs/b /jobs/gone M2101
filter = row.before != null
ENFORCE
---
/jobs/a M1506
filter = row.before.workers > 9
ENFORCE
---
/jobs/a M1216
filter = row.before == null ? null : false
ENFORCE
---
/jobs/a /jobs/gone M1506
enforce {
  condition     = row.labels.tier == "x"
  error_message = "no"
}
---
/jobs/a /jobs/b /jobs/gone M2101
enforce {
  condition     = true
  error_message = "no"
}
ENFORCE
---
M2101
enforcement_level = "advisory"
ENFORCE
---

filter = false
ENFORCE
`) {
		ps, ds := policiesOf(t, "row_policy \"p\" {\n"+c[1]+"\n}")
		if ds.HasErrors() {
			t.Fatal(ds)
		}
		v := ps.Judge(planOf(t), friday)
		advice := strings.Contains(c[1], "advisory")
		var codes []string
		for _, d := range v.Diagnostics {
			codes = append(codes, d.Code)
			if (d.Severity == Warning) != advice || d.In != `row_policy "p"` {
				t.Errorf("%+v", d)
			}
		}
		got := strings.Join(append(sortedKeys(v.Rows), slices.Compact(codes)...), " ")
		if d := cmp.Diff(c[0], got); d != "" {
			t.Errorf("%s: rows and codes (-want +got):\n%s", c[1], d)
		}
		if (v.Err() != nil) != (len(v.Rows) > 0) {
			t.Errorf("the error is %v", v.Err())
		}
	}
}

// summaries lists findings by code and summary.
func summaries(ds Diagnostics) string {
	return strings.Join(text.Each(ds, func(d Diagnostic) string { return d.Code + " " + d.Summary }), "\n")
}

// TestPoliciesThatAreRefused when they are loaded: a slip is found before a plan meets it.
func TestPoliciesThatAreRefused(t *testing.T) {
	for _, c := range casesOf(`
M1303 policy "p" has no enforce block
policy "p" {}
---
M2102 policy "p" is declared twice
policy "p" {
  ENFORCE
}
row_policy "p" {
  ENFORCE
}
---
M2102 the name of a policy has 1 to 200 bytes
policy "" {
  ENFORCE
}
---
M1002 no policy is declared in
locals {
  a = 1
}
---
M1002
# cut short
---
M2102 "destroy" is no operation
row_policy "p" {
  operations = ["destroy"]
  ENFORCE
}
---
M2102 without an operation the policy is about nothing
row_policy "p" {
  operations = []
  ENFORCE
}
---
M1302 there is no argument "operations" in policy "p"
policy "p" {
  operations = ["delete"]
  ENFORCE
}
---
M1205 enforcement_level
policy "p" {
  enforcement_level = "soft"
  ENFORCE
}
---
M1501 nothing is called "row"
policy "p" {
  filter = row.live > 0
  ENFORCE
}
---
M1501 plan has no attribute "rwos"
policy "p" {
  filter = plan.rwos == 1
  ENFORCE
}
---
M1501 var cannot be used here
policy "p" {
  filter = var.x
  ENFORCE
}
---
M1503 there is no function "fileexists"
policy "p" {
  filter = fileexists("x")
  ENFORCE
}
---
M1303 an enforce block needs the argument error_message
policy "p" {
  enforce {
    condition = true
  }
}
---
M1301 there is no block "job"
job "p" {
  workers = 4
}
---
M1507
locals {
  a = local.b
  b = local.a
}
`) {
		_, ds := policiesOf(t, c[1])
		if got := summaries(ds); !strings.HasPrefix(got, c[0]) {
			t.Errorf("%s\ngot  %s\nwant %s", c[1], got, c[0])
		}
	}
}

// TestAPolicyThatTakesTooLong denies, also while its evaluation goes on.
func TestAPolicyThatTakesTooLong(t *testing.T) {
	ps, ds := policiesOf(t, "policy \"p\" {\n enforce {\n condition = true\n error_message = \"no\"\n}\n}")
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	ps.busy.Lock() // as an evaluation that goes on
	if v := ps.Judge(planOf(t), friday); v.Denied == "" || v.Err() == nil || v.Diagnostics[0].Code != codeCost {
		t.Errorf("%+v", v)
	}
	ps.busy.Unlock()
	if v := ps.Judge(planOf(t), friday); v.Denied != "" || v.Err() != nil {
		t.Errorf("%+v", v)
	}
}

// examples of policies, with their tests.
const policyExamples = "../examples/policies"

// TestEveryExampleOfAPolicyIsTried: all their tests pass, and each policy that denies is denied by in one of them.
func TestEveryExampleOfAPolicyIsTried(t *testing.T) {
	ps, ds := LoadPolicies([]string{policyExamples})
	tests, more := LoadTests(policyExamples, Options{})
	if ds.HasErrors() || more.HasErrors() {
		t.Fatal(ds, more)
	}
	tried := map[string]bool{}
	for _, c := range tests.Cases {
		if ds := tests.Run(c, ps); len(ds) > 0 {
			t.Errorf("%s: %v", c.Name, ds)
		}
		for _, name := range c.expected {
			tried[name] = true
		}
	}
	for _, p := range ps.list {
		if !p.advisory && !tried[p.name] && p.name != "the whole plan" { // a test plans all
			t.Errorf("no test expects that %q denies", p.name)
		}
	}
	files, err := filepath.Glob(policyExamples + "/*" + policySuffix)
	if err != nil || len(files) < 10 {
		t.Errorf("%d files of policies, %v", len(files), err)
	}
}

// BenchmarkPolicies judges a plan of 10,000 rows, a tenth of which changes, by the examples, twice over.
func BenchmarkPolicies(b *testing.B) {
	ps, ds := LoadPolicies([]string{policyExamples})
	if ds.HasErrors() {
		b.Fatal(ds)
	}
	ps.list = append(ps.list, ps.list...)
	w, have := plan.Want{Stack: "etl-prod"}, plan.State{Found: map[string]resource.Observed{}}
	for i := range 10_000 {
		j := job.Default()
		j.Name, j.Root, j.Address, j.Workers = fmt.Sprintf("job-%d", i), "/jobs", fmt.Sprintf("job.j%d", i), 4
		j.Labels = map[string]string{"team": "data"}
		w.Declared = append(w.Declared, j)
		if i%10 == 0 {
			continue
		}
		r := &resource.Record{Stack: "etl-prod", State: resource.StateOpen, Generation: "4f"}
		if err := r.Declare(j); err != nil {
			b.Fatal(err)
		}
		have.Found[j.Path()] = resource.Observed{Record: r}
	}
	p := plan.Diff(w, have)
	for b.Loop() {
		if v := ps.Judge(p, friday); v.Denied == "" { // too many workers
			b.Fatal(v)
		}
	}
	b.ReportMetric(float64(len(ps.list)), "policies")
}

// BenchmarkTests runs the tests of the examples of policies, without them; the configuration is loaded anew for each
// case that has values of its own.
func BenchmarkTests(b *testing.B) {
	tests, ds := LoadTests(policyExamples, Options{})
	if ds.HasErrors() {
		b.Fatal(ds)
	}
	for b.Loop() {
		for _, c := range tests.Cases {
			tests.Run(c, nil)
		}
	}
	b.ReportMetric(float64(len(tests.Cases)), "cases")
}

// TestTestsThatAreRefused, when they are read or when they run.
func TestTestsThatAreRefused(t *testing.T) {
	for _, c := range casesOf(`
M2203 run "r" asserts nothing
run "r" {}
---
M2203 run "r" is declared twice
run "r" {
  ASSERT
}
run "r" {
  ASSERT
}
---
M2203 run "r" asserts nothing
run "r" {
  expect_failures = []
}
---
M2203 the configuration does not load, so no assert is looked at
run "r" {
  variables {
    workers = 0
  }
  ASSERT
  expect_failures = ["M1203"]
}
---
M2203 found "/jobs/a" stands twice
run "r" {
  found "/jobs/a" {
  }
  found "/jobs/a" {
    live = 1
  }
  ASSERT
}
---
M2203 found "/jobs/a": -1 is not between 0 and 1000000
run "r" {
  found "/jobs/a" {
    live = -1
  }
  ASSERT
}
---
M2203 now is no time
run "r" {
  now = "tomorrow"
  ASSERT
}
---
M2203 found "/jobs/a": unknown field "lvie"
run "r" {
  found "/jobs/a" {
    lvie = 1
  }
  ASSERT
}
---
M2203 found "/jobs/a": live does not fit
run "r" {
  found "/jobs/a" {
    live = "x"
  }
  ASSERT
}
---
M2203 found "/jobs/b": record: workers: 0 is not
run "r" {
  found "/jobs/b" {
  }
  ASSERT
}
---
M2203 found "/elsewhere/a": a plan never sees that
run "r" {
  found "/elsewhere/a" {
  }
  ASSERT
}
---
M2203 found "/jobs/a": record: unknown field "wokers"
run "r" {
  found "/jobs/a" {
    record = { wokers = 1 }
  }
  ASSERT
}
---
M1406 there is no variable "x"
run "r" {
  variables {
    x = 1
  }
  ASSERT
}
---
M1203
run "r" {
  variables {
    workers = 0
  }
  ASSERT
}
---
M1501 plan has no attribute "row"
run "r" {
  assert {
    condition     = plan.row == 1
    error_message = "no"
  }
}
---
M1501 nothing is called "row"
run "r" {
  assert {
    condition     = row.live == 1
    error_message = "no"
  }
}
---
M1506
run "r" {
  assert {
    condition     = plan.rows.x == 1
    error_message = "no"
  }
}
---
M2201 no
run "r" {
  assert {
    condition     = false
    error_message = "no"
  }
}
---
M2202 "M1203" was expected, and did not happen
run "r" {
  expect_failures = ["M1203"]
}
---
M1301 there is no block "job"
job "a" {
  workers = 1
}
`) {
		dir := t.TempDir()
		for name, body := range map[string]string{"x.test.hcl": c[1], "main.hcl": `
variable "workers" {
  default = 4
}
muster {
  stack = "etl"
}
job "a" {
  root    = "/jobs"
  workers = var.workers
}`} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		tests, ds := LoadTests(dir, Options{})
		if !ds.HasErrors() {
			ds = tests.Run(tests.Cases[0], nil)
		}
		if got := summaries(ds); !strings.HasPrefix(got, c[0]) {
			t.Errorf("%s\ngot  %s\nwant %s", c[1], got, c[0])
		}
	}
}

// TestABrokenPolicyIsNoExpectedDenial: a test of a policy finds that it cannot be evaluated. One file is read once,
// however it is named.
func TestABrokenPolicyIsNoExpectedDenial(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{
		"main.hcl":     "muster {\n  stack = \"etl\"\n}\njob \"a\" {\n  workers = 4\n}\n",
		"x.test.hcl":   "run \"r\" {\n  expect_failures = [\"p\"]\n}\n",
		"x.policy.hcl": "row_policy \"p\" {\n" + strings.ReplaceAll(enforce, "false", "row.after.wrkers > 9") + "\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests, ds := LoadTests(dir, Options{})
	ps, more := LoadPolicies([]string{dir, filepath.Join(dir, "..", filepath.Base(dir), "x.policy.hcl")})
	if ds.HasErrors() || more.HasErrors() {
		t.Fatal(ds, more)
	}
	got := tests.Run(tests.Cases[0], ps)
	if codes := text.Each(got, func(d Diagnostic) string { return d.Code }); strings.Join(codes, " ") != "M1506 M2202" {
		t.Errorf("got %s", summaries(got))
	}
}
