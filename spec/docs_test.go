package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/job"
)

// TestEveryFunctionIsDocumented: the table in docs/language.md names the functions, no more and no fewer.
func TestEveryFunctionIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| [a-z ]+ \\|( `[a-z0-9]+`)+ \\|$").FindAllString(string(page), -1) {
		for _, m := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(row, -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(documented)
	if d := cmp.Diff(newFunctions(nil).names(), documented); d != "" {
		t.Errorf("docs/language.md (-functions +documented):\n%s", d)
	}
}

// TestLanguagePage: what docs/language.md shows loads, and shows every argument of a job. What it shows of those that
// have a default is the default.
func TestLanguagePage(t *testing.T) {
	page, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, m := range regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(page, -1) {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".hcl"), m[1], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, ds := Load(dir, Options{Version: "0.1.0", HasCredentials: true})
	if len(ds) > 0 {
		_ = ds.Text(os.Stderr, false)
		t.Fatal("it has findings")
	}
	shown, initial := c.Jobs[0], job.Default()
	for _, p := range job.Properties() {
		if c.Origins[shown.Address][p.Name] == "default" {
			t.Errorf("%s is not shown", p.Name)
		}
		if got, want := inHCL(p.Ref(&shown)), inHCL(p.Ref(&initial)); got != want && !p.Required {
			t.Errorf("%s = %s is shown; the default is %s", p.Name, got, want)
		}
	}
}

// TestArgumentsAreDocumented: docs/language.md has the table of a job's arguments.
func TestArgumentsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| argument | says | value | default |\n|---|---|---|---|\n"
	for _, p := range job.Properties() {
		initial := "required"
		if !p.Required {
			initial = "`" + p.Default + "`"
		}
		want += fmt.Sprintf("| `%s` | %s | %s | %s |\n", p.Name, p.Doc, p.Limits(), initial)
	}
	if !strings.Contains(string(page), want+"\n") {
		t.Errorf("docs/language.md lacks this table:\n%s", want)
	}
}
