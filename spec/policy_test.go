package spec

import (
	"bytes"
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
	was := one("b")
	was.Timeouts.Barrier = resource.Duration(time.Minute)
	have := plan.State{Found: map[string]resource.Observed{}}
	for _, d := range []resource.Declaration{was, one("gone"), g} {
		r := &resource.Record{Stack: "etl-prod", Home: resource.DefaultHome, State: resource.StateOpen, Generation: "4f"}
		if err := r.Declare(d); err != nil {
			t.Fatal(err)
		}
		have.Found[d.ID().Path()] = resource.Observed{Record: r}
	}
	return plan.Diff(plan.Want{
		Stack: "etl-prod", Home: resource.DefaultHome, Declared: []resource.Declaration{one("a"), one("b"), g},
	}, have)
}

// policiesOf writes a file of policies and loads it.
func policiesOf(t testing.TB, text string) (*Policies, Diagnostics) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.policy.hcl")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
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
		`plan.rows["/jobs/gone"].after == null && plan.rows["/jobs/gone"].before.root == "/jobs"`,
		`plan.rows["/jobs/gone"].labels.team == "data" && plan.rows["/jobs/gone"].kind == "job"`,
		`plan.rows["/jobs/gone"].status == "ready" && plan.rows["/jobs/gone"].live == 0`,
		`plan.rows["group.shop"].before == plan.rows["group.shop"].after && plan.rows["group.shop"].joined == 0`,
		`plan.rows["group.shop"].after.leader.main.versions == "" && length(plan.rows["group.shop"].after.cron) == 0`,
		`null != plan.rows["job.a"].after && length([for r in plan.rows : r if r.before != null]) == 3`,
		`formatdate("YYYY", timeadd(plan.now, "24h")) == "2026" && timecmp(plan.now, "2026-11-27T13:00:00+01:00") == 0`,
	} {
		for _, negated := range []bool{false, true} {
			text := condition
			if negated {
				text = "!(" + condition + ")"
			}
			ps, ds := policiesOf(t, fmt.Sprintf("policy \"p\" {\n enforce {\n condition = %s\n error_message = \"no\"\n}\n}", text))
			if ds.HasErrors() {
				t.Fatalf("%s: %v", text, ds)
			}
			v := ps.Judge(planOf(t), friday)
			if denied := v.Denied != ""; denied != negated || len(v.Diagnostics) > 0 && v.Diagnostics[0].Code != codePolicyDenies {
				t.Errorf("%s: %+v", text, v)
			}
		}
	}
}

// TestVerdicts: who is denied, and why. What cannot be evaluated is denied.
func TestVerdicts(t *testing.T) {
	const enforce = "enforce {\n condition = false\n error_message = \"no ${row.address}\"\n}\n"
	for name, c := range map[string]struct {
		text  string
		rows  []string // that are denied
		codes []string
	}{
		"changes only": {"row_policy \"p\" {\n" + enforce + "}", []string{"/jobs/a", "/jobs/b", "/jobs/gone"}, []string{"M2101"}},
		"operations":   {"row_policy \"p\" {\n operations = [\"delete\"]\n" + enforce + "}", []string{"/jobs/gone"}, []string{"M2101"}},
		"a filter": {
			"row_policy \"p\" {\n filter = row.before != null\n" + enforce + "}", []string{"/jobs/b", "/jobs/gone"}, []string{"M2101"},
		},
		"a filter that fails": {
			"row_policy \"p\" {\n filter = row.before.workers > 9\n" + enforce + "}", []string{"/jobs/a"}, []string{"M1506"},
		},
		"a filter that is null": {
			"row_policy \"p\" {\n filter = row.before == null ? null : false\n" + enforce + "}", []string{"/jobs/a"}, []string{"M1216"},
		},
		"a condition that fails": {
			"row_policy \"p\" {\n enforce {\n condition = row.labels.tier == \"x\"\n error_message = \"no\"\n}\n}",
			[]string{"/jobs/a", "/jobs/b", "/jobs/gone"}, []string{"M1506"},
		},
		"the second enforce": {
			"row_policy \"p\" {\n enforce {\n condition = true\n error_message = \"no\"\n}\n" + enforce + "}",
			[]string{"/jobs/a", "/jobs/b", "/jobs/gone"}, []string{"M2101"},
		},
		"advice":      {"row_policy \"p\" {\n enforcement_level = \"advisory\"\n" + enforce + "}", nil, []string{"M2101"}},
		"not failing": {"row_policy \"p\" {\n filter = false\n" + enforce + "}", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ps, ds := policiesOf(t, c.text)
			if ds.HasErrors() {
				t.Fatal(ds)
			}
			v := ps.Judge(planOf(t), friday)
			var codes []string
			for _, d := range v.Diagnostics {
				codes = append(codes, d.Code)
				if (d.Severity == Warning) != (name == "advice") || d.In != `row_policy "p"` {
					t.Errorf("%+v", d)
				}
			}
			if d := cmp.Diff(c.rows, sortedKeys(v.Rows)); d != "" {
				t.Errorf("denied rows (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.codes, slices.Compact(codes)); d != "" {
				t.Errorf("codes (-want +got):\n%s", d)
			}
			if (v.Err() != nil) != (len(c.rows) > 0) {
				t.Errorf("the error is %v", v.Err())
			}
		})
	}
}

