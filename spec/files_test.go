package spec_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/resource/job"
	"muster/spec"
)

const one = head + "job \"a\" {\n  workers = 1\n}\n"

// TestDirectory: what is read of a directory, and what is left out.
func TestDirectory(t *testing.T) {
	junk := "this is not HCL ((("
	c := load(t, map[string]string{
		"b.hcl": "job \"b\" {\n  workers = 2\n}\n", "a.hcl": one, "c.hcl.json": `{"job": {"c": {"workers": 3}}}`,
		".hidden.hcl": junk, "a.hcl~": junk, "#a.hcl#": junk, ".#a.hcl": junk, "a.hcl.orig": junk, "readme.md": junk,
		"prod.vars.hcl": junk, "prod.vars.hcl.json": junk, "sub/x.hcl": junk, "dir.hcl/x": junk,
	}, spec.Options{})
	var names []string
	for _, j := range spec.Of[job.Job](c) {
		names = append(names, j.Name+" "+j.At)
	}
	if want := []string{"a a.hcl:4", "b b.hcl:1", "c c.hcl.json:1"}; !slices.Equal(names, want) {
		t.Errorf("jobs %q, want %q", names, want)
	}
}

// TestSymbolicLinks: files may be links, as in a mounted Kubernetes ConfigMap; file() does not leave the directory.
func TestSymbolicLinks(t *testing.T) {
	dir := write(t, map[string]string{"..data/jobs": one, "..data/text": "inside", "secret": "outside"})
	conf := filepath.Join(dir, "..data")
	for _, link := range [][2]string{
		{"jobs", filepath.Join(conf, "jobs.hcl")}, {"text", filepath.Join(conf, "inside.txt")},
		{"../secret", filepath.Join(conf, "outside.txt")},
	} {
		if err := os.Symlink(link[0], link[1]); err != nil {
			t.Fatal(err)
		}
	}
	if c, ds := spec.Load(conf, spec.Options{}); c == nil || len(spec.Of[job.Job](c)) != 1 {
		t.Errorf("a linked file: %v", ds)
	}
	more := filepath.Join(conf, "more.hcl")
	put(t, more, "job \"b\" {\n  workers = 1\n  labels = { x = file(\"inside.txt\") }\n}\n")
	if c, ds := spec.Load(conf, spec.Options{}); c == nil || spec.Of[job.Job](c)[1].Labels["x"] != "inside" {
		t.Errorf("a link inside: %v", ds)
	}
	put(t, more, "job \"b\" {\n  workers = 1\n"+
		"  labels = { x = file(\"outside.txt\"), y = fileexists(\"outside.txt\") }\n}\n")
	c, ds := spec.Load(conf, spec.Options{})
	if c != nil || len(ds) != 2 || ds[0].Code != "M1504" || ds[1].Code != "M1504" {
		t.Errorf("a link to the outside: %+v", ds)
	}
}

