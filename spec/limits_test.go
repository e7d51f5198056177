package spec_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

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

// TestCost: a few bytes that would take hours, or all the memory, end in a finding.
func TestCost(t *testing.T) {
	for name, text := range map[string]string{
		"for":       local(`[for i in range(1000) : [for j in range(1000) : [for k in range(1000) : i]]]`),
		"for_small": endless(),
		"for_template": local(`"%{for i in range(1000)}%{for j in range(1000)}%{for k in range(1000)}x` +
			`%{endfor}%{endfor}%{endfor}"`),
		"double_text":   chain(40, `"${local.a%[2]d}${local.a%[2]d}"`, `"0123456789"`),
		"double_list":   chain(40, "[local.a%[2]d, local.a%[2]d]", "1"),
		"double_concat": chain(40, `concat(local.a%[2]d, local.a%[2]d)`, `["a"]`),
		"double_base64": chain(80, `base64encode(local.a%[2]d)`, `"0123456789"`),
		"parseint":      local(`parseint(join("", [for i in range(1000) : DIGITS]), 10)`),
		"format_many": local(`format(join("", [for i in range(1000) : ` +
			`join("", [for j in range(1000) : "%9999[1]s"])]), "b")`),
		"indent_lines":   local(`indent(9999, replace(DIGITS, "9", "\n"))`),
		"replace":        local(`replace(DIGITS, "", DIGITS)`),
		"replace_digits": local(`replace(DIGITS, "1", DIGITS)`),
		"regexreplace":   local(`regexreplace(DIGITS, "", DIGITS)`),
		"join":           local(`join(DIGITS, flatten([for j in range(1000) : range(1000)]))`),
		"split":          local(`split("", join("", [for i in range(1000) : DIGITS]))`),
		"strlen":         local(`strlen(join("", [for i in range(1000) : DIGITS]))`),
		"jsonencode":     local(`jsonencode([for i in range(1000) : [for j in range(1000) : range(1000)]])`),
		"setproduct":     local(`setproduct(range(1000), range(1000), range(1000))`),
		"regex":          local(`regexall("(0*)*(1*)*x", DIGITS)`),
		"heredoc": local("[for i in range(1000) : [for j in range(1000) : <<E\n" +
			strings.Repeat("x", 64<<10) + "\n${i}\nE\n]]"),
		"toset":    local(`toset([for i in range(1000) : [for j in range(1000) : "${i}-${j}"]]...)`),
		"distinct": local(`distinct(flatten([for i in range(1000) : [for j in range(1000) : "${i}-${j}"]]))`),
		"variable": "variable \"x\" {\n  type    = string\n  default = 1e100000000\n}\n",
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
