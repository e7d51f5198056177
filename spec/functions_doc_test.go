package spec

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
