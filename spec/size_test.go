package spec_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/spec"
)

// TestLongNumbers: a number that would be long when it is written out is refused wherever it comes from, before
// anything writes it out.
func TestLongNumbers(t *testing.T) {
	digits := strings.Repeat("9", 1001)
	for name, text := range map[string]string{
		"literal":    local(`"x${1e10000000}"`),
		"small":      local(`"x${1e-10000000}"`),
		"many":       local(digits),
		"fraction":   local("0." + digits),
		"exponent":   local("1e99999999999999999999999999"),
		"key":        local("{ (1E+100000000) = 1 }"),
		"parseint":   local(`"${parseint("` + digits + `", 10)}"`),
		"tonumber":   local(`"${tonumber("1e10000000")}"`),
		"tonumber_2": local(`"${tonumber("` + digits + `")}"`),
		"jsondecode": local(`"${jsondecode("[{\"a\": 1e-10000000}]")[0].a}"`),
		"string": "variable \"x\" {\n  type    = list(number)\n  default = [\"1e10000000\"]\n}\n" +
			local(`"${var.x[0]}"`),
		"squares": chain(40, `local.a%[2]d * local.a%[2]d`, `10`),
		"inside":  chain(40, `[local.a%[2]d[0] * local.a%[2]d[0]]`, `[10]`),
	} {
		t.Run(name, func(t *testing.T) {
			ds := findings(t, "x.hcl", text, patient())
			if len(ds) == 0 || !strings.Contains(ds[0].Summary, "1000 digits") {
				t.Errorf("%.300v", first(ds))
			}
		})
	}
	ds := findings(t, "y.hcl.json", `{"locals": {"x": 1e10000000}}`, patient())
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("in JSON: %v", first(ds))
	}
	o := patient()
	o.Environ = []string{"MUSTER_VAR_x=1e10000000"}
	ds = findings(t, "x.hcl", "variable \"x\" {\n  type = number\n}\n"+local(`"${var.x}"`), o)
	if len(ds) != 1 || ds[0].Code != "M1005" {
		t.Errorf("in the environment: %v", first(ds))
	}
	text := "locals {\n  x = \"${1e1000 * 5} ${-1e-1000} ${tonumber(\"" + digits[1:] + "\")}\"\n}\n"
	if ds := findings(t, "x.hcl", text, patient()); len(ds) != 0 {
		t.Errorf("the longest numbers: %v", first(ds))
	}
}

// TestRounds: loops inside loops are counted, whatever decides about a round, and the finding names the place. What
// they would take is not waited for.
func TestRounds(t *testing.T) {
	for name, text := range map[string]string{
		"values": local(`[for i in range(1000) : length([for j in range(1000) : length([for k in range(1000) : k])])]`),
		"bare":   local(`[for i in range(1000) : [for j in range(1000) : [for k in range(1000) : k]]]`),
		"conditions": local(`[for i in range(1000) : i if length([for j in range(1000) : j ` +
			`if length([for k in range(1000) : k if false]) > 0]) > 0]`),
		"keys": local(`{ for i in range(1000) : length({ for j in range(1000) : ` +
			`length([for k in range(1000) : k]) => j... }) => i... }`),
		"templates": local(`"%{for i in range(1000)}%{for j in range(1000)}%{for k in range(1000)}` +
			`%{endfor}%{endfor}%{endfor}"`),
		"default": "variable \"x\" {\n  default = " +
			"[for i in range(1000) : [for j in range(1000) : length([for k in range(1000) : k])]]\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			o, limit := patient(), 10_000
			if o.Limits.Rounds = limit; name == "bare" {
				o.Limits.Rounds, limit = 0, 1_000_000 // the default
			}
			ds := findings(t, "x.hcl", text, o)
			says := fmt.Sprintf("it takes more than %d rounds of for expressions to read this configuration", limit)
			if len(ds) != 1 || ds[0].Code != "M1006" || ds[0].Summary != says || ds[0].Range.Start.Line != 2 {
				t.Errorf("%.300v", first(ds))
			}
		})
	}
	text := local(`[for i in range(1000) : [for j in range(1000) : var.typo if abs(i) == nofunction(j)]]`)
	if ds := findings(t, "x.hcl", text, patient()); len(ds) != 2 || ds[0].Code != "M1501" || ds[1].Code != "M1503" {
		t.Errorf("what loops refer to is not looked at: %v", ds)
	}
	if _, ds := spec.Format([]byte("a = [for i in x :  i]\n"), "a.hcl"); len(ds) != 0 {
		t.Errorf("Format: %v", ds)
	}
}

// TestCountedLimits: what stands in a file is counted before it takes memory, by Load and by Format.
func TestCountedLimits(t *testing.T) {
	for name, text := range map[string]string{
		"lines":       strings.Repeat("\n", 200_001),
		"crlf":        strings.Repeat("\r\n", 200_001),
		"heredoc":     "locals {\n  x = <<-E\n" + strings.Repeat("\n", 200_001) + "E\n}\n",
		"heredocs":    "locals {\n" + strings.Repeat("  x = <<E\n"+strings.Repeat("x\n", 200)+"E\n", 1_500) + "}\n",
		"comments":    strings.Repeat("#\n", 200_001),
		"commas":      "locals {\n  x = [" + strings.Repeat("1,", 250_001) + "]\n}\n",
		"templates":   "locals {\n  x = \"" + strings.Repeat("${1}", 170_000) + "\"\n}\n",
		"characters":  strings.Repeat("`", 500_001),
		"returns":     strings.Repeat("\r", 500_001),
		"nulls":       strings.Repeat("\x00", 500_001),
		"json_commas": `{"locals": {"x": [` + strings.Repeat("1,", 250_001) + `1]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := map[bool]string{true: "x.hcl.json", false: "x.hcl"}[strings.HasPrefix(name, "json")]
			ds := findings(t, file, text, patient())
			if len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("Load: %d findings, %.300v", len(ds), first(ds))
			}
			if _, ds := spec.Format([]byte(text), file); len(ds) != 1 || ds[0].Code != "M1005" {
				t.Errorf("Format: %d findings, %.300v", len(ds), first(ds))
			}
		})
	}
	many := "locals {\n" + strings.Repeat("\n", 100_000) + "  x = [" + strings.Repeat("1,\n", 50_000) + "]\n}\n"
	if ds := findings(t, "x.hcl", many, patient()); len(ds) != 0 {
		t.Errorf("within the limits: %v", first(ds))
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
		if got := c.Jobs[1].Labels["x"]; got != want {
			t.Errorf("%s is %s, want %s", expr, got, want)
		}
	}
}
