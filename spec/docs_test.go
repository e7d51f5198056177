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

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
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
	if d := cmp.Diff(sortedKeys(functions(nil)), documented); d != "" {
		t.Errorf("docs/language.md (-functions +documented):\n%s", d)
	}
}

// TestLanguagePage: what docs/language.md shows loads, and shows every argument of a job, a group and its duties, and a
// queue. What it shows of those that have a default is the default.
func TestLanguagePage(t *testing.T) {
	c := loadPage(t, "../docs/language.md")
	checkShown(t, c.Origins[Of[job.Job](c)[0].Address], "", job.Properties(), Of[job.Job](c)[0], job.Default())
	g := Of[group.Group](c)[0]
	checkShown(t, c.Origins[g.Address], "", group.Properties(), g, group.Default())
	for i, typ := range group.Types() {
		d := g.Duties[i]
		checkShown(t, c.Origins[g.Address], d.Section()+".", group.DutyProperties(typ), d, group.NewDuty(typ, d.Name))
	}
	checkShown(t, c.Origins[Of[queue.Queue](c)[0].Address], "", queue.Properties(), Of[queue.Queue](c)[0], queue.Default())
}

// TestGroupsPage: what docs/groups.md shows is one configuration without findings.
func TestGroupsPage(t *testing.T) {
	if c := loadPage(t, "../docs/groups.md"); len(Of[group.Group](c)) != 1 || len(c.Ignores) != 1 {
		t.Errorf("it declares %+v", c)
	}
}

// TestQueuesPage: what docs/queues.md shows is one configuration without findings.
func TestQueuesPage(t *testing.T) {
	if c := loadPage(t, "../docs/queues.md"); len(Of[queue.Queue](c)) != 1 {
		t.Errorf("it declares %+v", c)
	}
}

// loadPage loads all HCL of a page as one configuration, which has no findings.
func loadPage(t *testing.T, file string) *Config {
	t.Helper()
	page, err := os.ReadFile(file)
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
		t.Fatalf("%s has findings", file)
	}
	return c
}

// checkShown checks that every property is shown, with its default if it has one that is not empty.
func checkShown[T any](
	t *testing.T, from map[string]string, section string, ps []resource.Property[T], shown, initial T,
) {
	t.Helper()
	for _, p := range ps {
		if from[section+p.Name] == "default" {
			t.Errorf("%s is not shown", section+p.Name)
		}
		if got, want := inHCL(p, &shown), inHCL(p, &initial); got != want && !p.Required && want != "" {
			t.Errorf("%s = %s is shown; the default is %s", section+p.Name, got, want)
		}
	}
}

// TestArgumentsAreDocumented: docs/language.md has the tables of arguments.
func TestArgumentsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/language.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		argumentTable("argument", job.Properties()), argumentTable("argument", group.Properties()),
		argumentTable("argument of a leader", group.DutyProperties(group.Leader)),
		argumentTable("argument of a cron", group.DutyProperties(group.Cron)),
		argumentTable("argument of a queue", queue.Properties()),
	} {
		if !strings.Contains(string(page), want+"\n") {
			t.Errorf("docs/language.md lacks this table:\n%s", want)
		}
	}
}

func argumentTable[T any](heading string, ps []resource.Property[T]) string {
	table := "| " + heading + " | says | value | default |\n|---|---|---|---|\n"
	for _, p := range ps {
		initial := "`" + p.Default + "`"
		switch {
		case p.Required:
			initial = "required"
		case p.Default == "":
			initial = "all"
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", p.Name, p.Doc, p.Limits(), initial)
	}
	return table
}

// TestPoliciesAreDocumented: docs/policies.md names all that a policy sees, and all reasons.
func TestPoliciesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(planNames, rowNames, text.Strings(plan.Reasons()), text.Strings(plan.Actions())) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/policies.md does not name `%s`", name)
		}
	}
}