// TestLinksOutOfTheDirectory: what a finding shows of a file outside of the directory could be a secret. A link to it
// is refused, whatever it is named like and however it gets out. So is one that a value file is.
func TestLinksOutOfTheDirectory(t *testing.T) {
	dir := write(t, map[string]string{"secret": "password = hunter2 ((", "conf/sub/inside": "variable \"v\" {}\n"})
	conf := filepath.Join(dir, "conf")
	for name, target := range map[string]string{
		"relative": "../secret", "absolute": filepath.Join(dir, "secret"), "twice": "sub/../..link",
		"around": "../conf/../secret", "root": "/proc/self/environ", "device": "/dev/zero",
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"b.hcl", "b.hcl.json", "b.auto.vars.hcl", "b.vars.hcl"} {
				config := write(t, map[string]string{"a.hcl": one + "variable \"v\" {\n  default = 1\n}\n", "sub/x": ""})
				link := filepath.Join(config, file)
				if !filepath.IsAbs(target) && name != "twice" {
					target = filepath.Join(conf, target)
				}
				put(t, filepath.Join(dir, "secret"), "password = hunter2 ((")
				if err := errors.Join(os.Symlink(target, link), os.Symlink(dir+"/secret", config+"/..link")); err != nil {
					t.Fatal(err)
				}
				var o spec.Options
				if file == "b.vars.hcl" {
					o.Vars = []spec.VarInput{{File: link}}
				}
				c, ds := spec.Load(config, o)
				if c != nil || len(ds) != 1 || !strings.Contains(ds[0].Summary, "a link that leads out of its directory") {
					t.Errorf("%s: %v, %+v", file, c, ds)
				}
			}
		})
	}
	absolute := filepath.Join(conf, "b.hcl")
	if err := os.Symlink(filepath.Join(conf, "sub/inside"), absolute); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(conf, "a.hcl"), one)
	if c, ds := spec.Load(conf, spec.Options{Environ: []string{"MUSTER_VAR_v=1"}}); c == nil {
		t.Errorf("an absolute link that stays inside: %+v", ds)
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadable: each way in which a directory or a file cannot be read, with what to do.
func TestUnreadable(t *testing.T) {
	dir := write(t, map[string]string{
		"empty/readme.md": "", "nested/prod/jobs.hcl": one, "file.hcl": one,
		"large/a.hcl": strings.Repeat("\n", 2<<20+1),
		"utf16/a.hcl": "\xff\xfem\x00", "latin1/a.hcl": head + "job \"\xe9\" {\n}\n",
		"vars/a.vars.hcl": "x = 1\n",
		"deep/a.hcl":      "a = " + strings.Repeat("[", 1001) + "\n",
		"plan.json":       "{}",
	})
	for _, name := range []string{"dangling", "fifo"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nothing", filepath.Join(dir, "dangling/a.hcl")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo/a.hcl"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, code, says, help string }{
		{"missing", "M1001", "there is no directory", "give the directory"},
		{"missing.hcl", "M1001", "there is no file", "or the directory"},
		{"vars/a.vars.hcl", "M1001", "holds values of variables", "--var-file "},
		{"plan.json", "M1001", "plan.json is no configuration", "or one such file"},
		{"fifo/a.hcl", "M1003", "a.hcl cannot be read: it is not a regular file", ""},
		{"empty", "M1002", "holds no *.hcl file", "muster init writes a first one"},
		{"vars", "M1002", "holds no *.hcl file", "jobs.hcl"},
		{"nested", "M1002", "holds no *.hcl file", "nested/prod"},
		{"dangling", "M1003", "a.hcl cannot be read", ""},
		{"fifo", "M1003", "not a regular file", ""},
		{"utf16", "M1004", "not UTF-8", "UTF-16"},
		{"latin1", "M1004", "not UTF-8", "UTF-8"},
		{"deep", "M1005", "nested deeper than 1000", ""},
		{"large", "M1005", "it has 2097153 bytes; a configuration file has at most 2097152", ""},
	} {
		c, ds := spec.Load(filepath.Join(dir, test.path), spec.Options{})
		if c != nil || len(ds) != 1 {
			t.Errorf("%s: %d findings: %+v", test.path, len(ds), ds)
			continue
		}
		d := ds[0]
		if d.Code != test.code || !strings.Contains(d.Summary, test.says) || !strings.Contains(d.Help, test.help) {
			t.Errorf("%s: %s %s; help: %s", test.path, d.Code, d.Summary, d.Help)
		}
	}
}

// TestOneFile: a file is a configuration by itself. Nothing beside it is read but what it names, and it means the same
// as in a directory of its own.
func TestOneFile(t *testing.T) {
	const jobs = head + "variable \"n\" {\n  default = 2\n}\njob \"a\" {\n  workers = var.n\n" +
		"  labels = { x = file(\"x.txt\") }\n}\n"
	dir := write(t, map[string]string{
		"a.hcl": jobs, "x.txt": "inside", "other.hcl": one, "n.auto.vars.hcl": "n = 3\n", "alone/a.hcl": jobs,
		"alone/x.txt": "inside", "b.hcl.json": `{"muster": {"stack": "json"}}`,
	})
	one, ds := spec.Load(filepath.Join(dir, "a.hcl"), spec.Options{})
	if ds.HasErrors() || len(one.Declared) != 1 {
		t.Fatalf("%+v\n%v", one, ds)
	}
	if j := spec.Of[job.Job](one)[0]; j.Workers != 2 || j.Labels["x"] != "inside" || !strings.HasPrefix(j.At, "a.hcl:") {
		t.Fatalf("%+v\n%v", one, ds)
	}
	if alone, _ := spec.Load(filepath.Join(dir, "alone"), spec.Options{}); alone.Digest != one.Digest {
		t.Errorf("alone its digest is %s, beside others %s", alone.Digest, one.Digest)
	}
	if c, ds := spec.Load(filepath.Join(dir, "b.hcl.json"), spec.Options{}); c == nil || c.Stack != "json" {
		t.Errorf("%+v\n%v", c, ds)
	}
	t.Chdir(dir)
	if c, ds := spec.Load("a.hcl", spec.Options{}); c == nil || spec.Of[job.Job](c)[0].Labels["x"] != "inside" {
		t.Errorf("%+v\n%v", c, ds)
	}
}

// TestUnreadableValues: what a file of values that is not text would give is not reported as missing.
func TestUnreadableValues(t *testing.T) {
	dir := write(t, map[string]string{
		"a.hcl": one + "variable \"v\" {\n  type = string\n}\n", "values": "v = \"\xe9\"\n",
	})
	_, ds := spec.Load(dir, spec.Options{Vars: []spec.VarInput{{File: filepath.Join(dir, "values")}}})
	if len(ds) != 1 || ds[0].Code != "M1004" {
		t.Errorf("%+v", ds)
	}
}

// TestByteOrderMark: some editors write one; it is neither an error nor lost by the formatter.
func TestByteOrderMark(t *testing.T) {
	c := load(t, map[string]string{"a.hcl": "\ufeff" + one, "b.hcl.json": "\ufeff{}"}, spec.Options{})
	if len(spec.Of[job.Job](c)) != 1 || spec.Of[job.Job](c)[0].At != "a.hcl:4" {
		t.Errorf("%+v", spec.Of[job.Job](c))
	}
	if out, ds := spec.Format([]byte("\ufeffa=1\n"), "a.hcl"); string(out) != "\ufeffa = 1\n" {
		t.Errorf("%q %v", out, ds)
	}
}

// TestExpiry: an ignore counts to the end of its last day; without a clock it is not checked.
func TestExpiry(t *testing.T) {
	files := map[string]string{"a.hcl": one + "drift {\n  ignore {\n    address = \"/jobs/x\"\n" +
		"    until = \"2027-01-31\"\n    reason = \"x\"\n  }\n}\n"}
	dir := write(t, files)
	last := time.Date(2027, 1, 31, 23, 59, 59, 0, time.UTC)
	for now, want := range map[time.Time]bool{last: true, last.Add(time.Second): false, {}: true} {
		if c, _ := spec.Load(dir, spec.Options{Now: now}); (c != nil) != want {
			t.Errorf("at %s: accepted %v", now, c != nil)
		}
	}
}
