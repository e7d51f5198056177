package golden

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeShowsWhatHappens: the configuration and the plan in the README are those of a case.
func TestReadmeShowsWhatHappens(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := readCase(t, "readme")
	for _, name := range []string{declared, planTxt} {
		part, ok := c.section(name)
		if !ok || !strings.Contains(string(readme), strings.TrimSpace(part)) {
			t.Errorf("README.md does not show section %s of golden/%s as it is", name, c.file())
		}
	}
}

// TestReadmeShowsAGroup: the group in the README is that of a case, which also has what every configuration needs.
func TestReadmeShowsAGroup(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := readCase(t, "readme_group")
	text, _ := c.section(declared)
	if at := strings.Index(text, "group "); at < 0 || !strings.Contains(string(readme), text[at:]) {
		t.Errorf("README.md does not show the group of golden/%s as it is", c.file())
	}
}

// TestReadmeCountsPackages: make test installs as many packages as the README says.
func TestReadmeCountsPackages(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../.ci/setup", "list").Output()
	n := 0
	for line := range strings.Lines(string(out)) {
		packages, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		n += len(strings.Fields(packages))
	}
	if want := fmt.Sprintf(" of %d\npackages: ", n); err != nil || !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not say %q: %v", want, err)
	}
}

// TestTestingShowsFacts: the facts that docs/testing.md shows for the section "observed" can be read.
func TestTestingShowsFacts(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("`(/[^`]+: {[^`]*})`").FindAllStringSubmatch(string(page), -1)
	if len(shown) < 10 {
		t.Errorf("only %q", shown)
	}
	for _, facts := range shown {
		if _, err := readObserved(facts[1], oneJob()); err != nil {
			t.Errorf("docs/testing.md shows %s: %v", facts[1], err)
		}
	}
}
