package golden

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeShowsWhatHappens: the configuration in the README is that of a case, and the plan there is the case's plan.
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
