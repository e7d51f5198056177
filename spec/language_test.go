package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/job"
	"muster/spec"
)

const head = "muster {\n  stack = \"etl\"\n}\n"

// TestSearched: the root of a job that was taken out is still looked at, as far as the configuration can tell.
func TestSearched(t *testing.T) {
	for name, c := range map[string]struct {
		hcl  string
		want []string
	}{
		"nothing": {head, []string{"/muster"}},
		"roots": {`muster {
  stack = "s"
  roots = ["/b", "/a"]
}`, []string{"/a", "/b"}},
		"defaults_without_job": {head + `defaults { root = "/d" }`, []string{"/d"}},
		"defaults_beside_a_job": {head + `defaults { root = "/d" }
job "a" {
  root    = "/j"
  workers = 1
}`, []string{"/d", "/j"}},
		"job_elsewhere": {head + `job "a" {
  root    = "/j"
  workers = 1
}`, []string{"/j"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, load(t, map[string]string{"a.hcl": c.hcl}, spec.Options{}).Searched()); d != "" {
				t.Errorf("searched (-want +got):\n%s", d)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	c := load(t, map[string]string{"a.hcl": head + "job \"a\" {\n  workers = 1\n  root = null\n}\n"}, spec.Options{})
	want := spec.ZooKeeper{Servers: []string{"127.0.0.1:2181"}, SessionTimeout: resource.Duration(10 * time.Second)}
	if d := cmp.Diff(want, c.ZooKeeper); d != "" {
		t.Errorf("zookeeper (-want +got):\n%s", d)
	}
	from := c.Origins["job.a"]
	if from["root"] != "default" || from["name"] != "a.hcl:4" || from["workers"] != "a.hcl:5" ||
		spec.Of[job.Job](c)[0].Root != "/muster" {
		t.Errorf("origins %v", from)
	}
}

// TestPrecedence: each source of values beats the ones before it.
func TestPrecedence(t *testing.T) {
	files := map[string]string{
		"a.hcl": head + "variable \"n\" {\n  type = number\n  default = 1\n}\njob \"a\" {\n  workers = var.n\n}\n",
	}
	o := spec.Options{}
	check := func(source string, want int) {
		t.Helper()
		if c := load(t, files, o); spec.Of[job.Job](c)[0].Workers != want {
			t.Errorf("%s: %d workers, want %d", source, spec.Of[job.Job](c)[0].Workers, want)
		}
	}
	check("default", 1)
	o.Environ = []string{"PATH=/bin", "MUSTER_VAR_n=2"}
	check("environment", 2)
	files["a.auto.vars.hcl"] = "n = 3\n"
	check("automatic file", 3)
	files["b.auto.vars.hcl.json"] = `{"n": 4}`
	check("later automatic file", 4)
	files["x.vars.hcl"] = "n = 99\n"
	check("file that was not asked for", 4)
	file := filepath.Join(write(t, map[string]string{"x.vars.hcl": "n = 5\n"}), "x.vars.hcl")
	o.Vars = []spec.VarInput{{File: file}}
	check("--var-file", 5)
	o.Vars = append(o.Vars, spec.VarInput{Flag: "n=6"})
	check("--var", 6)
	o.Vars = append(o.Vars, spec.VarInput{File: file})
	check("later --var-file", 5)
}

// TestValues evaluates an expression as a label.
func TestValues(t *testing.T) {
	dir := map[string]string{"rules.txt": "x\n", "sub/y.txt": "why"}
	for expr, want := range map[string]string{
		`"${1 + 2}"`:   "3",
		`var.obj.root`: "/jobs", // optional(string, "/jobs")
		`join(",", [for k, v in var.m : "${k}${v}"])`: "a1,b2",
		`join(",", var.l[*].n)`:                       "1,2",
		`true ? "yes" : "no"`:                         "yes",
		`chomp(file("rules.txt"))`:                    "x",
		`file("${path.dir}/sub/y.txt")`:               "why",
		`fileexists("nope") ? "yes" : "no"`:           "no",
		`sum([1, 2, 3])`:                              "6",
		`one(["a"])`:                                  "a",
		`index(["a", "b"], "b")`:                      "1",
		`length("abc") + length([1]) + length({})`:    "4",
		`alltrue([true, startswith("ab", "a"), endswith("ab", "b"), strcontains("abc", "b")])`: "true",
		`anytrue([false])`:                    "false",
		`alltrue([])`:                         "true",
		`base64decode(base64encode("hé"))`:    "hé",
		`md5("a")`:                            "0cc175b9c0f1b6a831c399e269772661",
		`substr(sha256("a"), 0, 8)`:           "ca978112",
		`jsondecode("{\"a\": 1}").a`:          "1",
		`try(var.obj.nope, "else")`:           "else",
		`can(var.obj.nope) ? "yes" : "no"`:    "no",
		`lookup({ a = "x" }, "b", "y")`:       "y",
		`tostring(max(1, 2))`:                 "2",
		`replace("a-b", "-", "_")`:            "a_b",
		`regexreplace("a1b2", "[0-9]", "")`:   "ab",
		`reverse(sort(["b", "a"]))[0]`:        "b",
		`join(",", compact(["a", null, ""]))`: "a",
		`seconds("1m30s")`:                    "90",
		`seconds("250ms")`:                    "0.25",
		`timecmp("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00")`:           "0",
		`timecmp("2026-01-01T00:00:00Z", timeadd("2026-01-01T00:00:00Z", "1s"))`: "-1",
		`formatdate("YYYY-MM-DD", "2026-01-01T00:00:00Z")`:                       "2026-01-01",
		`timecmp(timeadd("2026-01-01T00:00:00Z", "1h"), "2026-01-01T00:00:00Z")`: "1",
		`timeadd("2026-01-01T00:00:00Z", "-90m")`:                                "2025-12-31T22:30:00Z",
		`can(seconds("1 day")) ? "yes" : "no"`:                                   "no",
		`can(timecmp("today", "2026-01-01T00:00:00Z")) ? "yes" : "no"`:           "no",
		`can(timeadd("2026-01-01T00:00:00Z", "1d")) ? "yes" : "no"`:              "no",
		`can(formatdate("QQ", "2026-01-01T00:00:00Z")) ? "yes" : "no"`:           "no",
	} {
		files := map[string]string{"a.hcl": head + `
variable "obj" {
  type    = object({ root = optional(string, "/jobs") })
  default = {}
}
variable "m" {
  type    = map(number)
  default = { b = 2, a = 1 }
}
variable "l" {
  default = [{ n = 1 }, { n = 2 }]
}
job "a" {
  workers = 1
  labels  = { x = (` + expr + `) }
}
`}
		for name, text := range dir {
			files[name] = text
		}
		if got := spec.Of[job.Job](load(t, files, spec.Options{}))[0].Labels["x"]; got != want {
			t.Errorf("%s is %q, want %q", expr, got, want)
		}
	}
}

// TestJSON: the JSON syntax declares the same as the native one.
func TestJSON(t *testing.T) {
	native := load(t, map[string]string{"a.hcl": head + `
locals {
  r = { eu = 1 }
}
job "a" {
  for_each = local.r
  name     = "a-${each.key}"
  workers  = each.value
  timeouts {
    join = "5s"
  }
  labels = { team = "x" }
}
`}, spec.Options{})
	json := load(t, map[string]string{"a.hcl.json": `{
  "//": "a comment",
  "muster": { "stack": "etl" },
  "locals": { "r": { "eu": 1 } },
  "job": { "a": {
    "for_each": "${local.r}", "name": "a-${each.key}", "workers": "${each.value}",
    "timeouts": { "join": "5s" }, "labels": { "team": "x" }
  } }
}`}, spec.Options{})
	if native.Digest != json.Digest {
		t.Errorf("native %+v\nJSON %+v", native, json)
	}
}

// TestDigest: places, spelling, order and file names mean nothing; what is declared does.
func TestDigest(t *testing.T) {
	digest := func(files map[string]string) string { return load(t, files, spec.Options{}).Digest }
	one := digest(map[string]string{"a.hcl": head + "job \"a\" {\n  workers = 1\n  timeouts {\n" +
		"    join = \"60s\"\n  }\n}\njob \"b\" {\n  workers = 2\n}\n"})
	same := digest(map[string]string{
		"z.hcl": head, "b.hcl": "# comment\njob \"b\" {\n  workers = 1 + 1\n}\n",
		"c.hcl": "job \"a\" {\n  timeouts {\n    join = \"1m\"\n  }\n  workers = \"1\"\n}\n",
	})
	other := digest(map[string]string{"a.hcl": head + "job \"a\" {\n  workers = 1\n}\njob \"b\" {\n  workers = 2\n}\n"})
	if one != same || one == other || len(one) != 64 {
		t.Errorf("%s, %s, %s", one, same, other)
	}
}

// TestLargeFile: the places in a large file are right, whatever ends its lines and also in front of a syntax error.
func TestLargeFile(t *testing.T) {
	text := large(500)["literal"]["jobs.hcl"]
	a := load(t, map[string]string{"jobs.hcl": text}, patient())
	if len(spec.Of[job.Job](a)) != 500 || spec.Of[job.Job](a)[499].At != "jobs.hcl:4496" {
		t.Errorf("%d jobs, the last at %s", len(spec.Of[job.Job](a)), spec.Of[job.Job](a)[499].At)
	}
	windows := strings.ReplaceAll(text, "\n", "\r\n")
	b := load(t, map[string]string{"jobs.hcl": windows}, patient())
	if b.Digest != a.Digest || spec.Of[job.Job](b)[499].At != spec.Of[job.Job](a)[499].At {
		t.Errorf("with CRLF the last is at %s", spec.Of[job.Job](b)[499].At)
	}
	wrong := map[string]string{"jobs.hcl": text + "job \"x\" {\n  workers = \n}\n"}
	_, ds := spec.Load(write(t, wrong), patient())
	if len(ds) != 1 || ds[0].Range.Start.Line != 4505 {
		_ = ds.Text(os.Stderr, false)
		t.Errorf("%d findings", len(ds))
	}
}

// TestRequiredVersion: which versions of muster a constraint allows.
func TestRequiredVersion(t *testing.T) {
	for constraint, test := range map[string]struct{ allowed, refused string }{
		">= 0.1":        {"0.1.0 0.1 v0.1.0 1.0.0+dirty 1.0.0-rc1 dev", "0.0.9"},
		">= 0.1, < 2":   {"0.1.0 1.99.99", "0.0.1 2.0.0"},
		"~> 1.2":        {"1.2.0 1.9.0", "1.1.9 2.0.0"},
		"~> 1.2.3":      {"1.2.3 1.2.9", "1.2.2 1.3.0"},
		"1.2.0":         {"1.2.0", "1.2.1"},
		"= 1.2, != 1.3": {"1.2.0", "1.3.0"},
		"> 1.2, <= 1.3": {"1.2.1 1.3.0", "1.2.0 1.3.1"},
		">= 1.2.0-rc.2": {"1.2.0-rc.2 1.2.0-rc.10 1.2.0 1.3.0", "1.2.0-rc.1 1.1.0"},
	} {
		text := "muster {\n  stack            = \"x\"\n  required_version = \"" + constraint + "\"\n}\n"
		dir := write(t, map[string]string{"a.hcl": text})
		check := func(versions string, want bool) {
			for v := range strings.FieldsSeq(versions) {
				if c, ds := spec.Load(dir, spec.Options{Version: v}); (c != nil) != want {
					t.Errorf("%s with %s: allowed %v, want %v: %v", v, constraint, c != nil, want, ds)
				}
			}
		}
		check(test.allowed, true)
		check(test.refused, false)
	}
}
