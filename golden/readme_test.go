package golden

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeShowsWhatHappens: the example of the README is a case, and what the README prints is its plan.
func TestReadmeShowsWhatHappens(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"readme/declared.hcl", "readme/plan.txt"} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(readme), strings.TrimSpace(string(part))) {
			t.Errorf("README.md does not show golden/%s as it is", name)
		}
	}
}
