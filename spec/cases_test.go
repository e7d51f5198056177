package spec_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"muster/spec"
)

var update = flag.Bool("update", false, "rewrite the expected diagnostics")

// TestCases loads every testdata/*/*.txtar. The comment says why the case exists; the file diags.txt is what Load
// has to say, exactly; config.json, if there is one, is what it returns; the file options holds lines such as "var
// base=3", "file prod.vars.hcl", "env MUSTER_VAR_x=1", "now 2027-01-31", "version 1.2.3" and "open" (no
// credentials).
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d cases: %v", len(files), err)
	}
	for _, file := range files {
		kind, name := filepath.Base(filepath.Dir(file)), strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(kind+"/"+name, func(t *testing.T) { runCase(t, file, kind == "rejected") })
	}
}

func runCase(t *testing.T, file string, rejected bool) {
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(ar.Comment)) == "" {
		t.Error("the case does not say why it exists")
	}
	files, want, config := map[string]string{}, -1, -1
	o := spec.Options{HasCredentials: true}
	for i, f := range ar.Files {
		switch f.Name {
		case "options":
			o = options(t, string(f.Data))
		case "diags.txt":
			want = i
		case "config.json":
			config = i
		default:
			files[f.Name] = string(f.Data)
		}
	}
	t.Chdir(write(t, files))
	c, ds := spec.Load(".", o)
	if got := c == nil; got != rejected {
		t.Errorf("rejected: %v", got)
	}
	var b strings.Builder
	if err := ds.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	meaning := ""
	if config >= 0 {
		meaning = meaningOf(t, c)
	}
	if *update {
		if config >= 0 {
			ar.Files[config].Data = []byte(meaning)
		}
		if want < 0 {
			ar.Files = append(ar.Files, txtar.File{Name: "diags.txt"})
			want = len(ar.Files) - 1
		}
		ar.Files[want].Data = []byte(b.String())
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want < 0 {
		t.Fatal("no diags.txt: run with -update and read it")
	}
	if d := cmp.Diff(string(ar.Files[want].Data), b.String()); d != "" {
		t.Errorf("diagnostics (-want +got):\n%s", d)
	}
	if config >= 0 {
		if d := cmp.Diff(string(ar.Files[config].Data), meaning); d != "" {
			t.Errorf("configuration (-want +got):\n%s", d)
		}
	}
}

// meaningOf is all that a configuration means, and where its blocks stand.
func meaningOf(t *testing.T, c *spec.Config) string {
	t.Helper()
	at := map[string]string{}
	for _, d := range c.Declared {
		at[d.ID().Address] = d.ID().At
	}
	body, err := json.MarshalIndent(struct {
		*spec.Config
		At       map[string]string
		Searched []string
	}{c, at, c.Searched()}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(body) + "\n"
}

// sourceOf is a file of an accepted case.
func sourceOf(t *testing.T, name, file string) string {
	t.Helper()
	ar, err := txtar.ParseFile(filepath.Join("testdata", "accepted", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ar.Files {
		if f.Name == file {
			return string(f.Data)
		}
	}
	t.Fatalf("%s has no %s", name, file)
	return ""
}

func options(t *testing.T, text string) spec.Options {
	o := spec.Options{HasCredentials: true}
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "var":
			o.Vars = append(o.Vars, spec.VarInput{Flag: rest})
		case "file":
			o.Vars = append(o.Vars, spec.VarInput{File: rest})
		case "env":
			o.Environ = append(o.Environ, rest)
		case "version":
			o.Version = rest
		case "open":
			o.HasCredentials = false
		case "now":
			now, err := time.Parse(time.DateOnly, rest)
			if err != nil {
				t.Fatal(err)
			}
			o.Now = now
		default:
			t.Fatalf("option %q", line)
		}
	}
	return o
}
