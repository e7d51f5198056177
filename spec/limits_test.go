package spec_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/resource/job"
	"muster/spec"
)

// TestMain: this program is also one that loads a directory, prints what it finds, and ends. An evaluation that is
// abandoned goes on until then.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SPEC_TEST_LOAD"); dir != "" {
		var o spec.Options
		if _, err := fmt.Sscan(os.Getenv("SPEC_TEST_LIMITS"), &o.Limits.Time, &o.Limits.Memory); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		_, ds := spec.Load(dir, o)
		_ = ds.Text(os.Stdout, false)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// loadApart loads one more file next to a good one in a process of its own and returns what it prints.
func loadApart(t *testing.T, text string, m spec.Limits) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	dir := write(t, map[string]string{"jobs.hcl": one, "x.hcl": text})
	cmd.Env = append(os.Environ(), "SPEC_TEST_LOAD="+dir, fmt.Sprintf("SPEC_TEST_LIMITS=%d %d", m.Time, m.Memory))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %.1000s", err, out)
	}
	return string(out)
}

// local is a local of one expression, in which DIGITS stands for a text of three million digits.
func local(expr string) string {
	digits := `join("", [for i in range(1000) : join("", range(1000))])`
	return "locals {\n  x = " + strings.ReplaceAll(expr, "DIGITS", digits) + "\n}\n"
}

// endless is an expression that takes little memory and a long time.
func endless() string {
	return local(`sum([for i in range(1000) : sum([for j in range(1000) : sum([for k in range(1000) : 1])])])`)
}

// TestLimits: each limit has its message.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		limits spec.Limits
		says   string
	}{
		"time": {
			endless(),
			spec.Limits{Time: 3 * time.Second},
			"error[M1006]: it takes more than 3s to read this configuration\n",
		},
		"memory": {
			local(`[for i in range(1000) : join("", [for j in range(1000) : "` + strings.Repeat("x", 500) + `"])]`),
			spec.Limits{Time: time.Hour, Memory: 64 << 20},
			"error[M1006]: it takes more than 64 MiB of memory to read this configuration\n",
		},
		"stack": {
			local(`jsondecode(regexreplace(join("", range(1000)), ".", "` + strings.Repeat("[", 1000) + `"))`),
			spec.Limits{Time: time.Hour},
			"error[M1006]: it takes more than 128 MiB of stack to read this configuration\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := loadApart(t, test.text, test.limits)
			if !strings.HasPrefix(out, test.says) || !strings.Contains(out, "= help: make what it builds ") {
				t.Errorf("%.1000s", out)
			}
		})
	}
}

// TestCost: a few bytes that would take hours, or all the memory, end in a finding. What takes them is all the same to
// the limits; these are one of each way.
func TestCost(t *testing.T) {
	for name, text := range map[string]string{
		"time":         endless(),
		"double_text":  chain(40, `"${local.a%[2]d}${local.a%[2]d}"`, `"0123456789"`),
		"double_list":  chain(40, "[local.a%[2]d, local.a%[2]d]", "1"),
		"regexreplace": local(`regexreplace(DIGITS, "", DIGITS)`),
		"setproduct":   local(`setproduct(range(1000), range(1000), range(1000))`),
		"regex":        local(`regexall("(0*)*(1*)*x", DIGITS)`),
		"variable":     "variable \"x\" {\n  type    = string\n  default = 1e100000000\n}\n",
		"for_each": "job \"b\" {\n  for_each = { for i in range(1000) : i => 1 }\n" +
			"  workers = length([for i in range(1000) : [for i in range(1000) : i]])\n}\n",
		"deep_minus":    deep(100_000, "locals {\n  x = ", "-", "1\n}\n"),
		"deep_plus":     deep(100_000, "locals {\n  x = 1", "+ 1            ", "\n}\n"),
		"deep_template": deep(100_000, "locals {\n  x = \"", "%{ if true }", "\"\n}\n"),
		"jsondecode":    local(`jsondecode(replace(DIGITS, "9", "[["))`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := loadApart(t, text, spec.Limits{Time: 200 * time.Millisecond, Memory: 64 << 20})
			if !regexp.MustCompile(`^error\[M(1005|1006|1504)\]: `).MatchString(out) {
				t.Errorf("%.1000s", out)
			}
		})
	}
}

// deep is a text that is so many levels deep.
func deep(levels int, before, each, after string) string {
	return before + strings.Repeat(each, levels) + after
}

// patient is for what may take its time on a busy machine.
func patient() spec.Options {
	return spec.Options{HasCredentials: true, Limits: spec.Limits{Time: time.Hour, Memory: 1 << 40}}
}

