package golden

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestHouseRules: no Go file is too long or too wide, no test sleeps, and only package needs skips a test.
func TestHouseRules(t *testing.T) {
	const longest, widest = 800, 120
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	sleeps, skips := regexp.MustCompile(`\btime\.Sleep\(`), regexp.MustCompile(`\b[tbf]\.(Skip|SkipNow|Skipf)\(`)
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && e.Name() != "..":
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if generated.Match(body) {
			return nil
		}
		if n := bytes.Count(body, []byte("\n")); n > longest {
			t.Errorf("%s has %d lines, more than %d", path, n, longest)
		}
		for i, line := range strings.Split(string(body), "\n") {
			if n := utf8.RuneCountInString(line); n > widest {
				t.Errorf("%s:%d has %d columns, more than %d", path, i+1, n, widest)
			}
		}
		if skips.Match(body) && filepath.Dir(path) != "../sim/needs" {
			t.Errorf("%s skips: a test that cannot run here asks package needs, which does not hide it", path)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if sleeps.Match(body) {
			t.Errorf("%s sleeps: wait for the fact, not for the clock", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	codeBlock    = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinksLead: each link from one page of the repository to another leads to a file that is there, and to a heading
// in it.
func TestLinksLead(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".md" {
			return err
		}
		for _, m := range markdownLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(readPage(t, file), ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			checked++
			target := file
			if to != "" {
				target = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(readPage(t, target)), anchor) {
				t.Errorf("%s: %s has no heading for the link to %s", file, target, m[1])
			}
		}
		return nil
	})
	if err != nil || checked < 100 {
		t.Errorf("%d links were found: %v", checked, err)
	}
}

func readPage(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchors returns the names by which links know the headings of a page.
func anchors(page string) []string {
	var found []string
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return found
}

// TestTheSpineIsShort: the files that docs/reading.md begins with have as many lines as it says.
func TestTheSpineIsShort(t *testing.T) {
	page := readPage(t, "../docs/reading.md")
	_, spine, _ := strings.Cut(page, "## The spine")
	spine, _, _ = strings.Cut(spine, "Next, by what you work on")
	lines := 0
	for _, m := range markdownLink.FindAllStringSubmatch(spine, -1) {
		lines += strings.Count(readPage(t, filepath.Join("../docs", m[1])), "\n")
	}
	const most = 4000
	says := fmt.Sprintf("are %d,%d00 lines", lines/1000, lines%1000/100)
	if lines > most || !strings.Contains(page, says) {
		t.Errorf("docs/reading.md begins with %d lines, and does not say that they %s; at most %d", lines, says, most)
	}
}

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
	text := strings.Join(strings.Fields(string(readme)), " ")
	if want := fmt.Sprintf(" of %d packages: ", n); err != nil || !strings.Contains(text, want) {
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