// TestPoliciesThatAreRefused when they are loaded: a slip is found before a plan meets it.
func TestPoliciesThatAreRefused(t *testing.T) {
	const enforce = "enforce {\n condition = true\n error_message = \"no\"\n}\n"
	for text, want := range map[string]string{
		"policy \"p\" {}": "M1303 policy \"p\" has no enforce block",
		"policy \"p\" {\n" + enforce + "}\npolicy \"p\" {\n" + enforce + "}":        "M2102 policy \"p\" is declared twice",
		"policy \"\" {\n" + enforce + "}":                                           "M2102 the name of a policy has 1 to 200 bytes",
		"row_policy \"p\" {\n operations = [\"destroy\"]\n" + enforce + "}":         "M2102 \"destroy\" is no operation",
		"policy \"p\" {\n operations = [\"delete\"]\n" + enforce + "}":              `M1302 there is no argument "operations" in policy "p"`,
		"policy \"p\" {\n enforcement_level = \"soft\"\n" + enforce + "}":           "M1205 enforcement_level",
		"policy \"p\" {\n filter = row.live > 0\n" + enforce + "}":                  `M1501 nothing is called "row"`,
		"policy \"p\" {\n filter = plan.rwos == 1\n" + enforce + "}":                `M1501 plan has no attribute "rwos"`,
		"policy \"p\" {\n filter = var.x\n" + enforce + "}":                         "M1501 var cannot be used here",
		"policy \"p\" {\n filter = fileexists(\"x\")\n" + enforce + "}":             `M1503 there is no function "fileexists"`,
		"policy \"p\" {\n enforce {\n condition = true\n}\n}":                       "M1303 a enforce block needs the argument error_message",
		"job \"p\" {\n workers = 4\n}":                                              `M1301 there is no block "job"`,
		"locals {\n a = local.b\n b = local.a\n}\npolicy \"p\" {\n" + enforce + "}": "M1507",
	} {
		_, ds := policiesOf(t, text)
		var got bytes.Buffer
		for _, d := range ds {
			fmt.Fprintf(&got, "%s %s\n", d.Code, d.Summary)
		}
		if !strings.HasPrefix(got.String(), want) {
			t.Errorf("%s\ngot  %swant %s", text, got.String(), want)
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
	const assert = "assert {\n condition = true\n error_message = \"no\"\n}\n"
	for text, want := range map[string]string{
		"":             "M1002",
		"run \"r\" {}": `M2203 run "r" asserts nothing`,
		"run \"r\" {\n" + assert + "}\nrun \"r\" {\n" + assert + "}":                           `M2203 run "r" is declared twice`,
		"run \"r\" {\n now = \"tomorrow\"\n" + assert + "}":                                    "M2203 now is no time",
		"run \"r\" {\n found \"/jobs/a\" {\n lvie = 1\n}\n" + assert + "}":                     `M2203 found "/jobs/a": json: unknown field "lvie"`,
		"run \"r\" {\n found \"/jobs/a\" {\n live = \"x\"\n}\n" + assert + "}":                 `M2203 found "/jobs/a": live does not fit`,
		"run \"r\" {\n found \"/jobs/b\" {\n}\n" + assert + "}":                                `M2203 found "/jobs/b": record: workers: 0 is not`,
		"run \"r\" {\n found \"/elsewhere/a\" {\n}\n" + assert + "}":                           `M2203 found "/elsewhere/a": a plan never sees that`,
		"run \"r\" {\n found \"/jobs/a\" {\n record = { wokers = 1 }\n}\n" + assert + "}":      `M2203 found "/jobs/a": record: unknown field "wokers"`,
		"run \"r\" {\n variables {\n x = 1\n}\n" + assert + "}":                                `M1406 there is no variable "x"`,
		"run \"r\" {\n variables {\n workers = \"x\"\n}\n" + assert + "}":                      "M1203",
		"run \"r\" {\n assert {\n condition = plan.row == 1\n error_message = \"no\"\n}\n}":    `M1501 plan has no attribute "row"`,
		"run \"r\" {\n assert {\n condition = row.live == 1\n error_message = \"no\"\n}\n}":    `M1501 nothing is called "row"`,
		"run \"r\" {\n assert {\n condition = plan.rows.x == 1\n error_message = \"no\"\n}\n}": "M1506",
		"run \"r\" {\n assert {\n condition = false\n error_message = \"no\"\n}\n}":            "M2201 no",
		"run \"r\" {\n expect_failures = [\"M1203\"]\n}":                                       `M2202 "M1203" was expected, and did not happen`,
		"run \"r\" {\n variables {\n workers = 0\n}\n" + assert + "}":                          "M1203",
		"job \"a\" {\n workers = 1\n}":                                                         `M1301 there is no block "job"`,
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("main.hcl", "variable \"workers\" {\n default = 4\n}\nmuster {\n stack = \"etl\"\n}\njob \"a\" {\n root = \"/jobs\"\n workers = var.workers\n}")
		if text != "" {
			write("x.test.hcl", text)
		}
		tests, ds := LoadTests(dir, Options{})
		if !ds.HasErrors() {
			ds = tests.Run(tests.Cases[0], nil)
		}
		got := ""
		for _, d := range ds {
			got += d.Code + " " + d.Summary + "\n"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s\ngot  %swant %s", text, got, want)
		}
	}
}