// TestDeepBrackets: brackets that are nested too deeply are found before the parser meets them, however they are
// hidden.
func TestDeepBrackets(t *testing.T) {
	const levels = 20_000 // twenty times the limit
	for name, text := range map[string]string{
		"list.hcl":      deep(levels, "locals {\n  x = ", "[", "\n}\n"),
		"call.hcl":      deep(levels, "locals {\n  x = ", "abs(", "\n}\n"),
		"object.hcl":    deep(levels, "locals {\n  x = ", "{x=", "\n}\n"),
		"comment.hcl":   deep(levels, "locals {\n  x = ", "[/*]*/", "\n}\n"),
		"line.hcl":      deep(levels, "locals {\n  x = ", "[ // ]\n", "\n}\n"),
		"string.hcl":    deep(levels, "locals {\n  x = ", "[\"]\",", "\n}\n"),
		"heredoc.hcl":   deep(levels, "locals {\n  x = ", "[<<E\n]\nE\n,", "\n}\n"),
		"escape.hcl":    deep(levels, "locals {\n  x = ", `["$${]",`, "\n}\n"),
		"nested.hcl":    deep(levels, "locals {\n  x = ", `"${`, "\n}\n"),
		"blocks.hcl":    deep(levels, "", "a {\n", ""),
		"brackets.json": deep(levels, `{"locals": {"x": `, "[", "}}"),
		"strings.json":  deep(levels, `{"locals": {"x": `, `["]",`, "}}"),
		"template.json": deep(levels, `{"locals": {"x": "${`, "(", `1}"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.Replace(name, ".json", ".hcl.json", 1)
			ds := findings(t, name, text, patient())
			if len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("%d findings, the first: %.300v", len(ds), first(ds))
			}
			if _, ds := spec.Format([]byte(text), name); len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("Format: %d findings, the first: %.300v", len(ds), first(ds))
			}
		})
	}
}

func first(ds spec.Diagnostics) any {
	if len(ds) == 0 {
		return "none"
	}
	return ds[0].Code + " " + ds[0].Summary
}

// TestDeepInput: the same for values from outside of the configuration.
func TestDeepInput(t *testing.T) {
	variable := "variable \"v\" {\n  type = list(any)\n}\n"
	value := strings.Repeat("[", 20_000)
	o := spec.Options{Vars: []spec.VarInput{{Flag: "v=" + value}}, Limits: patient().Limits}
	ds := findings(t, "v.hcl", variable, o)
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("--var: %.300v", first(ds))
	}
	path := filepath.Join(t.TempDir(), "x.vars.hcl")
	if err := os.WriteFile(path, []byte("v = "+value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ds = findings(t, "v.hcl", variable, spec.Options{Vars: []spec.VarInput{{File: path}}, Limits: patient().Limits})
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("--var-file: %.300v", first(ds))
	}
}

// TestNotDeep: what only looks deep is accepted: brackets in texts and comments, and many things beside one another.
func TestNotDeep(t *testing.T) {
	repeat := func(format string) string {
		var b strings.Builder
		for i := range 3_000 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"texts.hcl": repeat("job \"j%d\" {\n  workers = 1 + 1\n  labels = { note = \"see (OPS-1\" } # ([{\n}\n"),
		"rule.hcl": "# " + strings.Repeat("-", 20_000) + "\n" +
			"/*" + strings.Repeat("*[", 20_000) + "*/\n" + repeat("# %d (\n"),
		"object.hcl":   "locals {\n  x = {\n" + repeat("    k%d : 1 - 1\n") + "  }\n}\n",
		"lists.hcl":    "locals {\n" + repeat("  x%d = [1, -2]\n") + "}\n",
		"template.hcl": "locals {\n  x = \"" + repeat("${-%d}%%{ if true }a%%{ else }b%%{ endif }") + "\"\n}\n",
		"heredoc.hcl":  "locals {\n  x = <<EOT\n" + strings.Repeat("((( -- [ {\n", 10_000) + "EOT\n}\n",
		"minus.hcl":    "locals {\n  x = " + strings.Repeat("- ", 9_000) + "1\n}\n",
		"plus.hcl":     "locals {\n  x = 1" + strings.Repeat(" + 1", 9_000) + "\n}\n",
		"choice.hcl":   "locals {\n  x = " + strings.Repeat("true ? 1 : ", 9_000) + "1\n}\n",
		"nested.hcl":   "locals {\n  x = " + strings.Repeat("[", 990) + strings.Repeat("]", 990) + "\n}\n",
		"text.json": `{"locals": {"x": "` + strings.Repeat("((( -- [ {", 10_000) +
			`", "y": [` + repeat(`[], "${-%d}", `) + `1]}}`,
		"lines.hcl": strings.Repeat("\n", 200_000),
	} {
		name := strings.Replace(name, ".json", ".hcl.json", 1)
		if ds := findings(t, name, text, patient()); len(ds) > 0 {
			t.Errorf("%s: %d findings, the first: %.300v", name, len(ds), first(ds))
		}
	}
}

// TestManyFindings: a text that is wrong in every line has as many findings as somebody may read, and says how many
// more.
func TestManyFindings(t *testing.T) {
	ds := findings(t, "x.hcl", strings.Repeat("a {}\n", 120_000), patient())
	if len(ds) != 1001 || ds[1000].Code != "M1005" || ds[1000].Summary != "there are 119000 more findings" {
		t.Errorf("%d findings, the last %+v", len(ds), ds[len(ds)-1])
	}
}

// TestSetsOfMany: to make a set or a list of many texts takes about as long as to make a map of them: no element is
// compared with each. The limit is a share of what comparing takes, on this machine and at this time.
func TestSetsOfMany(t *testing.T) {
	var list, mixed, objects, keys strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&list, "\"h%d\", ", i)
		fmt.Fprintf(&mixed, "\"h%d\", %d, ", i, i)
		fmt.Fprintf(&objects, "{ a = %d }, ", i)
		fmt.Fprintf(&keys, "h%d = 1, ", i)
	}
	cost := func(expr string) time.Duration {
		before := used(t)
		if ds := findings(t, "x.hcl", local(expr), patient()); len(ds) != 0 {
			t.Errorf("%.100s: %v", expr, first(ds))
		}
		return used(t) - before
	}
	limit := 16 * cost("{"+keys.String()+"}")
	for name, expr := range map[string]string{
		"toset":          "toset([" + list.String() + "])",
		"tolist":         "tolist([" + list.String() + "])",
		"toset_mixed":    "toset([" + mixed.String() + "])",
		"tolist_objects": "tolist([" + objects.String() + "])",
		"distinct":       "distinct([" + list.String() + "])",
	} {
		if took := cost(expr); took > limit {
			t.Errorf("%s takes %s; 16 times a map takes %s", name, took, limit)
		}
	}
}

// used is how much processor time this process has taken.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCollections: what is made at once is what the library makes.
func TestCollections(t *testing.T) {
	for expr, want := range map[string]string{
		`jsonencode(tolist(["b", "a", "b"]))`:           `["b","a","b"]`,
		`jsonencode(toset(["b", "a", "b"]))`:            `["a","b"]`,
		`jsonencode(tolist([1, "a", true]))`:            `["1","a","true"]`,
		`jsonencode(toset([{ a = 1 }, { a = 1 }]))`:     `[{"a":1}]`,
		`jsonencode(tolist([{ a = 1 }, { a = "" }]))`:   `[{"a":"1"},{"a":""}]`,
		`jsonencode(tolist(["a", null]))`:               `["a",null]`,
		`jsonencode(distinct(["b", "a", "b", "a"]))`:    `["b","a"]`,
		`jsonencode(distinct([1, "1", 2]))`:             `["1","2"]`,
		`jsonencode(distinct([]))`:                      `[]`,
		`jsonencode(distinct(tolist([[1], [2], [1]])))`: `[[1],[2]]`,
		`jsonencode(distinct([null, "a", null]))`:       `[null,"a"]`,
	} {
		c := load(t, map[string]string{"a.hcl": one + "job \"b\" {\n  workers = 1\n  labels  = { x = " + expr + " }\n}\n"},
			spec.Options{})
		if got := spec.Of[job.Job](c)[1].Labels["x"]; got != want {
			t.Errorf("%s is %s, want %s", expr, got, want)
		}
	}
}

// large makes configurations of n jobs: as literal blocks, and of one for_each over a product of ranges.
func large(n int) map[string]map[string]string {
	head := "muster {\n  stack = \"big\"\n}\n"
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\njob \"job-%d\" {\n  root    = \"/jobs/prod\"\n  workers = %d\n  timeouts {\n"+
			"    join = \"2m\"\n  }\n  labels = { team = \"data\", tier = \"%d\" }\n}\n", i, 1+i%100, i%7)
	}
	each := fmt.Sprintf(`
locals {
  pairs = setproduct(range(%d), range(100))
}

job "job" {
  for_each = { for p in local.pairs : "${p[0]}-${p[1]}" => 1 + p[1] }
  name     = "job-${each.key}"
  root     = "/jobs/prod"
  workers  = each.value
  timeouts {
    join = "2m"
  }
  labels = { team = "data", tier = "${each.value %% 7}" }
}
`, n/100)
	return map[string]map[string]string{
		"literal":  {"jobs.hcl": head + b.String()},
		"for_each": {"jobs.hcl": head + each},
	}
}

func BenchmarkLoad10000Jobs(b *testing.B) {
	for name, files := range large(10_000) {
		b.Run(name, func(b *testing.B) {
			dir := write(b, files)
			b.ReportAllocs()
			for b.Loop() {
				c, ds := spec.Load(dir, spec.Options{})
				if c == nil || len(spec.Of[job.Job](c)) != 10_000 {
					b.Fatal(ds)
				}
			}
			b.StopTimer()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-sys")
		})
	}
}
