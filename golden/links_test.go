package golden

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

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
